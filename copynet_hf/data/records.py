"""Base of the readers: one file becomes one split, and malformed records are skipped, counted and named."""

from __future__ import annotations

import codecs
import difflib
import gzip
import io
import logging
import os
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, TextIO, TypeAlias

import datasets
import pyarrow as pa
from datasets.data_files import DataFilesDict, DataFilesList
from datasets.exceptions import DatasetGenerationError
from datasets.fingerprint import Hasher

logger = logging.getLogger(__name__)
_parquet_logger = logging.getLogger("datasets.packaged_modules.parquet.parquet")

FilePath: TypeAlias = str | os.PathLike[str]
AnyDataset: TypeAlias = datasets.Dataset | datasets.IterableDataset


class DataFileError(ValueError):
    """A data file that cannot be used at all; the message names it."""


@dataclass
class SkippedRecords:
    """The malformed records of one file: their number, and line and reason of the first five."""

    path: Path
    count: int = 0
    first: list[tuple[int, str]] = field(default_factory=list)

    def add(self, line: int, reason: str) -> None:
        self.count += 1
        if len(self.first) < 5:
            self.first.append((line, reason))

    def __str__(self) -> str:
        named = "; ".join(f"line {line}: {reason}" for line, reason in self.first)
        more = "; ..." if self.count > len(self.first) else ""
        records = "record" if self.count == 1 else "records"
        return f"{self.path}: skipped {self.count} malformed {records} ({named}{more})"

    def empty_error(self) -> DataFileError:
        """The error for a file without a usable record."""
        if not self.count:
            return DataFileError(f"{self.path}: the file holds no record")
        return DataFileError(f"{self}: no record is left")


class RecordsBuilder(datasets.GeneratorBasedBuilder):
    """A `datasets` builder of one file; subclasses implement `records`.

    The report of the skipped records is kept in `info.description`, and so in the cache.
    """

    # Part of the cache key: increase it when a change of the code changes the examples of a file.
    VERSION = datasets.Version("1.4.0")

    def records(self, path: Path, skipped: SkippedRecords) -> Iterator[dict[str, Any]]:
        """The examples of `path`; malformed records are added to `skipped`."""
        raise NotImplementedError

    def _info(self) -> datasets.DatasetInfo:
        return datasets.DatasetInfo()

    def _split_generators(self, dl_manager: datasets.DownloadManager) -> list[datasets.SplitGenerator]:
        return [
            datasets.SplitGenerator(name=split, gen_kwargs={"paths": list(paths)})
            for split, paths in self.config.data_files.items()
        ]

    def _generate_examples(self, paths: list[str]) -> Iterator[tuple[int, dict[str, Any]]]:
        for path in paths:
            skipped = SkippedRecords(Path(path))
            count = 0
            try:
                for record in self.records(Path(path), skipped):
                    yield count, record
                    count += 1
            finally:  # also where a stream is read only in part
                if count and skipped.count and self.info.description != str(skipped):  # a stream is read repeatedly
                    self.info.description = str(skipped)
                    logger.warning("%s", skipped)
            if not count:
                raise skipped.empty_error()


def build_split(
    builder_class: type[datasets.DatasetBuilder],
    path: FilePath,
    split: str,
    *,
    streaming: bool = False,
    **options: Any,
) -> AnyDataset:
    """The dataset of one file, from the cache if the same contents were read before.

    Raises:
        FileNotFoundError: no such file.
        DataFileError: no usable record (when streaming, raised by the first iteration).
    """
    file = resolve_file(path)
    # Built here because `datasets` takes "[" and "*" in a path for a pattern, and keys its cache on the modification
    # time, which copying can preserve.
    key = "" if streaming else hash_contents(file)
    data_files = DataFilesDict({split: DataFilesList([str(file)], [(key,)])})
    builder = builder_class(data_files=data_files, **options)
    if streaming:
        with name_in_errors(file):
            return builder.as_streaming_dataset(split=split)
    is_cached = builder.info.splits is not None
    with name_in_errors(file):
        builder.download_and_prepare()
    if not builder.info.splits[split].num_examples:
        raise SkippedRecords(file).empty_error()
    if is_cached and builder.info.description:
        logger.warning("%s", builder.info.description)
    return builder.as_dataset(split=split)


@contextmanager
def name_in_errors(name: FilePath) -> Iterator[None]:
    """Turns errors of `datasets` and Arrow, which do not name the file, into `DataFileError`, and silences the lines
    that `datasets` logs about them."""

    def mute(record: logging.LogRecord) -> bool:  # one filter for each use: those of two streams overlap
        return False

    _parquet_logger.addFilter(mute)
    try:
        yield
    except (DatasetGenerationError, pa.ArrowException, OSError) as error:
        if isinstance(error.__cause__, DataFileError):
            raise error.__cause__ from None
        raise DataFileError(f"{name}: cannot be read ({error.__cause__ or error})") from error
    finally:
        _parquet_logger.removeFilter(mute)


def resolve_file(path: FilePath) -> Path:
    """The absolute path of a file.

    Raises:
        FileNotFoundError: no such file.
        DataFileError: a folder, or an empty file.
    """
    file = Path(path).expanduser().absolute()
    if file.is_dir():
        raise DataFileError(f"{file} is a folder: pass a file")
    if not file.is_file():
        raise FileNotFoundError(f"{file}: no such file")
    if file.stat().st_size == 0:
        raise DataFileError(f"{file}: the file is empty")
    return file


def describe_missing_column(name: str, columns: Collection[str]) -> str:
    """The error for a name that no column has: with the nearest name, and spaces that are easily overlooked."""
    by_key = {column.strip().lower(): column for column in columns}
    hint = ""
    for key in difflib.get_close_matches(name.strip().lower(), by_key, 1):
        column = by_key[key]
        sides = [side for side, letter in (("start", column[:1]), ("end", column[-1:])) if letter.isspace()]
        hint = f"; did you mean {column!r}" + (f" (with a space at its {' and '.join(sides)})?" if sides else "?")
    return f"no column {name!r}{hint}{' The' if hint else '; the'} columns are {', '.join(map(repr, columns))}"


def hash_contents(path: Path) -> str:
    """A hash of the file's bytes, which are read in chunks of 1 MiB."""
    with path.open("rb") as file:
        chunks = iter(lambda: file.read(1 << 20), b"")
        return Hasher.hash_bytes(chunks)


def data_suffix(path: FilePath) -> str:
    """The suffix that names the format, in lower case: `.csv` for `a.CSV` and `a.csv.gz`."""
    name = Path(path).name.lower()
    return Path(name.removesuffix(".gz")).suffix


@contextmanager
def open_binary(path: Path) -> Iterator[BinaryIO]:
    """The bytes of a file, decompressed if its name ends in `.gz`.

    Raises:
        DataFileError: damaged compression, also while the file is read.
    """
    try:
        with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
            yield file  # type: ignore[misc]
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataFileError(f"{path}: not a complete gzip file ({error})") from None


@contextmanager
def open_text(path: Path, encoding: str | None = None, newline: str | None = None) -> Iterator[TextIO]:
    """The text of a file without its byte order mark. Bytes that do not decode become lone surrogates.

    Args:
        encoding: by default UTF-16 after its byte order mark, else UTF-8.
        newline: as in `open`.
    """
    with open_binary(path) as file:
        if encoding is None:
            encoding = "utf-16" if has_utf16_mark(file) else "utf-8-sig"
        yield io.TextIOWrapper(file, encoding, _LONE_SURROGATES, newline)


def has_utf16_mark(file: BinaryIO) -> bool:
    """Whether a file starts with the byte order mark of UTF-16."""
    start = file.read(2)
    file.seek(0)
    return start in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


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
