"""LCSTS (Hu et al. 2015), the short-text summaries of the paper's section 5.2, read as it is distributed.

A record of the raw files looks like this; PART_I has no `human_label` line:

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

from .records import DataFileError, FilePath, RecordsBuilder, Skipped, build_split, is_unicode

ENCODINGS = ("utf-8", "gb18030")

_OPEN = re.compile(r"<doc(?:\s+id\s*=\s*\"?([^\">\s]*)\"?)?\s*>")
_FIELD = {name: re.compile(rf"<{name}>(.*?)</{name}>", re.DOTALL) for name in ("summary", "short_text")}
_LABEL = re.compile(r"<human_label>(.*?)</human_label>", re.DOTALL)


class MalformedRecord(ValueError):
    """A record that is left out; the message is the reason."""


@dataclass
class LcstsConfig(datasets.BuilderConfig):
    """Pairs whose human score is below `min_score` are left out; those without a score stay."""

    min_score: int = 3
    encoding: str | None = None


class Lcsts(RecordsBuilder):
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

    def records(self, path: Path, skipped: Skipped) -> Iterator[dict[str, Any]]:
        """The pairs of `path` that score high enough; DataFileError when every valid pair scores lower."""
        minimum = self.config.min_score
        valid = kept = 0
        for record in read_lcsts(path, skipped, self.config.encoding):
            valid += 1
            if record["human_label"] is None or record["human_label"] >= minimum:
                kept += 1
                yield record
        if valid and not kept:
            raise DataFileError(f"{path}: none of its {valid} records has a human_label of {minimum} or more")


def load_lcsts(
    train: FilePath | None = None,
    validation: FilePath | None = None,
    test: FilePath | None = None,
    *,
    min_score: int = 3,
    encoding: str | None = None,
    streaming: bool = False,
) -> datasets.DatasetDict | datasets.IterableDatasetDict:
    """Read PART_I.txt, PART_II.txt and PART_III.txt, or whichever of them you hold.

    The columns are `id`, `text`, `summary` and `human_label` (1 to 5, None in PART_I). Scored pairs below
    `min_score` are left out, the paper's own choice for its test set; 1 keeps them all. The encoding is found
    from the bytes unless given. Malformed records are skipped and reported in a warning, which also stays in
    `info.description`.

    Raises FileNotFoundError for a missing file and DataFileError for one without a usable record.
    """
    files = {"train": train, "validation": validation, "test": test}
    given = {split: path for split, path in files.items() if path is not None}
    if not given:
        raise ValueError("give at least one of train, validation and test")
    splits = {
        split: build_split(Lcsts, path, split, streaming=streaming, min_score=min_score, encoding=encoding)
        for split, path in given.items()
    }
    return datasets.IterableDatasetDict(splits) if streaming else datasets.DatasetDict(splits)


def read_lcsts(path: Path, skipped: Skipped, encoding: str | None = None) -> Iterator[dict[str, Any]]:
    """All well-formed records of one raw file, one record in memory at a time."""
    for number, (line, lines) in enumerate(_documents(path, skipped, encoding or detect_encoding(path))):
        try:
            yield _parse("\n".join(lines), number)
        except MalformedRecord as error:
            skipped.add(line, str(error))


def _documents(path: Path, skipped: Skipped, encoding: str) -> Iterator[tuple[int, list[str]]]:
    """The lines of each closed `<doc>`, with the number of its first line."""
    start = 0
    document: list[str] = []
    stray = False
    # Undecodable bytes become lone surrogates here, and _parse refuses the one record that holds them.
    with path.open(encoding=encoding, errors="surrogateescape") as file:
        for number, raw in enumerate(file, 1):
            line = raw.strip().lstrip("\ufeff")
            if line.startswith("<doc"):
                if document:
                    skipped.add(start, "<doc> is not closed")
                start, document, stray = number, [line], False
            elif document:
                document.append(line)
            elif line and not stray:
                # Once a stretch: a file of another kind would fill the count with its lines.
                skipped.add(number, "text outside a <doc>")
                stray = True
            if document and line.endswith("</doc>"):
                yield start, document
                document = []
    if document:
        skipped.add(start, "<doc> is not closed")


def _parse(document: str, number: int) -> dict[str, Any]:
    """One record; raises MalformedRecord with the reason."""
    if not is_unicode(document):
        raise MalformedRecord("bytes that do not decode")
    opened = _OPEN.match(document)
    if opened is None:
        raise MalformedRecord("no <doc id=...>")
    return {
        "id": opened.group(1) or str(number),
        "text": _field(document, "short_text"),
        "summary": _field(document, "summary"),
        "human_label": _human_label(document),
    }


def _field(document: str, name: str) -> str:
    found = _FIELD[name].findall(document)
    if len(found) != 1:
        raise MalformedRecord(f"{len(found) or 'no'} <{name}>")
    text = " ".join(line for line in found[0].split("\n") if line).strip()
    if not text:
        raise MalformedRecord(f"empty <{name}>")
    return text


def _human_label(document: str) -> int | None:
    found = _LABEL.findall(document)
    if not found and "human_label>" not in document:
        return None
    label = found[0].strip() if len(found) == 1 else ""
    if label not in {"1", "2", "3", "4", "5"}:
        raise MalformedRecord(f"human_label {label!r} is not an integer from 1 to 5")
    return int(label)


def detect_encoding(path: Path) -> str:
    """UTF-8 or GB18030 (which holds GBK and GB2312), by which of them the bytes obey.

    A damaged file obeys neither: then the one in which fewer lines break.
    """
    with path.open("rb") as file:
        if file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            return "utf-16"
    for encoding in ENCODINGS:
        if _decodes(path, encoding):
            return encoding
    return min(ENCODINGS, key=lambda encoding: _broken_lines(path, encoding))


def _decodes(path: Path, encoding: str) -> bool:
    """Whether the file is valid; a character cut off at its very end is forgiven, as in a broken download."""
    decoder = codecs.getincrementaldecoder(encoding)()
    with path.open("rb") as file:
        try:
            for piece in iter(lambda: file.read(1 << 20), b""):
                decoder.decode(piece)
        except UnicodeDecodeError:
            return False
    return True


def _broken_lines(path: Path, encoding: str) -> int:
    with path.open(encoding=encoding, errors="surrogateescape") as file:
        return sum(not is_unicode(line) for line in file)
