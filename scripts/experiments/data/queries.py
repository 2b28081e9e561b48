"""Questions about flights and their SQL queries: ATIS, as in Finegan-Dollak et al. 2018."""

from __future__ import annotations

from pathlib import Path

from .rows import Row, read_rows


def read_queries(data_dir: Path) -> dict[str, list[Row]]:
    """Reads train, validation and test of the question split: `text` is the question, `summary` its first query."""
    return {
        split: [
            {"text": row["source"], "summary": row["target"]}
            for row in read_rows(data_dir / "text2sql_atis" / f"{split}.jsonl")
        ]
        for split in ("train", "validation", "test")
    }
