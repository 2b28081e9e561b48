"""The columns of a data set: which are the text and the summary of its pairs, and the types of the others."""

from __future__ import annotations

import difflib
import logging
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import combinations, islice
from typing import NamedTuple

import pyarrow as pa

from ..model.vocabularies import FEATURE_SEPARATOR
from .features import read_facts, resemble_facts
from .files import Row
from .parquet import is_string

logger = logging.getLogger(__name__)

# The usual names of the columns, the most likely first; case is ignored.
# fmt: off
TEXT_NAMES = (
    "text", "source", "document", "article", "input", "inputs", "dialogue", "dialog", "src", "content",
    "body", "passage", "sentence", "question", "prompt", "instruction", "query", "lemma",
)
SUMMARY_NAMES = (
    "summary", "target", "highlights", "output", "outputs", "reply", "response", "tgt", "answer",
    "completion", "abstract", "headline", "title", "form",
)
# fmt: on
# Columns that identify a row; never guessed to be a text, as those without a name are not.
KEY_NAMES = ("", "id", "idx", "index", "guid", "uid", "key", "split", "human_label")

ROLES = ("text", "summary", "features", "facts")
UNREAD_FACTS = "%s: the column %r holds no triples (subject, property, object), and is not read"


class ColumnChoice(NamedTuple):
    """The columns that were named; None for a text or summary to guess, and for no features."""

    text: str | None = None
    summary: str | None = None
    features: str | None = None
    separator: str = FEATURE_SEPARATOR


class Columns:
    """The columns of some rows.

    Args:
        facts_column: that of the facts, if there are any.
        size: the number of rows that are in memory at a time.

    Attributes:
        types: the Arrow type of each column, None for a mix of types, which is stored as JSON text.
        strings: the columns that hold at least one string.
        records: the columns that hold an object, or a list that begins with one.
        has_facts: whether some cells of that column are facts, perhaps malformed ones.
    """

    def __init__(self, rows: Iterable[Row], facts_column: str = "facts", size: int = 1000) -> None:
        self.types: dict[str, pa.DataType | None] = {}
        self.strings: list[str] = []
        self.records: list[str] = []
        with_facts: set[str] = set()
        rows = iter(rows)
        while batch := list(islice(rows, size)):
            for name in dict.fromkeys(name for row in batch for name in row):
                values = [row.get(name) for row in batch]
                self.types[name] = _common_type(self.types.get(name, pa.null()), values)
                if name not in self.strings and any(isinstance(value, str) for value in values):
                    self.strings.append(name)
                if name not in self.records and any(isinstance(_first(value), dict) for value in values):
                    self.records.append(name)
                if _are_alike(name, facts_column) and any(map(resemble_facts, map(read_facts, values))):
                    with_facts.add(name)
        self.has_facts = match_column(facts_column, self.types) in with_facts

    def texts(self, facts_column: str = "facts") -> list[str]:
        """The columns of strings but that of the facts, which tables hold as JSON text."""
        facts = match_column(facts_column, self.types) if self.has_facts else None
        return [name for name in self.strings if name != facts]

    @classmethod
    def of_schema(cls, schema: pa.Schema) -> Columns:
        """Those of rows that have these types, without looking at the rows."""
        found = cls([])
        found.types = {field.name: field.type for field in schema}
        found.strings = [field.name for field in schema if is_string(field.type)]
        found.records = [field.name for field in schema if holds_records(field.type)]
        return found


def _first(value: object) -> object:
    return value[0] if isinstance(value, list) and value else value


def _common_type(previous: pa.DataType | None, values: Sequence[object]) -> pa.DataType | None:
    """The type that holds the previous values and these, or None."""
    if previous is None:
        return None
    try:
        schemas = [pa.schema([("", kind)]) for kind in (previous, pa.array(values).type)]
        common = pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except (pa.ArrowException, TypeError, OverflowError):
        return None
    # The keys of JSON objects can differ between rows; Arrow writes lists of at most 64 levels.
    return None if "struct" in str(common) or str(common).count("list<") > 32 else common


def can_hold_facts(kind: pa.DataType | None) -> bool:
    """Whether a column of this type holds lists of lists of strings, or nothing."""
    depth = 0
    while kind is not None and (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        kind, depth = kind.value_type, depth + 1
    if kind is None or depth > 2:
        return False
    return pa.types.is_null(kind) or (depth == 2 and is_string(kind))


def holds_records(kind: pa.DataType) -> bool:
    """Whether a column of this type holds objects, or lists of them."""
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return pa.types.is_struct(kind.value_type if is_list else kind)


def choose_columns(found: Columns, choice: ColumnChoice, where: str, *, is_table: bool = False) -> dict[str, str]:
    """The columns of `text` and `summary`, as given or guessed, of `features`, if given, and of `facts`. A summary may
    be a column of records where no strings are left.

    Args:
        where: the file or dataset, for messages.
        is_table: whether it is one with a delimiter and a header, likewise.
    """
    columns, strings, records = list(found.types), found.strings, found.records
    named = {"text": choice.text, "summary": choice.summary, "features": choice.features}
    given = {role: column for role, column in named.items() if column is not None}
    for role, name in given.items():
        try:
            given[role] = find_column(name, columns)
        except ValueError as error:
            fix = ": if these are several, pass delimiter (--delimiter)" if is_table and len(columns) == 1 else ""
            raise ValueError(f"{where}: {error}{fix}") from None
    for role, other in combinations(given, 2):
        if given[role] == given[other]:
            raise ValueError(f"{where}: column {given[role]!r} cannot be both {role} and {other}")
    candidates = [name for name in found.texts() if name not in given.values()]
    text = given.get("text") or find_usual_name(candidates, TEXT_NAMES)
    summary = given.get("summary") or find_usual_name([name for name in candidates if name != text], SUMMARY_NAMES)
    roles: dict[str, str | None] = {"text": text, "summary": summary}
    if summary is None and all(name == text or is_key(name) for name in candidates):
        roles["summary"] = find_usual_name(records, SUMMARY_NAMES) or (records[0] if len(records) == 1 else None)
    missing = [role for role, name in roles.items() if name is None]
    rest = [name for name in candidates if name not in (text, summary) and not is_key(name)]
    if len(rest) > len(missing) > 0:
        raise ValueError(
            f"{where}: the {' and '.join(missing)} could be any of the columns {', '.join(map(repr, rest))}: pass "
            + " and ".join(f"{role}_column (--{role}_column)" for role in missing)
            + (", or column_names (--column_names) if the first line is no header" if is_table else "")
            + ("; texts without a summary are for copynet-hf predict" if missing == ["summary"] else "")
        )
    for role, name in zip(missing, rest, strict=False):
        roles[role] = name
    for role, column in roles.items():
        if column is None:
            others = [name for name in columns if name not in strings and name not in given.values()]
            if meant := find_usual_name(others, TEXT_NAMES if role == "text" else SUMMARY_NAMES):
                raise ValueError(
                    f"{where}: the column {meant!r} holds no strings: write its values as strings, or pass "
                    f"{role}_column (--{role}_column)"
                )
            raise ValueError(
                f"{where}: no column of strings is left for the {role}; the columns are "
                f"{', '.join(map(repr, columns))}: {_advise(found, role, is_table)}"
            )
    chosen = {role: column for role, column in roles.items() if column is not None} | given
    if (facts := match_column("facts", columns)) is not None and facts not in chosen.values():
        if found.has_facts or can_hold_facts(found.types[facts]):
            return chosen | {"facts": facts}
        logger.info(UNREAD_FACTS, where, facts)
    return chosen


def _advise(found: Columns, role: str, is_table: bool) -> str:
    """What to do where no column of strings is left."""
    advice = f"pass {role}_column (--{role}_column)"
    if len(found.types) > 1:
        return advice
    if is_table:
        return f"{advice}, or delimiter (--delimiter) if it is several"
    return "if it holds the pairs, write their list alone" if found.records else advice


def is_key(column: str) -> bool:
    """Whether the column identifies a row, or has no name (pandas and `rows.number_rows` call it `Unnamed: 3`)."""
    return column.strip().lower() in KEY_NAMES or column.startswith("Unnamed: ")


def find_usual_name(columns: Sequence[str], names: Sequence[str]) -> str | None:
    """The column that `match_column` finds for the first of the names that has one."""
    return next((column for name in names if (column := match_column(name, columns)) is not None), None)


def choose_new_names(columns: Iterable[str], roles: Mapping[str, str]) -> dict[str, str]:
    """The new name of each column without a role: `original_text` for `text`, and likewise for the other roles."""
    names = {name: name for name in columns if name not in roles.values()}
    for name in names.keys() & ROLES:
        while names[name] in ROLES or names[name] in names:
            names[name] = f"original_{names[name]}"
    return names


def match_column(name: str, columns: Collection[str]) -> str | None:
    """The column of this name, else the only one that differs in nothing but capitals and spaces, else None."""
    alike = [name] if name in columns else [each for each in columns if _are_alike(each, name)]
    return alike[0] if len(alike) == 1 else None


def find_column(name: str, columns: Collection[str]) -> str:
    """The column that `match_column` finds; raises ValueError if there is none."""
    if (column := match_column(name, columns)) is None:
        raise ValueError(describe_missing_column(name, columns))
    return column


def _are_alike(name: str, other: str) -> bool:
    """Whether two names differ in nothing but capitals and spaces."""
    return _simplify(name) == _simplify(other)


def _simplify(name: str) -> str:
    """The name in lower case, with single spaces; spreadsheets also write no-break spaces and line breaks."""
    return " ".join(unicodedata.normalize("NFC", name).lower().split())


def describe_missing_column(name: str, columns: Collection[str]) -> str:
    """The error for a name that no column has: with the nearest name, and spaces that are easily overlooked."""
    by_key = {_simplify(column): column for column in columns}
    hint = ""
    for key in difflib.get_close_matches(_simplify(name), by_key, 1):
        column = by_key[key]
        sides = [side for side, letter in (("start", column[:1]), ("end", column[-1:])) if letter.isspace()]
        hint = f"; did you mean {column!r}" + (f" (with a space at its {' and '.join(sides)})?" if sides else "?")
    return f"no column {name!r}{hint}{' The' if hint else '; the'} columns are {', '.join(map(repr, columns))}"
