"""Rows of data and the files that hold them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock

Row = Mapping[str, Any]


def read_rows(path: Path) -> list[Row]:
    """Reads the objects of a JSONL file.

    Raises:
        FileNotFoundError: the file is missing; the message names --data_dir and COPYNET_DATA.
    """
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is missing: name the folder of the data with --data_dir or COPYNET_DATA (docs/data.md)"
        )
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def keep_pair_columns(row: Row) -> dict[str, Any]:
    """Keeps the columns that models read, as far as the row has them."""
    return {column: row[column] for column in ("text", "summary", "facts", "features") if column in row}


def write_pairs(folder: Path, splits: Mapping[str, Iterable[Row]]) -> dict[str, str]:
    """Writes the splits `train` and `validation`, as far as they are there, to SPLIT.jsonl.

    Returns:
        the arguments of `copynet-hf train` that name the files.
    """
    training = {split: splits[split] for split in ("train", "validation") if split in splits}
    for split, rows in training.items():
        lines = (json.dumps(keep_pair_columns(row), ensure_ascii=False) for row in rows)
        write_text(folder / f"{split}.jsonl", "".join(f"{line}\n" for line in lines))
    return {f"{split}_file": str(folder / f"{split}.jsonl") for split in training}


def write_text(path: Path, text: str) -> None:
    """Writes a file atomically, so that no process reads half of it. A file with the same text is left untouched."""
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)


@contextmanager
def change_json(path: Path, empty: Any) -> Iterator[Any]:
    """Yields the contents of a JSON file, `empty` if there is none, and writes them. Several processes may do so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f".{path.stem}.lock")):
        contents = json.loads(path.read_text(encoding="utf-8")) if path.exists() else empty
        yield contents
        write_text(path, json.dumps(contents, indent=1, ensure_ascii=False) + "\n")


def to_file_name(name: str) -> str:
    """Replaces all characters but letters, digits and underscores: "Ptr-Net, 5 points" becomes "Ptr_Net_5_points"."""
    return re.sub(r"\W+", "_", name).strip("_")


def collapse_spaces(text: str) -> str:
    return " ".join(text.split())
