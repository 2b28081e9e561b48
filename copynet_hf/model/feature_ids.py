"""The ids of a source's features, which have a vocabulary of their own. Shapes: B rows, F features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

PADDING, UNKNOWN = 0, 1
NUM_SPECIAL = 2  # the ids of the features follow


def collect_features(rows: Iterable[Sequence[str] | None]) -> list[str]:
    """The features of some sources, each once, in the order of their code points."""
    return sorted({feature for row in rows for feature in row or ()})


def number_features(features: Iterable[Any] | Mapping[Any, int]) -> dict[str, int]:
    """The id of each feature, in their order or, for a mapping as the tokenizer saves it, that of their ids.

    Raises:
        ValueError: a feature is no string, empty, or given twice.
    """
    features = sorted(features, key=features.__getitem__) if isinstance(features, Mapping) else list(features)
    for feature in features:
        if not isinstance(feature, str) or not feature:
            raise ValueError(f"feature_vocab contains {feature!r}: give strings that are not empty")
    if len(set(features)) < len(features):
        twice = next(feature for feature in features if features.count(feature) > 1)
        raise ValueError(f"feature_vocab contains {twice!r} twice: give each feature once")
    return {feature: index for index, feature in enumerate(features, NUM_SPECIAL)}


def to_feature_ids(rows: Sequence[Any], count: int, vocab: Mapping[str, int]) -> list[list[int]]:
    """For each source the ids of its features, each once; a row may be None.

    Raises:
        ValueError: the tokenizer has no features, there are more or fewer rows than sources (`count`), or a row is no
            list of strings.
    """
    if not vocab:
        raise ValueError("features are given, but the tokenizer has none: train it with features=, or leave them out")
    if len(rows) != count:
        raise ValueError(f"features has {len(rows)} rows, text {count}: they must match")
    for number, row in enumerate(rows):
        if isinstance(row, str) or not all(isinstance(feature, str) for feature in row or ()):
            raise ValueError(f"features[{number}] is {row!r:.100}: give a list of strings")
    return [[vocab.get(feature, UNKNOWN) for feature in dict.fromkeys(row or ())] for row in rows]


def pad_features(encoded: Any) -> Any:
    """One row or several, as `PreTrainedTokenizerBase.pad` takes them, with `feature_ids` padded to one length."""
    if isinstance(encoded, list | tuple) and encoded and isinstance(encoded[0], Mapping):
        encoded = {name: [row[name] for row in encoded] for name in encoded[0]}
    if "feature_ids" not in encoded:
        return encoded
    from transformers.utils import to_py_obj  # here, because the rest of this file is used without Transformers

    rows = to_py_obj(encoded["feature_ids"])
    is_batch = not rows or isinstance(rows[0], list)
    padded = pad_rows(rows if is_batch else [rows])
    return {**encoded, "feature_ids": padded if is_batch else padded[0]}


def pad_rows(rows: Sequence[Sequence[int]]) -> list[list[int]]:
    """The rows with padding to one length, at least 1."""
    width = max([1, *map(len, rows)])
    return [[*row, *[PADDING] * (width - len(row))] for row in rows]
