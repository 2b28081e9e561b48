"""Predictions for many texts, in batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tqdm.auto import tqdm  # type: ignore[import-untyped]
from transformers import PreTrainedTokenizerBase

from ..model.prediction import CopyModel, Prediction, predict


def parse_facts(lines: str) -> list[list[str]]:
    """Triples from lines of the form "subject | property | object"; empty lines are skipped.

    Raises:
        ValueError: a line has another form.
    """
    facts = [[part.strip() for part in line.split("|")] for line in lines.splitlines() if line.strip()]
    for fact in facts:
        if len(fact) != 3 or not all(fact):
            raise ValueError(
                f"{' | '.join(fact)!r} is not a fact: write subject | property | object, one on each line"
            )
    return facts


def predict_in_batches(
    model: CopyModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    *,
    facts: Sequence[Any] | None = None,
    features: Sequence[Any] | None = None,
    batch_size: int = 32,
    progress: bool = False,
    **options: Any,
) -> list[list[Prediction]]:
    """`predict` in batches of texts of similar length.

    Args:
        facts: for each text its facts or None; see `CopyNetTokenizer`.
        features: for each text its features or None; see `CopyNetTokenizer`.
        progress: whether to show a progress bar on stderr.
        options: arguments of `predict` and `generate()`, such as `max_source_length` and `num_beams`; those that are
            None are left out.

    Returns:
        For each text, in the order of `texts`, its outputs, best first.
    """
    order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
    options = {name: value for name, value in options.items() if value is not None}
    predictions: list[list[Prediction]] = [[]] * len(texts)
    with tqdm(total=len(texts), unit="texts", disable=not progress) as bar:
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            batch_texts, batch_facts, batch_features = (
                None if column is None else [column[row] for row in rows] for column in (texts, facts, features)
            )
            assert batch_texts is not None
            batch = predict(model, tokenizer, batch_texts, facts=batch_facts, features=batch_features, **options)
            for row, outputs in zip(rows, batch, strict=True):
                predictions[row] = outputs
            bar.update(len(rows))
    return predictions
