"""Exact match alone: the metrics of the package come with ROUGE and BLEU, which take minutes on 20,000 outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence


def single_spaced(text: str) -> str:
    return " ".join(text.split())


def exact_match(
    ranked: Sequence[Sequence[str]],
    answers: Sequence[Sequence[str]],
    k: int = 1,
    form: Callable[[str], str] = single_spaced,
) -> float:
    """The percentage of rows with an answer among the first k outputs; texts of the same form are the same."""
    hits = [
        bool({*map(form, outputs[:k])} & {*map(form, right)}) for outputs, right in zip(ranked, answers, strict=True)
    ]
    return 100 * sum(hits) / len(hits)


def repeated(outputs: Sequence[Sequence[str]], n: int = 3) -> float:
    """The percentage of the runs of n words that stood before in the same output (See et al. 2017, Figure 4)."""
    runs = [[tuple(words[first : first + n]) for first in range(len(words) - n + 1)] for words in outputs]
    total = sum(map(len, runs))
    return 100 * sum(len(one) - len(set(one)) for one in runs) / total if total else 0.0
