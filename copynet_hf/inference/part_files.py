"""The files of `copynet-hf predict`: windows of rows on the disk, their parts, and the output that they become.

A window is a Parquet file with the columns `file`, `line` (in a Parquet file the row's number), `reason` (why the row
cannot be read), `row`, the row as JSON text, and for rows of a Parquet file `arrow`, the row as it is. The part that
replaces it has the same rows with `new`, a struct of the row's new columns, and `reason` where it has no prediction.
"""

from __future__ import annotations

import base64
import csv
import gzip
import io
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import count, groupby, islice
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..data.columns import Columns
from ..data.features import resemble_facts
from ..data.parquet import is_string, read_batches
from ..data.records import data_suffix
from ..data.rows import NumberedRow, number_rows

WRITTEN_SUFFIXES = (".jsonl", ".csv", ".tsv", ".parquet")
PART_SUFFIX, TRUNCATED = ".part", b"truncated"  # the latter is the key of a number
GROUP_ROWS, GROUP_BYTES = 65_536, 1 << 26  # of a row group, into which small windows are joined

Row = dict[str, Any]


def read_windows(
    file: Path, delimiter: str, size: int, facts_column: str
) -> Iterator[tuple[pa.Table, dict[str, bool], bool]]:
    """Windows of at most `size` rows, of each of their columns whether it holds strings, and whether that of the facts
    holds some.

    Raises:
        DataFileError: the file cannot be read at all, or two of its columns have one name.
    """
    if data_suffix(file) != ".parquet":
        records = number_rows(file, delimiter=delimiter)
        while window := list(islice(records, size)):
            cells = [cell for _, row in window if isinstance(row, dict) for cell in row.items()]
            strings = {name for name, value in cells if isinstance(value, str)}
            has_facts = any(name == facts_column and resemble_facts(value) for name, value in cells)
            yield _build_window(file, window), {name: name in strings for name, _ in cells}, has_facts
        return
    line = count(1)
    for batch, rows in read_batches(file, size):
        yield (
            _build_window(file, list(zip(line, rows, strict=False))).append_column("arrow", batch.to_struct_array()),
            {field.name: is_string(field.type) for field in batch.schema},
            any(resemble_facts(row.get(facts_column)) for row in rows),
        )


def _build_window(file: Path, rows: Sequence[NumberedRow]) -> pa.Table:
    return pa.table(
        {
            "file": [str(file)] * len(rows),
            "line": [line for line, _ in rows],
            "reason": pa.array([row if isinstance(row, str) else None for _, row in rows], pa.string()),
            "row": pa.array([None if isinstance(row, str) else to_json(row) for _, row in rows], pa.string()),
        }
    )


def to_json(value: object) -> str:
    """A value as JSON: bytes in base64; null for numbers that are not finite, which JSON lacks."""

    def encode(data: bytes) -> str:
        return base64.b64encode(data).decode()

    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=encode)
    except ValueError:
        finite = json.loads(json.dumps(value, default=encode), parse_constant=lambda name: None)
        return json.dumps(finite, ensure_ascii=False)


# ---- the output


def join_parts(
    parts: Sequence[Path], names: Sequence[str], output: Path, bad_file: Path, delimiter: str = ","
) -> tuple[int, int, int]:
    """Writes the rows with predictions, and those without as JSON lines; each file as a whole.

    Args:
        parts: those of all windows, in their order.
        names: the columns of the rows, and those that the predictor adds.
        delimiter: of the fields of a CSV file.

    Returns:
        The numbers of rows with predictions, of those without, and of truncated sources.
    """
    total = num_bad = num_truncated = 0
    with write_whole(bad_file) as file:
        for part in parts:
            bad = _read_part(part, is_bad=True)
            for row in bad.select(["file", "line", "reason", "row"]).to_pylist():
                content = row.pop("row")
                row |= {} if content is None else {"row": json.loads(content)}
                file.write(f"{to_json(row)}\n".encode())
            metadata = pq.read_metadata(part)
            total, num_bad = total + metadata.num_rows, num_bad + len(bad)
            num_truncated += int(metadata.metadata[TRUNCATED])
    if data_suffix(output) == ".parquet":
        _write_parquet(parts, names, output)
    else:
        _write_text(parts, names, output, delimiter)
    return total - num_bad, num_bad, num_truncated


def _read_part(path: Path, is_bad: bool = False) -> pa.Table:
    """The rows of a part that have a prediction, or those that have none."""
    rows = pq.read_table(path, partitioning=None)
    wanted = [(reason is not None) == is_bad for reason in rows["reason"].to_pylist()]
    runs = (list(run) for is_wanted, run in groupby(range(len(rows)), wanted.__getitem__) if is_wanted)
    # slices, as Arrow cannot filter columns of some types
    return pa.concat_tables([rows.slice(0, 0), *(rows.slice(run[0], len(run)) for run in runs)])


def _read_rows(part: pa.Table) -> list[Row]:
    """The rows of a part with their new columns."""
    columns = (part[name].to_pylist() for name in ("row", "new"))
    return [json.loads(row) | new for row, new in zip(*columns, strict=True)]


def _write_text(parts: Sequence[Path], names: Sequence[str], output: Path, csv_delimiter: str) -> None:
    suffix = data_suffix(output)
    delimiter = {".csv": csv_delimiter, ".tsv": "\t"}.get(suffix)
    is_compressed = output.suffix.lower() == ".gz"
    with (
        write_whole(output) as file,
        gzip.GzipFile("", "wb", 9, file, 0) if is_compressed else nullcontext(file) as to,
    ):
        if delimiter is not None:
            to.write(_format_rows([dict(zip(names, names, strict=True))], names, delimiter))
        for part in parts:
            to.write(_format_rows(_read_rows(_read_part(part)), names, delimiter))


def _format_rows(rows: Sequence[Row], names: Sequence[str], delimiter: str | None) -> bytes:
    """The rows with this delimiter and JSON in the fields of lists and objects; None: as JSON lines."""
    if delimiter is None:
        return "".join(f"{to_json(row)}\n" for row in rows).encode()
    text = io.StringIO(newline="")
    plain, quoted = (
        csv.writer(text, delimiter=delimiter, lineterminator="\n", quoting=quoting)
        for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL)
    )
    for row in rows:  # a carriage return is not quoted by itself, and would end the record for every reader
        cells = [row.get(name) for name in names]
        fields = [to_json(cell) if isinstance(cell, list | dict) else cell for cell in cells]
        has_return = any(isinstance(field, str) and "\r" in field for field in fields)
        (quoted if has_return else plain).writerow(fields)
    return text.getvalue().encode()


def _write_parquet(parts: Sequence[Path], names: Sequence[str], output: Path) -> None:
    """Writes several small windows as one row group."""
    types = _find_types(parts, names)
    schema = pa.schema([(name, kind or pa.string()) for name, kind in types.items()])
    waiting: list[pa.Table] = []
    with write_whole(output) as file, pq.ParquetWriter(file, schema) as writer:
        for number, path in enumerate(parts, 1):
            part = _read_part(path)
            rows = _read_rows(part)
            own = {
                field.name: pc.struct_field(part[column], field.name)
                for column in ("arrow", "new")
                for field in (part.schema.field(column).type if column in part.column_names else ())
            }
            columns = [
                own[name] if name in own and own[name].type == kind else _to_arrow(rows, name, kind)
                for name, kind in types.items()
            ]
            waiting.append(pa.table(columns, schema))
            is_full = sum(map(len, waiting)) >= GROUP_ROWS or sum(each.nbytes for each in waiting) >= GROUP_BYTES
            if is_full or number == len(parts):
                writer.write_table(pa.concat_tables(waiting))
                waiting.clear()


def _find_types(parts: Sequence[Path], names: Sequence[str]) -> dict[str, pa.DataType | None]:
    """The type of each column: that of the Parquet files, where all files are and agree; else the one that holds its
    JSON values; None if only JSON text does."""
    found: dict[str, set[pa.DataType | None]] = {name: set() for name in names}
    for part in parts:
        schema = pq.read_schema(part)
        structs = [schema.field(column).type for column in ("arrow", "new") if column in schema.names]
        own = {field.name: field.type for struct in structs for field in struct}
        for name in names:
            if name in own or "arrow" not in schema.names:
                found[name].add(own.get(name))
    types: dict[str, pa.DataType | None] = {
        name: next(iter(kinds)) for name, kinds in found.items() if len(kinds) == 1
    }
    others = [name for name in names if types.get(name) is None]
    if others:
        rows = (row for part in parts for row in _read_rows(_read_part(part)))
        inferred = Columns({name: row.get(name) for name in others} for row in rows).types
        types = {name: types.get(name) or inferred.get(name, pa.null()) for name in names}
    for part in parts if others else ():  # a type that holds each batch may not hold all
        read = _read_rows(_read_part(part))
        for name in others:
            try:
                _to_arrow(read, name, types[name])
            except (pa.ArrowException, TypeError, OverflowError):
                types[name] = None
    return types


def _to_arrow(rows: Sequence[Row], name: str, kind: pa.DataType | None) -> pa.Array:
    """A column of JSON values, as JSON text if there is no type for them."""
    values = [row.get(name) for row in rows]
    if kind is None:
        return pa.array([None if value is None else to_json(value) for value in values], pa.string())
    return pa.array(values, kind)


@contextmanager
def write_whole(path: Path) -> Iterator[BinaryIO]:
    """A file that gets its name when the block has ended and its contents are on the disk."""
    unfinished = path.with_name(f"{path.name}.unfinished")
    with unfinished.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
