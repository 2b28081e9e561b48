"""The features of a source as a column holds them: a list of strings, or one string with a separator."""

from __future__ import annotations

from collections.abc import Iterable

SEPARATOR = ";"


def split_features(value: str | Iterable[str] | None, separator: str) -> list[str]:
    """The features in a cell, without spaces around them; a missing value has none."""
    if not separator:
        raise ValueError("--features_separator is empty: pass what stands between two features")
    features = value.split(separator) if isinstance(value, str) else value or []
    return [feature.strip() for feature in features if feature.strip()]


def why_not_features(value: object) -> str | None:
    """The reason why a cell holds no features, or None."""
    if value is None or isinstance(value, str):
        return None
    if isinstance(value, list) and all(isinstance(feature, str) for feature in value):
        return None
    return f"a {type(value).__name__}, neither a string nor a list of strings"
