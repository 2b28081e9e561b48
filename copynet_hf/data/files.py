"""Data files: their bytes and texts, and the malformed rows that are skipped, counted and named."""

from __future__ import annotations

import codecs
import gzip
import io
import logging
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, TextIO, TypeAlias

logger = logging.getLogger(__name__)

FilePath: TypeAlias = str | os.PathLike[str]
Row: TypeAlias = dict[str, Any]
NumberedRow: TypeAlias = tuple[int, Row | str]  # number, see `rows.find_unit`, and row or why it cannot be used


class DataFileError(ValueError):
    """A data file that cannot be used at all; the message names it."""


MANY_SKIPPED = 20  # rows; if more are malformed, and more than half of a file, it is not read


@dataclass
class SkippedRows:
    """The malformed rows of one file: their number, and place and reason of the first five.

    unit: what the places count, see `rows.find_unit`.
    """

    path: Path
    unit: str = "line"
    count: int = 0
    first: list[tuple[int, str]] = field(default_factory=list)

    def add(self, place: int, reason: str) -> None:
        self.count += 1
        if len(self.first) < 5:
            self.first.append((place, reason))

    def __str__(self) -> str:
        places: dict[str, list[str]] = {}
        for place, reason in self.first:
            places.setdefault(reason, []).append(str(place))
        named = "; ".join(
            f"{self.unit}{'s' * (len(found) > 1)} {', '.join(found)}: {reason}" for reason, found in places.items()
        )
        more = "; ..." if self.count > len(self.first) else ""
        rows = "row" if self.count == 1 else "rows"
        return f"skipped {self.count} malformed {rows} ({named}{more})"

    def error(self, count: int = 0) -> DataFileError:
        """The error for a file with so few usable rows."""
        left = f"only {count:,} left" if count else "no row is left"
        return DataFileError(f"{show_path(self.path)}: {f'{self}: {left}' if self.count else 'the file holds no row'}")


def resolve_file(path: FilePath) -> Path:
    """The absolute path of a file."""
    file = Path(path).expanduser().absolute()
    if file.is_dir():
        raise DataFileError(f"{file} is a folder: pass a file")
    if not file.is_file():
        raise FileNotFoundError(f"{file}: no such file")
    if file.stat().st_size == 0:
        raise DataFileError(f"{file}: the file is empty")
    return file


def show_path(path: FilePath) -> str:
    """The path as a message names it: relative to the working directory if it is below it."""
    path = Path(path)
    with suppress(OSError):  # the working directory was removed
        if path.is_relative_to(folder := Path.cwd()):
            return str(path.relative_to(folder))
    return str(path)


def data_suffix(path: FilePath) -> str:
    """The suffix that names the format, in lower case: `.csv` for `a.CSV` and `a.csv.gz`."""
    name = Path(path).name.lower()
    return Path(name.removesuffix(".gz")).suffix


_SHEETS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")
_ZIP_START = b"PK\x03\x04"
_AS_CSV = "save the sheet as CSV (UTF-8)"


def wrong_format(path: FilePath, suffixes: Sequence[str]) -> DataFileError:
    """The error for a file whose name has none of these suffixes."""
    hint = f": {_AS_CSV}" if data_suffix(path) in _SHEETS else ""
    expected = ", ".join(suffixes)
    return DataFileError(f"{path}: the name must end in one of {expected}, with .gz if it is compressed{hint}")


@contextmanager
def open_binary(path: Path) -> Iterator[BinaryIO]:
    """The bytes of a file, decompressed if its name ends in `.gz`."""
    try:
        with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
            yield file  # type: ignore[misc]
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataFileError(f"{show_path(path)}: not a complete gzip file ({error})") from None


@contextmanager
def open_text(path: Path, encoding: str | None = None, newline: str | None = None) -> Iterator[TextIO]:
    """The text of a file without its byte order mark. Bytes that do not decode become lone surrogates.

    Args:
        encoding: by default UTF-16 after its byte order mark, else UTF-8.
        newline: as in `open`.
    """
    with open_binary(path) as file:
        if file.read(4) == _ZIP_START:
            raise DataFileError(f"{show_path(path)}: a zip archive, as of Excel: {_AS_CSV}")
        file.seek(0)
        if encoding is None:
            encoding = "utf-16" if has_utf16_mark(file) else "utf-8-sig"
        yield io.TextIOWrapper(file, encoding, _LONE_SURROGATES, newline)


def has_utf16_mark(file: BinaryIO) -> bool:
    """Whether a file starts with the byte order mark of UTF-16."""
    start = file.read(2)
    file.seek(0)
    return start in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def has_mark(path: Path) -> bool:
    """Whether a file starts with a byte order mark, without which Excel takes UTF-8 for another encoding."""
    with open_binary(path) as file:
        return has_utf16_mark(file) or file.read(3) == codecs.BOM_UTF8


# As `surrogateescape`, which does not work for the ASCII bytes of a damaged UTF-16 character.
_LONE_SURROGATES = "copynet_hf.lone_surrogates"
codecs.register_error(_LONE_SURROGATES, lambda error: ("\udcff", error.end))  # type: ignore[attr-defined]


def is_unicode(text: str) -> bool:
    """Whether the text can be encoded; bytes that did not decode are lone surrogates, which cannot."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


@cache
def warn_once(message: str) -> None:
    """Logs once what is found repeatedly, as in each pass through a stream."""
    logger.warning("%s", message)
