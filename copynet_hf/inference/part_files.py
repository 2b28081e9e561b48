"""The files of `copynet-hf predict`: windows of the rows that are read, and the output that they become.

A part is a Parquet file of what was predicted for a window, a row each: `reason`, why it has no prediction, or `new`,
a struct of its new columns, and `FLAGS`.
"""

from __future__ import annotations

import base64
import codecs
import csv
import gzip
import io
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from itertools import groupby, islice
from pathlib import Path
from typing import BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ..data.columns import Columns
from ..data.files import Row, data_suffix, has_mark
from ..data.parquet import read_batches
from ..data.rows import PARQUET_SUFFIX, NumberedRow, number_rows
from ..saved.whole_folder import name_full_disk

WRITTEN_SUFFIXES = (".jsonl", ".csv", ".tsv", PARQUET_SUFFIX)
GROUP_BYTES = 1 << 26  # of a row group, into which small windows are joined
MAX_EXACT = 2**53  # up to which a float64 holds every integer

Types = Mapping[str, pa.DataType | None]  # of columns; None: JSON text
Write = Callable[[Sequence[Row], pa.Table | None], object]  # rows, and the same as they are in a Parquet file


class Window(NamedTuple):
    """Rows of one file that are predicted together; those of a Parquet file also as Arrow reads them."""

    file: Path
    rows: list[NumberedRow]
    table: pa.Table | None = None


class Counts(NamedTuple):
    """The numbers of rows with a prediction, of those without, of truncated texts, and of outputs that are cut or
    without the records that were asked for."""

    rows: int
    bad_rows: int
    truncated: int
    cut: int
    without_records: int


FLAGS = ("is_truncated", "is_cut", "lacks_records")
"""The columns of a part that are counted, in the order of `Counts`: whether the text was truncated, and whether the
output is cut or lacks the records that were asked for."""


class CsvStyle(NamedTuple):
    """How CSV files are written: what separates their fields, and whether they start with a byte order mark."""

    delimiter: str = ","
    has_mark: bool = False


def find_csv_style(files: Sequence[Path], delimiters: Sequence[str]) -> CsvStyle:
    """That of the CSV files among these, if all have the same, else the usual one."""
    pairs = zip(files, delimiters, strict=True)
    found = {CsvStyle(delimiter, has_mark(file)) for file, delimiter in pairs if data_suffix(file) == ".csv"}
    return found.pop() if len(found) == 1 else CsvStyle()


def read_windows(files: Sequence[Path], delimiters: Sequence[str], size: int) -> Iterator[Window]:
    """The rows of all files, at most `size` at a time; in a Parquet file, the line of a row is its number.

    Raises:
        DataFileError: a file cannot be read at all, or two of its columns have one name.
    """
    for file, delimiter in zip(files, delimiters, strict=True):
        if data_suffix(file) == PARQUET_SUFFIX:
            line = 1
            for batch, rows in read_batches(file, size):
                yield Window(file, list(enumerate(rows, line)), pa.Table.from_batches([batch]))
                line += len(rows)
        else:
            records = number_rows(file, delimiter)
            while window := list(islice(records, size)):
                yield Window(file, window)


def find_types(files: Sequence[Path], rows: Iterable[Row], size: int) -> Types:
    """The type of each column in a Parquet file: that of the files that are read, where all are Parquet and agree;
    else one that holds the values of these rows, of which `size` are in memory."""
    large: set[str] = set()  # columns with integers that floats would round

    def note_large(rows: Iterable[Row]) -> Iterator[Row]:
        for row in rows:
            large.update(name for name, value in row.items() if isinstance(value, int) and abs(value) > MAX_EXACT)
            yield row

    inferred = dict(Columns(note_large(rows), size=size).types)
    inferred |= {name: None for name in large if (kind := inferred[name]) and pa.types.is_floating(kind)}
    if any(data_suffix(file) != PARQUET_SUFFIX for file in files):
        return inferred
    fields = [field for file in files for field in pq.read_schema(file)]
    found = {name: {field.type for field in fields if field.name == name} for name in inferred}
    return {name: kinds.pop() if len(kinds) == 1 else inferred[name] for name, kinds in found.items()}


def pair_parts(
    windows: Iterable[Window], parts: Sequence[Path]
) -> Iterator[tuple[Window, list[Row | None], pa.Table]]:
    """Each window, its rows with their new columns (None: without a prediction), and its part."""
    for window, path in zip(windows, parts, strict=True):
        part = pq.read_table(path, partitioning=None)
        pairs = zip(window.rows, part["new"].to_pylist(), strict=True)
        yield window, [None if new is None or isinstance(row, str) else row | new for (_, row), new in pairs], part


def name_bad_file(output: Path) -> Path:
    """The file of the rows without a prediction."""
    return output.with_name(f"{output.name}.bad.jsonl")


def write_output(
    windows: Iterable[Window], parts: Sequence[Path], output: Path, types: Types, style: CsvStyle
) -> Counts:
    """Writes the rows with predictions, and those without to `name_bad_file`, as JSON lines; each file as a whole.

    Args:
        parts: those of all windows, in their order.
        types: of all columns, the new ones last.
        style: of a CSV file.
    """
    total = num_bad = 0
    counts: Counter[str] = Counter()
    open_output = _open_parquet if data_suffix(output) == PARQUET_SUFFIX else _open_text
    with write_whole(name_bad_file(output)) as bad, open_output(output, types, style) as write:
        for window, outcomes, part in pair_parts(windows, parts):
            for (line, row), outcome, reason in zip(window.rows, outcomes, part["reason"].to_pylist(), strict=True):
                if outcome is None:
                    place = {"file": str(window.file), "line": line, "reason": reason}
                    text = to_json(place if isinstance(row, str) else place | {"row": row})
                    bad.write(f"{text}\n".encode(errors="backslashreplace"))  # the file's name may be no Unicode
            rows = [row for row in outcomes if row is not None]
            write(rows, _select(window.table, [row is not None for row in outcomes]))
            total, num_bad = total + len(rows), num_bad + len(outcomes) - len(rows)
            counts.update({name: sum(part[name].to_pylist()) for name in FLAGS})
    return Counts(total, num_bad, *map(counts.__getitem__, FLAGS))


def _select(table: pa.Table | None, is_wanted: Sequence[bool]) -> pa.Table | None:
    """The wanted rows; in slices, as Arrow cannot filter columns of some types."""
    if table is None:
        return None
    runs = [list(run) for wanted, run in groupby(range(len(table)), is_wanted.__getitem__) if wanted]
    return pa.concat_tables([table.slice(0, 0), *(table.slice(run[0], len(run)) for run in runs)])


@contextmanager
def _open_text(output: Path, types: Types, style: CsvStyle) -> Iterator[Write]:
    names, delimiter = list(types), {".csv": style.delimiter, ".tsv": "\t"}.get(data_suffix(output))
    is_compressed = output.suffix.lower() == ".gz"
    with (
        write_whole(output) as file,
        gzip.GzipFile("", "wb", 9, file, 0) if is_compressed else nullcontext(file) as to,
    ):
        if delimiter is not None:
            to.write(codecs.BOM_UTF8 if style.has_mark and data_suffix(output) == ".csv" else b"")
            to.write(_format_rows([dict(zip(names, names, strict=True))], names, delimiter))
        yield lambda rows, _: to.write(_format_rows(rows, names, delimiter))


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
        cells = [_encode_bytes(cell) if isinstance(cell, bytes) else cell for cell in cells]
        fields = [to_json(cell) if isinstance(cell, list | dict) else cell for cell in cells]
        has_return = any(isinstance(field, str) and "\r" in field for field in fields)
        (quoted if has_return else plain).writerow(fields)
    return text.getvalue().encode()


@contextmanager
def _open_parquet(output: Path, types: Types, _: CsvStyle) -> Iterator[Write]:
    """Writes several small windows as one row group."""
    schema = pa.schema([(name, kind or pa.string()) for name, kind in types.items()])
    waiting: list[pa.Table] = []

    def write(rows: Sequence[Row], table: pa.Table | None) -> None:
        known = {} if table is None else dict(zip(table.column_names, table.columns, strict=True))
        columns = [
            known[name] if name in known and known[name].type == kind else _to_arrow(rows, name, kind)
            for name, kind in types.items()
        ]
        waiting.append(pa.table(columns, schema))
        if sum(each.nbytes for each in waiting) >= GROUP_BYTES:
            flush()

    def flush() -> None:
        writer.write_table(pa.concat_tables(waiting))
        waiting.clear()

    with write_whole(output) as file, pq.ParquetWriter(file, schema) as writer:
        yield write
        if waiting:
            flush()


def _to_arrow(rows: Sequence[Row], name: str, kind: pa.DataType | None) -> pa.Array:
    """A column of values; as JSON text if there is no type for them."""
    values = [row.get(name) for row in rows]
    if kind is None:
        return pa.array([None if value is None else to_json(value) for value in values], pa.string())
    return pa.array(values, kind)


def to_json(value: object) -> str:
    """A value as JSON: bytes in base64; null for numbers that are not finite, which JSON lacks."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_encode_bytes)
    except ValueError:
        finite = json.loads(json.dumps(value, default=_encode_bytes), parse_constant=lambda name: None)
        return json.dumps(finite, ensure_ascii=False)


def _encode_bytes(data: bytes) -> str:
    return base64.b64encode(data).decode()


def write_json_lines(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    """Writes an object a line, as a whole file."""
    with write_whole(path) as file:
        for row in rows:
            line = json.dumps(row, ensure_ascii=False) + "\n"
            file.write(line.encode(errors="backslashreplace"))  # a vocabulary may hold lone surrogates


@contextmanager
def write_whole(path: Path) -> Iterator[BinaryIO]:
    """A file that gets its name when the block has ended and its contents are on the disk; its folder is created.

    Raises:
        OSError: it cannot be written, and what was is removed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.unfinished")
    try:
        with name_full_disk(path), unfinished.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)  # of an error
