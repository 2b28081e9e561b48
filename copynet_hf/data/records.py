"""What the readers of this folder share: one file becomes one split, bad records are counted and named."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
from datasets.data_files import DataFilesDict, DataFilesList
from datasets.exceptions import DatasetGenerationError
from datasets.fingerprint import Hasher

logger = logging.getLogger(__name__)

FilePath = str | os.PathLike[str]


class DataFileError(ValueError):
    """A data file that cannot be used at all; the message names it."""


@dataclass
class Skipped:
    """The records of one file that were left out, the first of them with line number and reason."""

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

    def nothing_left(self) -> DataFileError:
        """The error for a file of which no record could be used."""
        if not self.count:
            return DataFileError(f"{self.path}: no record in it")
        return DataFileError(f"{self}: nothing usable is left")


class RecordsBuilder(datasets.GeneratorBasedBuilder):
    """A builder of one file; a subclass says how its records are read.

    What was skipped is kept in the data set's `info.description`, so that it is still known when the data set
    comes from the cache.
    """

    # Part of the cache key: raise it whenever the same file gives other examples than before.
    VERSION = datasets.Version("1.0.0")

    def records(self, path: Path, skipped: Skipped) -> Iterator[dict[str, Any]]:
        """The examples of `path`; what cannot be read goes to `skipped`."""
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
            skipped = Skipped(Path(path))
            found = 0
            for record in self.records(Path(path), skipped):
                yield found, record
                found += 1
            if not found:
                raise skipped.nothing_left()
            if skipped.count:
                self.info.description = str(skipped)
                logger.warning("%s", skipped)


def build_split(
    builder_class: type[datasets.DatasetBuilder],
    path: FilePath,
    split: str,
    *,
    streaming: bool = False,
    **options: Any,
) -> datasets.Dataset | datasets.IterableDataset:
    """The data set of one file, from the cache when the file's contents were read before.

    Raises FileNotFoundError for a missing file, DataFileError for one without a usable record (when
    streaming, only once it is iterated).
    """
    file = existing_file(path)
    # A list made by hand: `datasets` would take "[" and "*" in a path for a pattern, and would key its cache
    # on the time of the last change, which a copy may keep.
    key = "" if streaming else contents_hash(file)
    data_files = DataFilesDict({split: DataFilesList([str(file)], [(key,)])})
    builder = builder_class(data_files=data_files, **options)
    if streaming:
        return builder.as_streaming_dataset(split=split)
    cached = builder.info.splits is not None
    try:
        builder.download_and_prepare()
    except (DatasetGenerationError, pa.ArrowInvalid) as error:
        # Ours says which file and why; the library's wrapper only says that something failed.
        if isinstance(error.__cause__, DataFileError):
            raise error.__cause__ from None
        raise DataFileError(f"{file}: cannot be read ({error.__cause__ or error})") from error
    if not builder.info.splits[split].num_examples:
        raise Skipped(file).nothing_left()
    if cached and builder.info.description:
        logger.warning("%s", builder.info.description)
    return builder.as_dataset(split=split)


def existing_file(path: FilePath) -> Path:
    """The absolute path of a file that is there and not empty."""
    file = Path(path).expanduser().absolute()
    if not file.is_file():
        raise FileNotFoundError(f"{file}: no such file")
    if file.stat().st_size == 0:
        raise DataFileError(f"{file}: the file is empty")
    return file


def contents_hash(path: Path) -> str:
    """A fingerprint of the file's bytes, read in pieces."""
    with path.open("rb") as file:
        pieces = iter(lambda: file.read(1 << 20), b"")
        return Hasher.hash_bytes(pieces)


def is_unicode(text: str) -> bool:
    """Whether every character can be stored: bytes that could not be decoded are lone surrogates here."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
