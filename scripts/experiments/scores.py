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
