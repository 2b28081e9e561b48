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

import re
from collections.abc import Iterator
from pathlib import Path

from .files import DataFileError, NumberedRow, Row, has_utf16_mark, is_unicode, open_binary, open_text, show_path

ENCODINGS = ("utf-8", "gb18030")

_OPEN = re.compile(r"<doc(?:\s+id\s*=\s*\"?([^\">\s]*)\"?)?\s*>")
_FIELD = {name: re.compile(rf"<{name}>(.*?)</{name}>", re.DOTALL) for name in ("summary", "short_text")}
_LABEL = re.compile(r"<human_label>(.*?)</human_label>", re.DOTALL)


def read_lcsts(path: Path, min_score: int = 3, encoding: str | None = None) -> Iterator[NumberedRow]:
    """Line number and pair of each record whose human score, if it has one, reaches `min_score`, or why it cannot be
    used, read one at a time.

    Args:
        encoding: by default that of `detect_encoding`.
    """
    valid = kept = 0
    for number, (line, document) in enumerate(_documents(path, encoding or detect_encoding(path))):
        try:
            record = document if isinstance(document, str) else _parse("\n".join(document), number)
        except ValueError as error:
            record = str(error)
        if isinstance(record, str):
            yield line, record
            continue
        valid += 1
        if record["human_label"] is None or record["human_label"] >= min_score:
            kept += 1
            yield line, record
    if valid and not kept:
        raise DataFileError(f"{show_path(path)}: none of its {valid} records has a human_label of {min_score} or more")


def _documents(path: Path, encoding: str) -> Iterator[tuple[int, list[str] | str]]:
    """The number of the first line and the lines of each closed `<doc>`; what is no such is a string, the reason."""
    start = 0
    document: list[str] = []
    is_outside = False  # whether the last line was text outside a <doc>
    with open_text(path, encoding) as file:  # `_parse` rejects lone surrogates: only their record is lost
        for number, raw in enumerate(file, 1):
            line = raw.strip().lstrip("\ufeff")
            if line.startswith("<doc"):
                if document:
                    yield start, "<doc> is not closed"
                start, document, is_outside = number, [line], False
            elif document:
                document.append(line)
            elif line and not is_outside:  # reported once for consecutive lines
                other = "" if start else " (a .txt file holds LCSTS: name JSON lines .jsonl, tables .csv or .tsv)"
                yield number, f"text outside a <doc>{other}"
                is_outside = True
            if document and line.endswith("</doc>"):
                yield start, document
                document = []
    if document:
        yield start, "<doc> is not closed"


def _parse(document: str, number: int) -> Row:
    """One record; raises ValueError with the reason why it is not valid."""
    if not is_unicode(document):
        raise ValueError("bytes that do not decode")
    opening = _OPEN.match(document)
    if opening is None:
        raise ValueError("no <doc id=...>")
    return {
        "id": opening.group(1) or str(number),
        "text": _field(document, "short_text"),
        "summary": _field(document, "summary"),
        "human_label": _human_label(document),
    }


def _field(document: str, name: str) -> str:
    contents = _FIELD[name].findall(document)
    if len(contents) != 1:
        raise ValueError(f"{len(contents) or 'no'} <{name}>")
    text = " ".join(line for line in contents[0].split("\n") if line).strip()
    if not text:
        raise ValueError(f"empty <{name}>")
    return text


def _human_label(document: str) -> int | None:
    labels = _LABEL.findall(document)
    if not labels and "human_label>" not in document:
        return None
    label = labels[0].strip() if len(labels) == 1 else ""
    if label not in {"1", "2", "3", "4", "5"}:
        raise ValueError(f"human_label {label!r} is not an integer from 1 to 5")
    return int(label)


def detect_encoding(path: Path) -> str:
    """UTF-16 with a byte order mark, else UTF-8 or GB18030 (with GBK, GB2312), whichever has fewer invalid lines."""
    with open_binary(path) as file:
        if has_utf16_mark(file):
            return "utf-16"
    return min(ENCODINGS, key=lambda encoding: _count_invalid_lines(path, encoding))


def _count_invalid_lines(path: Path, encoding: str) -> int:
    with open_text(path, encoding) as file:
        return sum(not is_unicode(line) for line in file)
