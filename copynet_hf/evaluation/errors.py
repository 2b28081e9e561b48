"""The wrong outputs of an evaluation: where they differ from their references, and why; named values one by one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, Literal, NamedTuple, TypedDict

from ..data.features import with_objects
from ..data.fields import parse_fields
from ..inference.extraction import locate_words
from ..model.segmentation import Span, fold_case
from .metrics import UNSPACED

Reason = Literal["word not in source", "wrong copy", "generated instead of copied", "missing", "added"]
REASONS: dict[Reason, str] = {
    "word not in source": "the source does not have the reference's words, whatever their case: they have to be "
    "joined from parts, or generated",
    "wrong copy": "the reference's words are in the source; others were copied",
    "generated instead of copied": "the reference's words are in the source; others were generated",
    "missing": "the output leaves words of the reference out",
    "added": "the reference does not have these words of the output",
}
# Characters of scripts without spaces one by one, other words and marks as a whole.
_UNITS = re.compile(rf"<unk>|[{UNSPACED}]|[^\W{UNSPACED}]+|\S")
FIELDS_SHARE = 0.9  # of the references that have to be named values


class Difference(NamedTuple):
    """Where an output differs from its reference: a reason, and the characters [start, end) in both texts."""

    reason: Reason
    output: Span
    reference: Span


class WrongOutput(TypedDict):
    """A row of `evaluate_pairs` whose output is wrong, and how."""

    row: Mapping[str, Any]
    reference: str
    differences: list[Difference]


class FieldScore(TypedDict):
    """Of a named value: how many references have it, how many percent of these outputs have the same values (None: no
    reference has it), and how many outputs have it where the reference does not."""

    count: int
    accuracy: float | None
    added: int


def find_wrong_outputs(rows: Iterable[Mapping[str, Any]]) -> list[WrongOutput]:
    """The wrong outputs, surest first.

    Args:
        rows: of `evaluate_pairs`. Of several references, the output is compared with the most similar one.
    """
    wrong = [row for row in rows if not row["right"]]
    wrong.sort(key=lambda row: -(row["confidence"] or 0.0))
    outputs: list[WrongOutput] = []
    for row in wrong:
        references = [row["reference"]] if isinstance(row["reference"], str) else row["reference"]
        reference = max(references, key=lambda text: _match(row["prediction"], text)[2].ratio())
        outputs.append({"row": row, "reference": reference, "differences": find_differences(row, reference)})
    return outputs


def find_differences(row: Mapping[str, Any], reference: str) -> list[Difference]:
    """The differences between a row's output and a reference, in their order."""
    output, copyable = row["prediction"], with_objects(row["text"], row.get("facts"))
    in_source = {fold_case(text) for text, _ in _split(copyable)}
    found, expected, matcher = _match(output, reference)
    places = zip(locate_words(row["words"]), row["copied"], strict=True)
    copied = [place for place, is_copied in places if is_copied]
    differences = []
    for tag, start, end, other_start, other_end in matcher.get_opcodes():
        if tag == "equal":
            continue
        here, there = _join(found, start, end, output), _join(expected, other_start, other_end, reference)
        reason: Reason = "missing" if tag == "insert" else "added"
        if tag == "replace":
            words = {fold_case(text) for text, _ in expected[other_start:other_end]}
            was_copied = any(a < here[1] and here[0] < b for a, b in copied)
            reason = "wrong copy" if was_copied else "generated instead of copied"
            reason = reason if words <= in_source else "word not in source"
        differences.append(Difference(reason, here, there))
    return differences


def count_reasons(outputs: Iterable[WrongOutput]) -> dict[Reason, int]:
    """How many outputs are wrong for each reason, the most frequent first; an output can have several."""
    counts = Counter(reason for output in outputs for reason in {each.reason for each in output["differences"]})
    return dict(counts.most_common())


def score_fields(rows: Iterable[Mapping[str, Any]]) -> dict[str, FieldScore]:
    """The score of each named value, in the order of the references, and then of those that only outputs have; empty
    unless the references are named values, in the forms that `data.fields.parse_fields` reads."""
    texts = [(row["reference"], row["prediction"]) for row in rows if isinstance(row["reference"], str)]
    parsed = [(_group(reference), _group(prediction) or {}) for reference, prediction in texts]
    pairs = [(expected, found) for expected, found in parsed if expected is not None]
    if not texts or len(pairs) < FIELDS_SHARE * len(texts):
        return {}
    names = dict.fromkeys(name for column in zip(*pairs, strict=True) for values in column for name in values)
    scores: dict[str, FieldScore] = {}
    for name in names:
        hits = [found.get(name) == expected[name] for expected, found in pairs if name in expected]
        added = sum(name in found and name not in expected for expected, found in pairs)
        scores[name] = {"count": len(hits), "accuracy": 100 * sum(hits) / len(hits) if hits else None, "added": added}
    return scores


def _group(text: str) -> dict[str, list[str]] | None:
    """The values of each name, without regard to spacing."""
    fields = parse_fields(text)
    if fields is None:
        return None
    values: dict[str, list[str]] = {}
    for field in fields:
        values.setdefault(field.name, []).append(" ".join(field.value.split()))
    return values


def _split(text: str) -> list[tuple[str, Span]]:
    """The units that are compared, with their characters."""
    return [(match[0], match.span()) for match in _UNITS.finditer(text)]


def _match(output: str, reference: str) -> tuple[list[tuple[str, Span]], list[tuple[str, Span]], SequenceMatcher[str]]:
    found, expected = _split(output), _split(reference)
    first, second = ([text for text, _ in units] for units in (found, expected))
    return found, expected, SequenceMatcher(None, first, second, autojunk=False)


def _join(units: Sequence[tuple[str, Span]], start: int, end: int, text: str) -> Span:
    """The characters of units[start:end]; of none, the place before units[start]."""
    if start == end:
        place = units[start][1][0] if start < len(units) else len(text)
        return place, place
    return units[start][1][0], units[end - 1][1][1]
