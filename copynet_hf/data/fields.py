"""Named values as one line of text, which models learn: `intent = PlayMusic | artist = westbam`, and back.

Read are also parts such as `vendor=Lorsen; total=745.60`, and JSON objects.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from json.decoder import WHITESPACE, JSONDecoder, scanstring  # type: ignore[attr-defined]
from typing import NamedTuple

EQUALS, SEPARATOR = " = ", " | "
NAME_KEY, VALUE_KEY = "slot", "value"  # of a record in a list of records

# Combining marks, and what joins letters, in the scripts that write them; `\w` holds neither.
_MARKS = (
    "\u0300-\u036f\u0483-\u0489\u0591-\u05c7\u0610-\u061a\u064b-\u065f"
    "\u0900-\u109f\u1780-\u17d3\u200c\u200d\u3099\u309a"
)
_NAME = rf"(\w[\w{_MARKS}.\-/]*)"
_ANY_NAME = r"([^\s=|;,{}]+)"  # where " = " follows, which code and addresses seldom have
# What separates fields is looked for once in a run of spaces or line breaks, which may be as long as the text.
_SPACED = re.compile(rf"(?:^|(?:^\s*)?[|;,]\s*|(?<!\s)[^\S\n]*\n\s*){_ANY_NAME} =(?!=)")
_UNSPACED = re.compile(rf"(?:^|(?<![\s|;,&])[\s|;,&]+){_NAME}=(?!=)")
_DECODER = JSONDecoder()


class Field(NamedTuple):
    """A named value, the characters [start, end) of a text; for JSON text a string without its quotes."""

    name: str
    value: str
    start: int
    end: int


def format_record(record: object) -> str:
    """The text of a JSON object, or of a list of objects `{"slot": ..., "value": ...}`, whose other keys are ignored.

    A value is a string, a number or a boolean, or in an object a list of these, each written with the name, or another
    object, whose names follow its own and a dot. Null and empty values are left out, as in the rows of a Parquet file.
    A space in a name becomes an underscore.
    """
    texts = [(path, " ".join(value.split())) for path, value in _list_values(record, ())]
    names = {path: re.sub(r"\s+", "_", ".".join(path).strip()) for path, text in texts if text}
    fields = [(names[path], text) for path, text in texts if text]
    if len(set(names.values())) < len(names):
        twice, _ = Counter(names.values()).most_common(1)[0]
        raise ValueError(f"two names are both written as {twice!r}: rename one")
    for name, value in fields:
        if not re.fullmatch(_ANY_NAME, name):
            raise ValueError(f"the name {name!r:.80} is empty or holds one of =|;,{{}}: rename it")
        if [field.value for field in parse_fields(f"{name}{EQUALS}{value}") or ()] != [value]:
            raise ValueError(
                f"the value {value!r:.80} of {name!r} would be read as several: write its equals sign without spaces"
            )
    return SEPARATOR.join(f"{name}{EQUALS}{value}" for name, value in fields)


def _list_values(record: object, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """The values as texts, each with its path: its name, after those of the objects that hold it."""
    if isinstance(record, Mapping):
        for name, value in record.items():
            for each in value if isinstance(value, list | tuple) else [value]:
                if isinstance(each, Mapping):
                    yield from _list_values(each, (*path, str(name)))
                else:
                    yield (*path, str(name)), _to_text(each, name)
    elif isinstance(record, Sequence) and not isinstance(record, str):
        for each in record:
            if not isinstance(each, Mapping) or not {NAME_KEY, VALUE_KEY} <= each.keys():
                raise ValueError(f"a list must hold objects with {NAME_KEY!r} and {VALUE_KEY!r}, not {each!r:.80}")
            yield (str(each[NAME_KEY]),), _to_text(each[VALUE_KEY], each[NAME_KEY])
    else:
        raise ValueError(f"{record!r:.80} is neither an object nor a list of objects")


def _to_text(value: object, name: object) -> str:
    if isinstance(value, str):
        return value
    if value is None or value != value:  # NaN
        return ""
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    raise ValueError(f"{name!r} holds a {type(value).__name__}: use texts, numbers, objects or lists of them")


def parse_fields(text: str) -> list[Field] | None:
    """The fields of a text in their order; None if it has another form. Items of a JSON list share a name, those of a
    nested object have the names of both, joined by a dot."""
    if text.lstrip()[:1] == "{":
        try:
            json.loads(text.strip())
            return list(_read_value(text, text.index("{"), None))
        except (ValueError, RecursionError):
            return None
    for pattern in (_SPACED, _UNSPACED):
        if pattern.match(text):
            return list(_split_fields(text, pattern))
    return None


def _split_fields(text: str, pattern: re.Pattern[str]) -> Iterator[Field]:
    matches = list(pattern.finditer(text))
    separators = "".join(text[match.start() : match.start(1)] for match in matches[1:])
    # One may close the text, as in `total=745.60;`; " | " may not, as a value of `format_record` may end with `|`.
    separators = separators.replace("|", "") if pattern is _SPACED else separators or ";|"
    end_of_last = len(text.rstrip(separators + " "))
    for match, end in zip(matches, [*(match.start() for match in matches[1:]), end_of_last], strict=True):
        value = text[match.end() : end].strip()
        start = text.index(value, match.end())
        yield Field(match[1], value, start, start + len(value))


def _read_value(text: str, start: int, name: str | None) -> Generator[Field, None, int]:
    """The fields of the valid JSON value that begins at `start`, and where it ends; None: it has no name."""
    if text[start] not in "{[":
        value, end = _DECODER.raw_decode(text, start)
        is_text = isinstance(value, str)  # between quotes
        yield Field(str(name), value if is_text else text[start:end], start + is_text, end - is_text)
        return end
    position = _skip(text, start + 1)
    while text[position] not in "}]":
        item_name = name
        if text[start] == "{":
            key, position = scanstring(text, position + 1)
            position = _skip(text, _skip(text, position) + 1)  # the colon
            item_name = key if name is None else f"{name}.{key}"
        position = _skip(text, (yield from _read_value(text, position, item_name)))
        position = _skip(text, position + 1) if text[position] == "," else position
    return position + 1


def _skip(text: str, position: int) -> int:
    """The position after whitespace."""
    return WHITESPACE.match(text, position).end()
