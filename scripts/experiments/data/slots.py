"""SNIPS and ATIS, as split by Goo et al. 2018: requests with an intent and slots, which are words of the request."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path
from typing import Any

from .rows import Row, read_rows

INTENT = "intent"


def read_requests(data_dir: Path, name: str) -> dict[str, list[Row]]:
    """Reads train, validation and test: `text` is the request, `summary` a list of records: the intent, then the slots
    in the order of the request, with the characters [start, end) of their values."""
    return {
        split: [_make_row(row) for row in read_rows(data_dir / f"slots_{name}" / f"{split}.jsonl")]
        for split in ("train", "validation", "test")
    }


def _make_row(row: Row) -> dict[str, Any]:
    words = row["text"].split()
    text, ends = " ".join(words), list(accumulate(len(word) + 1 for word in words))
    records: list[dict[str, Any]] = [{"slot": INTENT, "value": row["intent"], "start": None, "end": None}]
    for slot in row["slots"]:
        start, end = ends[slot["start"]] - len(words[slot["start"]]) - 1, ends[slot["end"] - 1] - 1
        records.append({"slot": slot["slot"], "value": text[start:end], "start": start, "end": end})
    return {"text": text, "summary": records}
