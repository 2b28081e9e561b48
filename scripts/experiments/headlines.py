"""Lessons for a summariser of few pairs, made of texts alone: find the clauses that the rest of the text speaks of.

As in PEGASUS (Zhang et al. 2020, gap sentences chosen by ROUGE), with clauses, since these texts are two or three
sentences long; and the chosen clauses mostly stay in the text, since headlines mostly quote.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator

CLAUSE = re.compile(r"[^，。；！？：,;!?]+[，。；！？：,;!?”」]*")
ENDS = "，。；！？：,;!?"
LENGTHS = (10, 32)  # characters of a lesson's target
KEPT = 0.6  # of the targets stay in their texts
LEAD = 0.15  # what being the first is worth, beside the share of characters that come again: news begin with the news


def lessons(texts: Iterable[str], of_each: int, seed: int) -> list[dict[str, str]]:
    """Pairs `text`, `summary`, at most `of_each` of a text, in random order; fewer where it has too few clauses."""
    chance = random.Random(seed)
    made = [pair for text in texts for pair in _lessons(text, of_each, chance)]
    chance.shuffle(made)
    return made


def _lessons(text: str, number: int, chance: random.Random) -> Iterator[dict[str, str]]:
    clauses = CLAUSE.findall(text)
    ranked = sorted(_stretches(clauses, chance), reverse=True)
    for _ in range(number if ranked else 0):
        _, first, end = ranked[min(int(chance.expovariate(1.0)), len(ranked) - 1)]
        target = "".join(clauses[first:end])
        rest = "".join(clauses[:first] + clauses[end:])
        yield {"text": text if chance.random() < KEPT or not rest else rest, "summary": target.rstrip(ENDS)}


def _stretches(clauses: list[str], chance: random.Random) -> Iterator[tuple[float, int, int]]:
    """One to three clauses side by side, that are as long as a headline, with what speaks for them."""
    for first in range(len(clauses)):
        for end in range(first + 1, min(first + 3, len(clauses)) + 1):
            target, rest = "".join(clauses[first:end]), "".join(clauses[:first] + clauses[end:])
            if LENGTHS[0] <= len(target) <= LENGTHS[1]:
                again = (Counter(target) & Counter(rest)).total() / len(target)
                yield again + LEAD * (first == 0) + 0.1 * chance.random(), first, end
