"""The scores of a model on pairs of texts."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import PreTrainedTokenizerBase

from ..data.records import warn_once
from ..inference.part_files import write_whole
from ..inference.predictor import describe_truncated, predict_in_batches
from ..model.prediction import CopyModel
from .compute_metrics import normalize_unknown, spells_words, with_objects
from .metrics import score_outputs

Scores = dict[str, Any]  # floats, or None


def evaluate_pairs(
    model: CopyModel, tokenizer: PreTrainedTokenizerBase, pairs: Dataset, **options: Any
) -> tuple[Scores, list[dict[str, object]]]:
    """Generates an output for each pair's text and scores it against the pair's summary.

    Args:
        pairs: with the columns `text` and `summary`, and optionally `facts`, `features` and `id`.
        options: arguments of `predict_in_batches`.

    Returns:
        The scores: those of `score_outputs`, edit distances only where words are spelled in characters, with
        `oov_recall` None where no reference contains an out-of-vocabulary word of its source; `seconds`; and for a
        model that copies `copy_mode_fraction`, the percentage of the words of the best outputs for which copying
        accounts for more than half of the probability.
        For each pair a record of its text, reference and prediction, and what was copied.
    """
    sources, references = list(pairs["text"]), list(pairs["summary"])
    more = {name: list(pairs[name]) for name in ("facts", "features") if name in pairs.column_names}
    options = {**more, **options}
    start = time.perf_counter()
    predictions = predict_in_batches(model, tokenizer, sources, **options)
    seconds = time.perf_counter() - start
    if num_truncated := sum(outputs[0].is_truncated for outputs in predictions):
        warn_once(describe_truncated(num_truncated, len(sources)))
    texts = [[output.text for output in outputs] for outputs in predictions]
    facts = options.get("facts") or [None] * len(sources)
    scores: Scores = {"oov_recall": None} | score_outputs(
        [[normalize_unknown(tokenizer, text) for text in row] for row in texts],
        references,
        [with_objects(*row) for row in zip(sources, facts, strict=True)],
        words=tokenizer.tokenize,
        vocabulary=tokenizer.get_vocab(),
        edit_distance=spells_words(getattr(tokenizer, "segmenter", None), sources),
    )
    best = [outputs[0] for outputs in predictions]
    if model.config.copies:
        flags = [flag for output in best for flag in output.copied]
        scores["copy_mode_fraction"] = 100 * sum(flags) / len(flags) if flags else 0.0
    ids = list(pairs["id"]) if "id" in pairs.column_names else None
    records = [
        ({} if ids is None else {"id": ids[row]})
        | {
            "text": sources[row],
            "reference": references[row],
            "prediction": output.text,
            "words": output.words,
            "copied": output.copied,
        }
        | {name: options[name][row] for name in ("facts", "features") if name in options}
        | ({"predictions": texts[row]} if len(texts[row]) > 1 else {})
        for row, output in enumerate(best)
    ]
    return scores | {"seconds": round(seconds, 2)}, records


def write_predictions(path: Path, records: Iterable[Mapping[str, object]]) -> None:
    """Writes the records of `evaluate_pairs`, one JSON object per line; the file is there once it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with write_whole(path) as file:
        for record in records:
            file.write((json.dumps(record, ensure_ascii=False) + "\n").encode())
