"""Of several outputs the one that the others agree with: minimum Bayes risk (Kumar and Byrne 2004), equal weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise


def most_alike(outputs: Sequence[str]) -> str:
    """The output with the highest sum of F1 with all of them: on characters, and half as much on pairs of them.

    The first of several that are equal.
    """
    counts = [(Counter(output), Counter(pairwise(output))) for output in outputs]

    def agreement(index: int) -> float:
        characters, pairs = counts[index]
        total = sum(_f1(characters, others) + 0.5 * _f1(pairs, of_others) for others, of_others in counts)
        return round(total, 9)  # equal ones are equal, in whatever order they were added up

    return outputs[max(range(len(outputs)), key=agreement)]


def _f1(one: Counter, other: Counter) -> float:
    both = one.total() + other.total()
    return 2 * (one & other).total() / both if both else 0.0
