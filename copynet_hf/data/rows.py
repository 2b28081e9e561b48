"""The rows of a file in any format, each with its line, or with the reason why it cannot be read.

Python's own parsers read tables and JSON. Arrow's and those of `datasets` fail at a row whose types differ from those
before it, do not know the lines of the rows, and take what follows an unclosed quote for the rest of its field.
"""

from __future__ import annotations

import csv
import io
import json
import logging
import re
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from .files import DataFileError, NumberedRow, Row, data_suffix, is_unicode, open_text, show_path
from .lcsts import read_lcsts
from .parquet import read_batches

logger = logging.getLogger(__name__)

# The files of the SIGMORPHON shared tasks on inflection, from 2017 on, and their columns in all years but 2023.
INFLECTION_SUFFIXES = (".train", ".trn", ".dev", ".test", ".tst", ".gold")
TABLE_SUFFIXES = (".csv", ".tsv", *INFLECTION_SUFFIXES)
LCSTS_SUFFIX, PARQUET_SUFFIX = ".txt", ".parquet"
SUFFIXES = (".jsonl", ".json", *TABLE_SUFFIXES, PARQUET_SUFFIX, LCSTS_SUFFIX)
INFLECTION_COLUMNS = ("lemma", "form", "features")

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}  # of .csv, the most usual first
MAX_RECORD_SIZE = 1 << 24  # characters, of a CSV record that spans several lines
INVALID = "not valid CSV (a quote is not closed, or followed by text)"
UNDECODABLE = "bytes that do not decode as UTF-8 (iconv -f cp1252 -t utf-8 converts a file from Windows)"
_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?\r?\n')  # the first line of a file for Excel


def number_rows(
    path: Path,
    delimiter: str,
    column_names: Sequence[str] | None = None,
    *,
    file_format: str | None = None,
    min_score: int = 3,
    encoding: str | None = None,
) -> Iterator[NumberedRow]:
    """Number, see `find_unit`, and row of every record, or why it cannot be read.

    Args:
        delimiter: of the fields of a CSV or TSV file; see `find_delimiter`.
        column_names: the columns of a CSV or TSV file without a header. None: it has one, unless it is a file of a
            shared task on inflection.
        file_format: its suffix; None: the one of its name.
        min_score, encoding: of LCSTS, see `load_lcsts`.

    Raises:
        DataFileError: a header, a list or a Parquet file that is not valid, an object over several lines of .json, or
            damaged compression.
    """
    suffix = file_format or data_suffix(path)
    if suffix == LCSTS_SUFFIX:
        return read_lcsts(path, min_score, encoding)
    if suffix == PARQUET_SUFFIX:
        return enumerate(chain.from_iterable(rows for _, rows in read_batches(path, 1000)), 1)
    if suffix not in TABLE_SUFFIXES:
        return _json_rows(path)
    if suffix in INFLECTION_SUFFIXES and column_names is None:
        column_names = INFLECTION_COLUMNS
    return _table_rows(path, column_names, delimiter)


def find_unit(path: Path, file_format: str | None = None) -> str:
    """What the numbers of `number_rows` count: the lines of a file, its rows or the elements of its list."""
    suffix = file_format or data_suffix(path)
    return "row" if suffix == PARQUET_SUFFIX else "element" if _holds_list(path) else "line"


def _holds_list(path: Path) -> bool:
    """Whether a .json file holds one list, not an object a line."""
    if data_suffix(path) != ".json":
        return False
    with open_text(path) as file:
        return file.read(1024).lstrip("\ufeff \t\r\n").startswith("[")


def find_delimiter(path: Path, given: str | None = None) -> str:
    r"""The delimiter of a CSV or TSV file: the given one, where `\t` is a tab; else a tab, or for .csv that of a first
    line `sep=;`, or the one that gives most of the first records as many fields as the header, which is logged unless
    it is a comma."""
    if given is not None:
        given = given.replace("\\t", "\t")
        if len(given) != 1 or given in '"\r\n':
            raise ValueError(f"--delimiter is {given!r}: use one character, such as ';'")
        return given
    if data_suffix(path) != ".csv":
        return "\t"
    with open_text(path, newline="") as file:
        start = file.read(1 << 16)
    if match := _SEPARATOR_LINE.match(start):
        return match[1]
    best, found = (0.0, 0), ","
    for delimiter in DELIMITERS:
        header, *others = [len(fields) for fields in csv.reader(io.StringIO(start, ""), delimiter=delimiter)] or [0]
        score = ((1 + others.count(header)) / (1 + len(others)), header)
        if header > 1 and score > best:
            best, found = score, delimiter
    if found != ",":
        logger.info("%s: fields are separated by %s (--delimiter sets another)", show_path(path), DELIMITERS[found])
    return found


def _json_rows(path: Path) -> Iterator[NumberedRow]:
    """The object of each line, or of each element if the file holds one list."""
    is_list = _holds_list(path)
    with open_text(path, newline="\n") as file:
        if is_list:
            try:
                elements = _parse_json(file.read())
            except ValueError as error:
                raise DataFileError(f"{show_path(path)}: {error}") from None
            yield from ((number, _check_row(element)) for number, element in enumerate(elements, 1))
            return
        for number, line in enumerate(file, 1):
            content = line.strip("\ufeff \t\r\n")
            if content:
                if content == "{" and data_suffix(path) == ".json":
                    raise DataFileError(
                        f"{show_path(path)}: line {number} begins an object of several lines: write a list of "
                        "objects, or one object on each line"
                    )
                try:
                    row = _check_row(_parse_json(content))
                except ValueError as error:
                    row = str(error)
                yield number, row


def _parse_json(text: str) -> Any:
    """The value of a JSON text; raises ValueError with the reason why there is none."""
    if not is_unicode(text):
        raise ValueError(UNDECODABLE)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"not valid JSON ({error.msg})") from None
    except ValueError:  # sys.get_int_max_str_digits
        raise ValueError("an integer of too many digits") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _check_row(row: object) -> Row | str:
    """The row, or the reason why it cannot be used."""
    if not isinstance(row, dict):
        return f"of type {type(row).__name__}, not an object"
    try:
        # An escape such as \ud800 is valid JSON, but cannot be encoded.
        return row if is_unicode(json.dumps(row, ensure_ascii=False)) else "not valid Unicode"
    except RecursionError:
        return "nested too deeply"


def _table_rows(path: Path, column_names: Sequence[str] | None, delimiter: str) -> Iterator[NumberedRow]:
    """The rows as dicts from the names of the header, or `column_names`, to strings."""
    with open_text(path, newline="") as file:
        first = next(file, "")
        try:
            is_json = isinstance(_parse_json(first), dict)
        except ValueError:
            is_json = False
        if is_json:
            raise DataFileError(f"{show_path(path)}: the first line is JSON: name the file .jsonl")
        records = _read_records(chain([first], file), delimiter)
        header = column_names or _read_header(path, records, delimiter)
        of_header = "there are" if column_names else "the header has"
        if len(set(header)) < len(header):
            names = "--column_names" if column_names else f"{show_path(path)}: the header"
            raise DataFileError(f"{names} names a column twice: {', '.join(header)}")
        for line, fields in records:
            if fields is None:
                yield line, INVALID
            elif not any(fields) and (len(header) > 1 or not fields):
                continue  # an empty line, or delimiters alone, as spreadsheets write them
            elif len(fields) == len(header):
                is_valid = all(map(is_unicode, fields))
                yield line, dict(zip(header, fields, strict=True)) if is_valid else UNDECODABLE
            else:
                found = f"{len(fields)} field" + "s" * (len(fields) > 1)
                yield line, f"{found}, {of_header} {len(header)}{' columns' if column_names else ''}"


def _read_header(path: Path, records: Iterator[tuple[int, list[str] | None]], delimiter: str) -> list[str]:
    """The names of the columns. Where several have none, as in a spreadsheet that is wider than its header, they get
    those that pandas gives them."""
    _, header = next(records, (1, []))
    if header and "".join(header).rstrip(delimiter) == "sep=":  # a line for Excel, which names the delimiter
        _, header = next(records, (2, []))
    if header is None or not all(map(is_unicode, header)):
        raise DataFileError(f"{show_path(path)}: the header is {INVALID if header is None else UNDECODABLE}")
    if not header:
        raise DataFileError(f"{show_path(path)}: the first line is empty: begin the file with its header, or rows")
    if any("\0" in name for name in header):
        raise DataFileError(f"{show_path(path)}: the header holds NUL characters: save the file as UTF-8")
    if header.count("") > 1:
        header = [name or f"Unnamed: {index}" for index, name in enumerate(header)]
    return header


def _read_records(file: Iterator[str], delimiter: str) -> Iterator[tuple[int, list[str] | None]]:
    """The line number and the fields of each record.

    Where a quote is not closed, or followed by text, only the line that opens it is lost: its fields are None. Between
    tabs a quote may also be a character of the text, as many TSV files quote nothing. It is one where the quotes are
    not valid, and where the first and the last line of the record are complete records by themselves.
    """
    pending: deque[str] = deque()  # lines that are read again
    number, num_tabs = 1, -1
    while True:
        record: list[str] = []
        limit = csv.field_size_limit(MAX_RECORD_SIZE)  # of the process, by default 131,072
        try:
            fields = next(csv.reader(_take_lines(file, pending, record), delimiter=delimiter, strict=True), [])
            is_valid = len(record) < 2 or any(line.count("\t") != num_tabs for line in (record[0], record[-1]))
        except csv.Error:
            fields, is_valid = None, False
        finally:
            csv.field_size_limit(limit)
        if not record:
            return
        if fields is None or (delimiter == "\t" and not is_valid):
            pending.extendleft(reversed(record[1:]))
            del record[1:]
            fields = record[0].rstrip("\r\n").split("\t") if delimiter == "\t" else None
        if number == 1 and fields:
            num_tabs = len(fields) - 1
        yield number, fields
        number += len(record)


def _take_lines(file: Iterator[str], pending: deque[str], taken: list[str]) -> Iterator[str]:
    """The next lines, which are added to `taken`. They end at `MAX_RECORD_SIZE`: an unclosed quote takes no more."""
    size = 0
    while size < MAX_RECORD_SIZE and (line := pending.popleft() if pending else next(file, "")):
        taken.append(line)
        size += len(line)
        yield line
