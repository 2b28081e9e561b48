"""The output of `copynet-hf predict`: parts that are written whole or not at all, and the file that they become."""

from __future__ import annotations

import base64
import csv
import gzip
import io
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from ..data.records import data_suffix

WRITTEN_SUFFIXES = (".jsonl", ".csv", ".tsv", ".parquet")
_GROUP_ROWS, _GROUP_BYTES = 65_536, 1 << 26  # of a row group, into which small parts are joined

Row = Mapping[str, Any]


class PartFormat:
    """Writes rows as a part of a file, and the parts as the file.

    Args:
        path: the file, whose name says the format: .jsonl, .csv, .tsv or .parquet; all but the last may be compressed
            (.gz).
        types: the type of each column, None for JSON text; used by formats whose columns have one.

    Raises:
        ValueError: another format.
    """

    def __init__(self, path: Path, types: Mapping[str, pa.DataType | None]) -> None:
        self.path, self.suffix = path, check_output_suffix(path)
        self.types = types
        self.schema = pa.schema([(name, pa.string() if kind is None else kind) for name, kind in types.items()])

    def write_part(self, part: Path, rows: Sequence[Row]) -> None:
        """Writes the rows; the part is there as a whole or not at all, also after a power failure."""
        with write_whole(part) as file:
            if self.suffix == ".jsonl":
                file.writelines(_to_json(row).encode() + b"\n" for row in rows)
            elif self.suffix == ".parquet":
                pq.write_table(pa.Table.from_pylist([self._typed(row) for row in rows], self.schema), file)
            else:
                self._write_fields(file, ([_to_field(row.get(name)) for name in self.types] for row in rows))

    def join_parts(self, parts: Sequence[Path], path: Path) -> None:
        """Writes the parts as one file."""
        if self.suffix == ".parquet":
            self._join_tables(parts, path)
            return
        with write_whole(path) as file, _compressed(file, self.path) as output:
            if self.suffix != ".jsonl":
                self._write_fields(output, [list(self.types)])
            for part in parts:
                with part.open("rb") as rows:
                    shutil.copyfileobj(rows, output, 1 << 20)

    def _join_tables(self, parts: Sequence[Path], path: Path) -> None:
        """Writes Parquet parts as one file, several small parts as one row group."""
        with write_whole(path) as file, pq.ParquetWriter(file, self.schema) as writer:
            waiting: list[pa.Table] = []
            for part in parts:
                waiting.append(pq.read_table(part, schema=self.schema))
                if sum(map(len, waiting)) >= _GROUP_ROWS or sum(each.nbytes for each in waiting) >= _GROUP_BYTES:
                    writer.write_table(pa.concat_tables(waiting))
                    waiting.clear()
            if waiting:
                writer.write_table(pa.concat_tables(waiting))

    def _typed(self, row: Row) -> dict[str, Any]:
        """The row, with JSON text in the columns whose values have several types."""
        is_json = {name for name, kind in self.types.items() if kind is None}
        return {
            name: _to_json(value) if name in is_json and value is not None else value for name, value in row.items()
        }

    def _write_fields(self, file: BinaryIO, rows: Iterator[list[Any]] | list[list[Any]]) -> None:
        text = io.TextIOWrapper(file, "utf-8", newline="", write_through=True)
        delimiter = "," if self.suffix == ".csv" else "\t"
        plain, quoted = (
            csv.writer(text, delimiter=delimiter, lineterminator="\n", quoting=quoting)
            for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL)
        )
        for row in rows:  # a carriage return is not quoted by itself, and would end the record for every reader
            has_return = any(isinstance(value, str) and "\r" in value for value in row)
            (quoted if has_return else plain).writerow(row)
        text.detach()


def check_output_suffix(path: Path) -> str:
    """The suffix that names the format of an output file.

    Raises:
        ValueError: no format that is written.
    """
    suffix = data_suffix(path)
    if suffix not in WRITTEN_SUFFIXES or path.name.lower().endswith(".parquet.gz"):
        raise ValueError(
            f"--output_file {path}: the name must end in {', '.join(WRITTEN_SUFFIXES)}; all but .parquet may be "
            "followed by .gz"
        )
    return suffix


@contextmanager
def write_whole(path: Path) -> Iterator[BinaryIO]:
    """A file that gets its name when the block has ended and its contents are on the disk."""
    unfinished = path.with_name(f"{path.name}.unfinished")
    with unfinished.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)


@contextmanager
def _compressed(file: BinaryIO, path: Path) -> Iterator[BinaryIO]:
    """The file, through gzip if the name of `path` ends in .gz."""
    if path.suffix.lower() != ".gz":
        yield file
        return
    with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as compressed:
        yield compressed  # type: ignore[misc]


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=_to_text)


def _to_field(value: Any) -> Any:
    """A value as a field of a CSV file: lists and objects as JSON text."""
    if isinstance(value, list | dict | tuple):
        return _to_json(value)
    return _to_text(value) if isinstance(value, bytes) else value


def _to_text(value: Any) -> str:
    """A value of Parquet that JSON lacks: bytes in base64, dates and decimals as Python writes them."""
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
