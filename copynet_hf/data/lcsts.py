"""LCSTS (Hu et al. 2015), the Chinese short-text summaries of section 5.2 of the paper, read from its original files.

A record of a file, where PART_I has no `human_label`:

    <doc id=0>
        <human_label>5</human_label>
        <summary>
            ...
        </summary>
        <short_text>
            ...
        </short_text>
    </doc>
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets

from .records import (
    DataFileError,
    FilePath,
    RecordsBuilder,
    SkippedRecords,
    build_split,
    has_utf16_mark,
    is_unicode,
    open_binary,
    open_text,
)

ENCODINGS = ("utf-8", "gb18030")

_OPEN = re.compile(r"<doc(?:\s+id\s*=\s*\"?([^\">\s]*)\"?)?\s*>")
_FIELD = {name: re.compile(rf"<{name}>(.*?)</{name}>", re.DOTALL) for name in ("summary", "short_text")}
_LABEL = re.compile(r"<human_label>(.*?)</human_label>", re.DOTALL)


class MalformedRecord(ValueError):
    """A record that is skipped; the message is the reason."""


@dataclass
class LcstsConfig(datasets.BuilderConfig):
    """Pairs with a human score below `min_score` are left out; those without a score are kept."""

    min_score: int = 3
    encoding: str | None = None


class LcstsBuilder(RecordsBuilder):
    """The builder behind `load_lcsts`."""

    BUILDER_CONFIG_CLASS = LcstsConfig

    def _info(self) -> datasets.DatasetInfo:
        return datasets.DatasetInfo(
            features=datasets.Features(
                {
                    "id": datasets.Value("string"),
                    "text": datasets.Value("string"),
                    "summary": datasets.Value("string"),
                    "human_label": datasets.Value("int32"),
                }
            )
        )

    def records(self, path: Path, skipped: SkippedRecords) -> Iterator[dict[str, Any]]:
        """The pairs of `path` whose score reaches `min_score`.

        Raises:
            DataFileError: the file has valid records, but none with such a score.
        """
        min_score = self.config.min_score
        valid = kept = 0
        for record in read_lcsts(path, skipped, self.config.encoding):
            valid += 1
            if record["human_label"] is None or record["human_label"] >= min_score:
                kept += 1
                yield record
        if valid and not kept:
            raise DataFileError(f"{path}: none of its {valid} records has a human_label of {min_score} or more")


def load_lcsts(
    train: FilePath | None = None,
    validation: FilePath | None = None,
    test: FilePath | None = None,
    *,
    min_score: int = 3,
    encoding: str | None = None,
    streaming: bool = False,
) -> datasets.DatasetDict | datasets.IterableDatasetDict:
    """Loads LCSTS from its original files PART_I.txt, PART_II.txt and PART_III.txt, or some of them.

    The columns are `id`, `text`, `summary` and `human_label` (1 to 5, None in PART_I). Malformed records are skipped
    and reported in a warning, which is also kept in `info.description`.

    Args:
        min_score: pairs with a lower human_label are left out. The paper evaluates on scores of at least 3.
        encoding: by default detected from the bytes, see `detect_encoding`.
        streaming: read the records during iteration instead of caching them.

    Raises:
        ValueError: no file.
        FileNotFoundError: no such file.
        DataFileError: a file without a usable record (when streaming, raised by the first iteration).
    """
    named = {"train": train, "validation": validation, "test": test}
    files = {split: path for split, path in named.items() if path is not None}
    if not files:
        raise ValueError("no file: pass at least one of train, validation and test")
    splits = {
        split: build_split(LcstsBuilder, path, split, streaming=streaming, min_score=min_score, encoding=encoding)
        for split, path in files.items()
    }
    return datasets.IterableDatasetDict(splits) if streaming else datasets.DatasetDict(splits)


def read_lcsts(path: Path, skipped: SkippedRecords, encoding: str | None = None) -> Iterator[dict[str, Any]]:
    """The well-formed records of one file, read one at a time."""
    for number, (line, lines) in enumerate(_documents(path, skipped, encoding or detect_encoding(path))):
        try:
            yield _parse("\n".join(lines), number)
        except MalformedRecord as error:
            skipped.add(line, str(error))


def _documents(path: Path, skipped: SkippedRecords, encoding: str) -> Iterator[tuple[int, list[str]]]:
    """The number of the first line and the lines of each closed `<doc>`."""
    start = 0
    document: list[str] = []
    is_outside = False  # whether the last line was text outside a <doc>
    with open_text(path, encoding) as file:  # `_parse` rejects lone surrogates: only their record is lost
        for number, raw in enumerate(file, 1):
            line = raw.strip().lstrip("\ufeff")
            if line.startswith("<doc"):
                if document:
                    skipped.add(start, "<doc> is not closed")
                start, document, is_outside = number, [line], False
            elif document:
                document.append(line)
            elif line and not is_outside:  # reported once for consecutive lines
                skipped.add(number, "text outside a <doc>")
                is_outside = True
            if document and line.endswith("</doc>"):
                yield start, document
                document = []
    if document:
        skipped.add(start, "<doc> is not closed")


def _parse(document: str, number: int) -> dict[str, Any]:
    """One record.

    Raises:
        MalformedRecord: the record is not valid.
    """
    if not is_unicode(document):
        raise MalformedRecord("bytes that do not decode")
    opening = _OPEN.match(document)
    if opening is None:
        raise MalformedRecord("no <doc id=...>")
    return {
        "id": opening.group(1) or str(number),
        "text": _field(document, "short_text"),
        "summary": _field(document, "summary"),
        "human_label": _human_label(document),
    }


def _field(document: str, name: str) -> str:
    contents = _FIELD[name].findall(document)
    if len(contents) != 1:
        raise MalformedRecord(f"{len(contents) or 'no'} <{name}>")
    text = " ".join(line for line in contents[0].split("\n") if line).strip()
    if not text:
        raise MalformedRecord(f"empty <{name}>")
    return text


def _human_label(document: str) -> int | None:
    labels = _LABEL.findall(document)
    if not labels and "human_label>" not in document:
        return None
    label = labels[0].strip() if len(labels) == 1 else ""
    if label not in {"1", "2", "3", "4", "5"}:
        raise MalformedRecord(f"human_label {label!r} is not an integer from 1 to 5")
    return int(label)


def detect_encoding(path: Path) -> str:
    """The encoding in which the bytes are valid: UTF-16 with a byte order mark, UTF-8, or GB18030 (with GBK, GB2312).

    For a damaged file, valid in neither, that of UTF-8 and GB18030 in which fewer lines are invalid.
    """
    with open_binary(path) as file:
        if has_utf16_mark(file):
            return "utf-16"
    for encoding in ENCODINGS:
        if _is_valid(path, encoding):
            return encoding
    return min(ENCODINGS, key=lambda encoding: _count_invalid_lines(path, encoding))


def _is_valid(path: Path, encoding: str) -> bool:
    """Whether the bytes decode, but for a character cut off at the end of the file, as by an interrupted download."""
    decoder = codecs.getincrementaldecoder(encoding)()
    with open_binary(path) as file:
        try:
            for chunk in iter(lambda: file.read(1 << 20), b""):
                decoder.decode(chunk)
        except UnicodeDecodeError:
            return False
    return True


def _count_invalid_lines(path: Path, encoding: str) -> int:
    with open_text(path, encoding) as file:
        return sum(not is_unicode(line) for line in file)
