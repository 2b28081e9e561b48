"""Tables of any size for `copynet-hf predict`: JSON, CSV, TSV and Parquet files as one sequence of records."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from .pairs import KEY_NAMES, TEXT_NAMES, Columns, find_usual_name, unify_types
from .records import DataFileError, data_suffix, resolve_file
from .rows import number_rows

PARTS_SUFFIX = ".parts"  # of the folder in which an output is written
READ_SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".parquet")
_BATCH_SIZE = 1024  # rows of a Parquet file that are read at once


class Record(NamedTuple):
    """A row with its file and its line (in a Parquet file its number), counted from 1; or why it cannot be read."""

    file: Path
    line: int
    row: dict[str, Any] | str


@dataclass
class Tables:
    """Files that are read as one table.

    Attributes:
        counts: the number of records of each file, malformed ones included.
        types: the Arrow type of each column; None for a mix of types, which is written as JSON text where columns
            have types.
        strings: the columns that hold strings.
    """

    files: list[Path]
    counts: list[int]
    types: dict[str, pa.DataType | None]
    strings: list[str]

    @property
    def num_records(self) -> int:
        return sum(self.counts)

    def read(self, start: int = 0) -> Iterator[Record]:
        """The records in the order of the files, without the first `start`."""
        for file, count in zip(self.files, self.counts, strict=True):
            if start < count:
                for line, row in islice(_number_rows(file), start, None):
                    yield Record(file, line, row)
            start = max(start - count, 0)


def find_files(paths: Sequence[str]) -> list[Path]:
    """The files that the paths name: files, folders (with those below them) and patterns such as `part-*.jsonl`.

    Files of a folder or pattern are sorted by name. In a folder, files of other formats, hidden ones and the parts of
    an unfinished output are left out.

    Raises:
        FileNotFoundError: no such file, or none that matches.
        DataFileError: a file of another format, or an empty one.
    """
    files: list[Path] = []
    for path in paths:
        given = Path(path).expanduser()
        if given.is_dir():
            below = sorted(each for each in given.rglob("*") if each.is_file() and _is_visible(each, given))
            found = [each for each in below if data_suffix(each) in READ_SUFFIXES and each.stat().st_size]
            if not found:
                raise FileNotFoundError(f"{path} holds no file that ends in {', '.join(READ_SUFFIXES)}")
        elif not given.exists() and (matches := sorted(_match(given))):
            found = [Path(match) for match in matches if Path(match).is_file()]
        else:
            found = [given]
        for file in found:
            if data_suffix(file) not in READ_SUFFIXES:
                raise DataFileError(f"{file}: the name must end in {', '.join(READ_SUFFIXES)}, or these with .gz")
        files += [resolve_file(file) for file in found]
    return files


def _match(pattern: Path) -> list[str]:
    return glob.glob(str(pattern), recursive=True)  # noqa: PTH207 - Path.glob takes no absolute pattern


def _is_visible(file: Path, folder: Path) -> bool:
    names = file.relative_to(folder).parts
    return not any(name.startswith((".", "_")) or name.endswith(PARTS_SUFFIX) for name in names)


def scan_tables(files: Sequence[Path]) -> Tables:
    """Counts the records and finds the columns, in constant memory; of Parquet files only the metadata is read.

    Raises:
        DataFileError: a file that cannot be read at all, or no record in any of them.
    """
    counts: list[int] = []
    types: dict[str, pa.DataType | None] = {}
    strings: list[str] = []
    for file in files:
        if data_suffix(file) == ".parquet":
            with _open_parquet(file) as table:
                counts.append(table.metadata.num_rows)
                schema = table.schema_arrow
            of_file: dict[str, pa.DataType | None] = dict(zip(schema.names, schema.types, strict=True))
            named = [name for name, kind in of_file.items() if _is_string(kind)]
        else:
            counts.append(0)
            columns = Columns(_count_into(counts, _number_rows(file)))
            of_file, named = columns.types, columns.strings
        types |= {name: unify_types(types[name], kind) if name in types else kind for name, kind in of_file.items()}
        strings += [name for name in named if name not in strings]
    if not sum(counts):
        raise DataFileError(f"{', '.join(map(str, files))}: no record: give a file with rows")
    return Tables(list(files), counts, types, strings)


def _is_string(kind: pa.DataType) -> bool:
    """Whether values are strings, also those of pandas' categories."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return kind in (pa.string(), pa.large_string(), pa.string_view())


def choose_text_column(tables: Tables, given: str | None) -> str:
    """The given column, else the one with a usual name for a source, else the only column of strings.

    Raises:
        ValueError: no such column, or none that can be guessed.
    """
    if given is not None:
        if given not in tables.types:
            raise ValueError(f"no column {given!r}; the columns are {', '.join(tables.types)}")
        return given
    candidates = [name for name in tables.strings if name.lower() not in KEY_NAMES]
    name = find_usual_name(candidates, TEXT_NAMES) or (candidates[0] if len(candidates) == 1 else None)
    if name is None:
        columns = (
            f"could be any of the columns {', '.join(candidates)}" if candidates else "is in no column of strings"
        )
        raise ValueError(f"the text {columns}: name the right one with --text_column")
    return name


def _count_into(counts: list[int], rows: Iterable[tuple[int, dict[str, Any] | str]]) -> Iterator[dict[str, Any]]:
    """The readable rows; the last count grows with each row, malformed ones included."""
    for _, row in rows:
        counts[-1] += 1
        if isinstance(row, dict):
            yield row


def _number_rows(file: Path) -> Iterator[tuple[int, dict[str, Any] | str]]:
    """Line number and row of each record of a file, or why it cannot be used."""
    if data_suffix(file) != ".parquet":
        yield from number_rows(file)
        return
    with _open_parquet(file) as table:
        rows = (row for batch in table.iter_batches(_BATCH_SIZE) for row in batch.to_pylist())
        yield from enumerate(rows, 1)


@contextmanager
def _open_parquet(file: Path) -> Iterator[pq.ParquetFile]:
    """
    Raises:
        DataFileError: the file is damaged, also while it is read.
    """
    try:
        with pq.ParquetFile(file) as table:
            yield table
    except (pa.ArrowException, OSError) as error:
        raise DataFileError(f"{file}: cannot be read ({error})") from error
