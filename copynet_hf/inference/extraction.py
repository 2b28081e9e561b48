"""Outputs of named values as records: what each value is, where it is in the text, and how sure it is."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, TypedDict
from unicodedata import category

from ..data.fields import Field, parse_fields
from ..model.prediction import Prediction
from ..model.segmentation import ZERO_WIDTH, Span

# A letter or digit whose words have spaces between them, as they do not in Thai, Lao, Burmese, Khmer, Chinese and
# Japanese; in Korean, none is between a name and the particle after it.
_SPACED = r"[^\W\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\U0003ffff]"


class Record(TypedDict):
    """A value of an output.

    slot: its name.
    value: the value as the output has it.
    start, end: the characters [start, end) of the text that hold the value; None where no part of the text does.
    confidence: the product of the probabilities of its words, those of its name, and the separators before them; None
        without a trace.
    """

    slot: str
    value: str
    start: int | None
    end: int | None
    confidence: float | None


def extract_records(prediction: Prediction | Mapping[str, Any], text: str) -> list[Record] | None:
    """The records of an output in one of the forms that `data.fields.parse_fields` reads, in its order; None for
    another output.

    A value that was copied is where its words were copied from, if that is one place, with the punctuation between
    them. Another value is where it occurs in the text, if it does: where one of its words was copied from, else where
    no other value is, else at the first place; case and spaces may differ. Else it is where its words were copied
    from, if the others are punctuation between these, as in 805.00 from 805,00.

    Args:
        prediction: an output for this text, of `CopyNetPredictor`, its `to_dict()`, or one of
            `pipeline("copy-text2text")`.
    """
    if isinstance(prediction, Mapping):
        output = dict(prediction)
        prediction = Prediction(output.pop("text" if "text" in output else "generated_text"), **output)
    fields = parse_fields(prediction.text)
    if fields is None:
        return None
    steps = _assign_words(prediction.words, fields)
    words = [_find_words(prediction, field, own) for field, own in zip(fields, steps, strict=True)]
    copied = [[span for _, span in inside] for inside in words]
    places = [_join_copied(field, spans, text) for field, spans in zip(fields, copied, strict=True)]
    for number, field in enumerate(fields):
        if places[number] is None:
            places[number] = _choose_place(_find_occurrences(field.value, text), copied[number], places)
        if places[number] is None:
            places[number] = _join_copied(field, _leave_out_marks(words[number]), text)
    scores = prediction.word_scores
    return [
        Record(
            slot=field.name,
            value=field.value,
            start=None if place is None else place[0],
            end=None if place is None else place[1],
            confidence=None if scores is None else math.prod(scores[step] for step in own),
        )
        for field, own, place in zip(fields, steps, places, strict=True)
    ]


def _assign_words(words: Sequence[str], fields: Sequence[Field]) -> list[list[int]]:
    """The words of each field: those that begin after the previous field, and of the last also those after it."""
    ends = [field.end for field in fields[:-1]]
    steps: list[list[int]] = [[] for _ in fields]
    for step, (start, _) in enumerate(locate_words(words)) if fields else ():
        steps[bisect_right(ends, start)].append(step)
    return steps


def locate_words(words: Sequence[str]) -> Iterator[Span]:
    """The characters of each word in the output, without the spaces before it."""
    for word, end in zip(words, accumulate(map(len, words)), strict=True):
        yield end - len(word.lstrip()), end


def _find_words(prediction: Prediction, field: Field, steps: Sequence[int]) -> list[tuple[str, Span | None]]:
    """The words of the value, and where each was copied from."""
    located = list(locate_words(prediction.words))
    inside = [step for step in steps if located[step][0] < field.end and located[step][1] > field.start]
    shown = [step for step in inside if located[step][0] < located[step][1]]
    return [(prediction.words[step].strip(), prediction.source_spans[step]) for step in shown]


def _leave_out_marks(words: Sequence[tuple[str, Span | None]]) -> list[Span | None]:
    """Where the words were copied from, without generated punctuation between copied ones."""
    copied = [place for place, (_, span) in enumerate(words) if span is not None]
    between = range(copied[0], copied[-1]) if copied else range(0)

    def is_mark(place: int) -> bool:
        word, span = words[place]
        return span is None and place in between and all(category(letter)[0] == "P" for letter in word)

    return [span for place, (_, span) in enumerate(words) if not is_mark(place)]


def _join_copied(field: Field, spans: Sequence[Span | None], text: str) -> Span | None:
    """The place from which all words of the value were copied, if they are in their order there, with no other words
    between them, or if the place holds the value."""
    found = [span for span in spans if span is not None]
    if not found or len(found) < len(spans):
        return None
    start, end = min(start for start, _ in found), max(end for _, end in found)
    gaps = [(before[1], after[0]) for before, after in pairwise(found)]
    are_in_row = all(left <= right and not any(map(str.isalnum, text[left:right])) for left, right in gaps)
    return (start, end) if are_in_row or _normalize(text[start:end]) == _normalize(field.value) else None


def _normalize(text: str) -> str:
    return "".join(text.split()).casefold()


def _find_occurrences(value: str, text: str) -> list[Span]:
    """Where the value occurs in the text, not within a word."""
    words = r"\s+".join(map(re.escape, value.split()))
    before = f"(?<!{_SPACED})" if re.match(_SPACED, value[:1]) else ""
    after = f"(?!{_SPACED})" if re.match(_SPACED, value[-1:]) else ""
    found = re.finditer(f"{before}{words}{after}", text, re.IGNORECASE) if words else ()
    return [match.span() for match in found if not _continues(text, match.end())]


def _continues(text: str, place: int) -> bool:
    """Whether the word before this place goes on with a combining mark or a zero-width joiner, in any script."""
    following = text[place : place + 1]
    return bool(following) and (following in ZERO_WIDTH or category(following)[0] == "M")


def _choose_place(found: Sequence[Span], copied: Sequence[Span | None], places: Sequence[Span | None]) -> Span | None:
    def overlaps(span: Span, others: Sequence[Span | None]) -> bool:
        return any(other is not None and span[0] < other[1] and other[0] < span[1] for other in others)

    ranked = sorted(found, key=lambda span: (not overlaps(span, copied), overlaps(span, places)))
    return ranked[0] if ranked else None
