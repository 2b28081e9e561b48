"""Scores of intents and slots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..data.slots import INTENT

Records = Sequence[Mapping[str, Any]]


def score_slots(
    predicted: Sequence[Records | None], expected: Sequence[Records], texts: Sequence[str]
) -> dict[str, Any]:
    """Exact match, slot F1 and intent accuracy, in percent, where a slot is right if its name and its place in the
    text are; and how many values of slots there are, how many have a place, and how many are not in the text.

    Args:
        predicted: of each text its records; None for an output in another form.
    """
    num_found = num_expected = num_hits = num_exact = num_intents = 0
    values = placed = invented = 0
    for records, references, text in zip(predicted, expected, texts, strict=True):
        slots = [record for record in records or () if record["slot"] != INTENT]
        found, right = _list_places(slots), _list_places([each for each in references if each["slot"] != INTENT])
        hits = len(found & right)
        has_intent = _find_intents(records or ()) == _find_intents(references)
        num_hits, num_found, num_expected = num_hits + hits, num_found + len(slots), num_expected + len(right)
        num_intents += has_intent
        num_exact += has_intent and found == right and len(slots) == len(right)
        values += len(slots)
        placed += sum(record["start"] is not None for record in slots)
        invented += sum(" ".join(record["value"].split()) not in text for record in slots)
    return {
        "exact match": 100 * num_exact / len(texts),
        "slot F1": 200 * num_hits / (num_found + num_expected) if num_found + num_expected else 100.0,
        "intent": 100 * num_intents / len(texts),
        "values": values,
        "placed": placed,
        "invented": invented,
    }


def _list_places(slots: Records) -> set[tuple[str, int | None, int | None]]:
    return {(record["slot"], record["start"], record["end"]) for record in slots}


def _find_intents(records: Records) -> list[str]:
    return [record["value"] for record in records if record["slot"] == INTENT]
