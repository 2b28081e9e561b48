"""Exact match and repetition, without the ROUGE and BLEU of `score_outputs`, which take minutes on 20,000 outputs; and
how much a score of `score_outputs` varies with the test set."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from copynet_hf.evaluation.metrics import Tokenization, score_outputs

from ..data.rows import collapse_spaces


def score_exact_match(
    ranked: Sequence[Sequence[str]],
    answers: Sequence[Sequence[str]],
    k: int = 1,
    normalize: Callable[[str], str] = collapse_spaces,
) -> float:
    """The percentage of rows with an answer among the first k outputs, both normalised."""
    hits = [
        bool({*map(normalize, outputs[:k])} & {*map(normalize, of_row)})
        for outputs, of_row in zip(ranked, answers, strict=True)
    ]
    return 100 * sum(hits) / len(hits)


def score_repetition(outputs: Sequence[Sequence[str]]) -> float:
    """The percentage of trigrams that occur earlier in the same output (See et al. 2017, Figure 4)."""
    trigrams = [list(zip(words, words[1:], words[2:], strict=False)) for words in outputs]
    total = sum(map(len, trigrams))
    return 100 * sum(len(of_output) - len(set(of_output)) for of_output in trigrams) / total if total else 0.0


def estimate_standard_error(
    predictions: Sequence[str], references: Sequence[str], score: str, tokenize: Tokenization
) -> float:
    """The standard error of a score that is the mean over the outputs, such as exact match or ROUGE.

    Args:
        score, tokenize: as `score_outputs` names them; "auto" could choose differently for each output.
    """
    scores = [
        score_outputs([prediction], [reference], tokenize=tokenize)[score]
        for prediction, reference in zip(predictions, references, strict=True)
    ]
    return statistics.pstdev(scores) / len(scores) ** 0.5
