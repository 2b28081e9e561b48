"""CLGE, the part of LCSTS that CLUEbenchmark trains and tests on, without the overlaps between its splits."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from .rows import Row, read_rows


def read_clge(
    folder: Path, tests: Iterable[str], max_rows: int | None = None
) -> tuple[dict[str, list[Row]], dict[str, list[Row]]]:
    """Reads the training and test splits; a text that several splits have is kept in one of them.

    Args:
        folder: with train.jsonl, validation.jsonl and a file per test set.
        tests: the names of the test sets.
        max_rows: the most rows of each split; None for all.

    Returns:
        `train` and `validation`, then the test sets, each by name.
    """
    test_rows = {name: read_rows(folder / f"{name}.jsonl")[:max_rows] for name in tests}
    test_texts = {row["text"] for rows in test_rows.values() for row in rows}
    validation = [row for row in read_rows(folder / "validation.jsonl") if row["text"] not in test_texts]
    held_out = test_texts | {row["text"] for row in validation}
    clge_train = [row for row in read_rows(folder / "train.jsonl") if row["clge_split"] == "train"]
    train = [row for row in clge_train if row["text"] not in held_out]
    return {"train": train[:max_rows], "validation": validation[:max_rows]}, test_rows
