"""The rows of JSON lines, JSON, CSV and TSV files.

They are read here because the readers of `datasets` fail at a malformed line, and at a row whose types differ from
those of the first rows.
"""

from __future__ import annotations

import csv
import json
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO, TypeAlias

from .records import DataFileError, SkippedRecords, data_suffix, is_unicode, open_text

NumberedRow: TypeAlias = tuple[int, dict[str, Any] | str]  # line number, and the row or why it cannot be used
NumberedFields: TypeAlias = tuple[int, list[str] | str]  # line number, and the fields or why they cannot be read

# The files of the SIGMORPHON shared tasks on inflection, from 2017 on, and their columns.
INFLECTION_SUFFIXES = (".train", ".dev", ".test", ".gold")
TABLE_SUFFIXES = (".csv", ".tsv", *INFLECTION_SUFFIXES)
INFLECTION_COLUMNS = ("lemma", "form", "features")

UNDECODABLE = "bytes that do not decode"


def read_rows(
    path: Path, skipped: SkippedRecords, column_names: Sequence[str] | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number and row of every readable row of a JSON lines, JSON, CSV or TSV file; others are added to `skipped`.

    Args:
        column_names: the columns of a CSV or TSV file without a header. None: it has one, unless it is a file of a
            shared task on inflection.
    """
    for line, row in number_rows(path, column_names):
        if isinstance(row, dict):
            yield line, row
        else:
            skipped.add(line, row)


def number_rows(path: Path, column_names: Sequence[str] | None = None) -> Iterator[NumberedRow]:
    """Line number and row of every record, or why it cannot be read; the arguments are those of `read_rows`."""
    suffix = data_suffix(path)
    if suffix in INFLECTION_SUFFIXES and column_names is None:
        column_names = INFLECTION_COLUMNS
    return _csv_rows(path, column_names) if suffix in TABLE_SUFFIXES else _json_rows(path)


def _json_rows(path: Path) -> Iterator[NumberedRow]:
    """The object of each line, or of each element if the file holds one list."""
    with open_text(path, newline="\n") as file:
        start = file.read(1024).lstrip("\ufeff \t\r\n")
        file.seek(0)
        if data_suffix(path) == ".json" and start.startswith("["):
            yield from ((number, _check_row(element)) for number, element in enumerate(_read_list(path, file), 1))
            return
        for number, line in enumerate(file, 1):
            content = line.strip("\ufeff \t\r\n")
            if content:
                yield number, _parse_line(content)


def _read_list(path: Path, file: TextIO) -> list[Any]:
    text = file.read()
    if not is_unicode(text):
        raise DataFileError(f"{path}: not valid JSON ({UNDECODABLE})")
    try:
        return json.loads(text)
    except RecursionError:
        raise DataFileError(f"{path}: not valid JSON (nested too deeply)") from None
    except ValueError as error:
        raise DataFileError(f"{path}: not valid JSON ({error})") from None


def _parse_line(line: str) -> dict[str, Any] | str:
    """The object of a line, or the reason why it cannot be used."""
    if not is_unicode(line):
        return UNDECODABLE
    try:
        return _check_row(json.loads(line))
    except json.JSONDecodeError as error:
        return f"not valid JSON ({error.msg})"
    except ValueError:  # sys.get_int_max_str_digits
        return "an integer of too many digits"
    except RecursionError:
        return "nested too deeply"


def _check_row(row: Any) -> dict[str, Any] | str:
    """The row, or the reason why it cannot be used."""
    if not isinstance(row, dict):
        return f"a {type(row).__name__} rather than an object"
    try:
        # An escape such as \ud800 is valid JSON, but cannot be encoded.
        return row if is_unicode(json.dumps(row, ensure_ascii=False)) else "not valid Unicode"
    except RecursionError:
        return "nested too deeply"


def _csv_rows(path: Path, column_names: Sequence[str] | None) -> Iterator[NumberedRow]:
    """The rows as dicts from the names of the header, or `column_names`, to strings."""
    with open_text(path, newline="") as file:
        records = _read_csv(file) if data_suffix(path) == ".csv" else _read_tsv(file)
        first: NumberedFields = (1, list(column_names)) if column_names else next(records, (1, []))
        header, of_header = first[1], "there are" if column_names else "the header has"
        if isinstance(header, str):
            raise DataFileError(f"{path}: the header is {header}")
        if not all(map(is_unicode, header)):
            raise DataFileError(f"{path}: the header has {UNDECODABLE}")
        if len(set(header)) < len(header):
            raise DataFileError(f"{path}: the header names a column twice: {', '.join(header)}")
        for line, fields in records:
            if isinstance(fields, str):
                yield line, fields
            elif len(fields) == len(header):
                is_valid = all(map(is_unicode, fields))
                yield line, dict(zip(header, fields, strict=True)) if is_valid else UNDECODABLE
            elif fields:
                yield line, f"{len(fields)} fields, {of_header} {len(header)}{' columns' if column_names else ''}"


def _read_csv(file: Iterable[str]) -> Iterator[NumberedFields]:
    """The fields of each record. Where a quote is not closed properly, only the line that opens it is lost."""
    lines = _Lines(file)
    while True:
        number, fields, record = lines.number, *_read_record(lines, ",")
        if not record:
            return
        if fields is None:
            lines.put_back(record[1:])
        yield number, "not valid CSV (a quote is not closed, or followed by text)" if fields is None else fields


def _read_tsv(file: Iterable[str]) -> Iterator[NumberedFields]:
    """The fields of each record, where a quote may also be a character of the text: many TSV files quote nothing.

    A quote at the start of a field opens a quoted field if it is closed properly, and if the first and the last line
    of the record are not complete records by themselves.
    """
    lines = _Lines(file)
    num_tabs = None
    while True:
        number, fields, record = lines.number, *_read_record(lines, "\t")
        if not record:
            return
        spans_rows = len(record) > 1 and all(line.count("\t") == num_tabs for line in (record[0], record[-1]))
        if fields is None or spans_rows:
            lines.put_back(record[1:])
            fields = record[0].rstrip("\r\n").split("\t")
        if num_tabs is None:
            num_tabs = len(fields) - 1
        yield number, fields


class _Lines:
    """The lines of a file, some of which can be put back; `number` is the number of the next one."""

    def __init__(self, file: Iterable[str]) -> None:
        self.number = 1
        self._file = iter(file)
        self._pending: deque[str] = deque()

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._pending.popleft() if self._pending else next(self._file)
        self.number += 1
        return line

    def put_back(self, lines: list[str]) -> None:
        self._pending.extendleft(reversed(lines))
        self.number -= len(lines)


def _read_record(lines: _Lines, delimiter: str) -> tuple[list[str] | None, list[str]]:
    """The fields of the next record, None if it is not valid, and the lines that were read for it."""
    record: list[str] = []
    reader = csv.reader((record.append(line) or line for line in lines), delimiter=delimiter, strict=True)  # type: ignore[func-returns-value]
    limit = csv.field_size_limit(sys.maxsize)  # by default fields of more than 131,072 characters are errors
    try:
        return next(reader, None), record
    except csv.Error:
        return None, record
    finally:
        csv.field_size_limit(limit)
