"""Minimum Bayes risk decoding (Kumar and Byrne 2004) over samples of equal weight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise


def choose_consensus(outputs: Sequence[str]) -> str:
    """The output with the highest total utility against all outputs; the first one of a tie.

    The utility of two outputs is F1 over characters plus half of F1 over character bigrams.
    """
    counts = [(Counter(output), Counter(pairwise(output))) for output in outputs]

    def total_utility(index: int) -> float:
        characters, bigrams = counts[index]
        total = sum(_f1(characters, others) + 0.5 * _f1(bigrams, other_bigrams) for others, other_bigrams in counts)
        return round(total, 9)  # ties stay ties in whatever order the floats are added

    return outputs[max(range(len(outputs)), key=total_utility)]


def _f1(counts: Counter, others: Counter) -> float:
    both = counts.total() + others.total()
    return 2 * (counts & others).total() / both if both else 0.0
