"""The scores of a model on pairs of texts."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import PreTrainedTokenizerBase

from ..inference.predictor import generate_outputs
from ..model.modeling_copynet import CopyNetForConditionalGeneration
from .metrics import score_outputs, with_objects


def evaluate_pairs(
    model: CopyNetForConditionalGeneration, tokenizer: PreTrainedTokenizerBase, pairs: Dataset, **options: Any
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """All scores of the pairs' outputs, and one record for each pair; `options` go to `generate_outputs`, and `facts`
    where the pairs have some.

    To those of `score_outputs` comes, for a model that copies, copy_mode_fraction: the share of the words of the best
    outputs that the copy mode gave more than half of the probability. `oov_recall` is None when no reference holds a
    word that is in its source and not in the vocabulary.
    """
    sources, references = list(pairs["text"]), list(pairs["summary"])
    if "facts" in pairs.column_names:
        options = {"facts": list(pairs["facts"]), **options}
    start = time.perf_counter()
    outputs = generate_outputs(model, tokenizer, sources, **options)
    known = options.get("facts") or [None] * len(sources)
    seconds = time.perf_counter() - start
    scores: dict[str, Any] = {"oov_recall": None} | score_outputs(
        [output.texts for output in outputs],
        references,
        [with_objects(*row) for row in zip(sources, known, strict=True)],
        words=tokenizer.tokenize,
        vocabulary=tokenizer.get_vocab(),
    )
    if model.config.copies:
        flags = [flag for output in outputs for flag in output.copied]
        scores["copy_mode_fraction"] = 100 * sum(flags) / len(flags) if flags else 0.0
    ids = list(pairs["id"]) if "id" in pairs.column_names else None
    predictions = [
        ({} if ids is None else {"id": ids[row]})
        | {
            "text": sources[row],
            "reference": references[row],
            "prediction": output.texts[0],
            "words": output.pieces,
            "copied": output.copied,
        }
        | ({"facts": options["facts"][row]} if "facts" in options else {})
        | ({"predictions": output.texts} if len(output.texts) > 1 else {})
        for row, output in enumerate(outputs)
    ]
    return scores | {"seconds": round(seconds, 2)}, predictions


def write_predictions(path: Path, predictions: Iterable[Mapping[str, Any]]) -> None:
    """One JSON object a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        for prediction in predictions:
            file.write(json.dumps(prediction, ensure_ascii=False) + "\n")
