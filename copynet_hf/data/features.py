"""The cells of a source: its features, a list of strings or one string with a separator; its facts, a list of triples
of strings; and why a cell cannot be used."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

NO_FACTS = (
    "{} reads facts, and these rows have none: pass a column 'facts' of lists of triples (subject, property, object), "
    "as JSON text in CSV files"
)
UNKNOWN_FEATURES = "{} knows none of the features of these rows: check how they are spelled, and what separates them"


def split_features(value: str | Iterable[str] | None, separator: str) -> list[str]:
    """The features in a cell, without spaces around them; a missing value has none."""
    if not separator:
        raise ValueError("--features_separator is empty: pass what stands between two features")
    features = value.split(separator) if isinstance(value, str) else value or []
    return [feature.strip() for feature in features if feature.strip()]


def are_unknown(features: Iterable[Iterable[str]], tokenizer: Any) -> bool:
    """Whether some rows have features, and the tokenizer has none of these in its vocabulary."""
    found = {feature for row in features for feature in row or ()}
    return bool(found) and found.isdisjoint(getattr(tokenizer, "feature_vocab", found))


def explain_unusable(value: object, role: str, column: str) -> str | None:
    """The reason why a cell of this column cannot be used in its role, or None; a text may be empty."""
    if role == "facts":
        return None if are_facts(read_facts(value)) else f"{column!r} are not triples of strings"
    if role == "features":
        is_list = isinstance(value, list) and all(isinstance(feature, str) for feature in value)
        if value is None or isinstance(value, str) or is_list:
            return None
        return f"{column!r} is of type {type(value).__name__}, neither a string nor a list of strings"
    if value is None:
        return f"no {column!r}"
    return None if isinstance(value, str) else f"{column!r} is of type {type(value).__name__}, not a string"


def read_facts(value: object) -> object:
    """The facts in a cell, which tables such as CSV files hold as JSON text, or as none; any other value as it is."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value) if value.strip() else None
    except (ValueError, RecursionError):
        return value


def resemble_facts(value: object) -> bool:
    """Whether a cell holds lists of strings in a list, as facts are."""
    lists = [each for each in value if isinstance(each, list)] if isinstance(value, list) else []
    return any(isinstance(part, str) for each in lists for part in each)


def are_facts(value: object) -> bool:
    """Whether a cell holds facts, or none."""
    if not isinstance(value, list):
        return value is None
    triples = [fact for fact in value if isinstance(fact, list) and len(fact) == 3]
    return len(triples) == len(value) and all(isinstance(part, str) for fact in triples for part in fact)


def with_objects(text: str, facts: Iterable[Sequence[str]] | None) -> str:
    """All that can be copied of a source: its text, and the objects of its facts."""
    return " ".join([text, *(fact[2] for fact in facts or ())])
