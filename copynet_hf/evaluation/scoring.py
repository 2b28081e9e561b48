"""The scores of a model on pairs of texts."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from datasets import Dataset
from transformers import PreTrainedTokenizerBase

from ..data.features import NO_FACTS, UNKNOWN_FEATURES, are_unknown, with_objects
from ..data.files import Row, warn_once
from ..inference.predictor import predict_in_batches
from ..model.confidence import Calibration, calibrate
from ..model.prediction import CopyModel, Prediction, describe_incomplete, reads_facts, reads_features
from .calibration import MIN_PAIRS, fit_calibration
from .compute_metrics import normalize_unknown, spells_words, split_words
from .metrics import Texts, find_exact_matches, score_outputs
from .reliability import measure_auroc, measure_calibration_error, measure_surest

logger = logging.getLogger(__name__)

FIELDS = (  # of `Prediction`
    "score",
    "confidence",
    "words",
    "word_scores",
    "copied",
    "source_spans",
    "is_truncated",
    "is_cut",
)
SHARES = (0.5, 0.7, 0.9)  # the exact match of all outputs is a score anyway
CALIBRATION_PAIRS = 1000
Scores = dict[str, Any]  # floats, or None


def evaluate_pairs(
    model: CopyModel, tokenizer: PreTrainedTokenizerBase, pairs: Dataset | Sequence[Row], **options: Any
) -> tuple[Scores, list[dict[str, Any]]]:
    """Generates an output for each pair's text and scores it against the pair's summary.

    Args:
        pairs: with the columns `text` and `summary`, and optionally `facts`, `features` and `id`; a dataset, or dicts.
        options: arguments of `predict_in_batches`.

    Returns:
        The scores: those of `score_outputs`, edit distances only where words are spelled in characters, with
        `oov_recall` None where no reference contains an out-of-vocabulary word of its source; those of
        `score_confidence`; `seconds`; and for a model that copies `copy_mode_fraction`, the percentage of the words of
        the best outputs, or of the parts that they are joined from, for which copying accounts for more than half of
        the probability.
        For each pair a row of its text, reference and prediction, whether that is right, and `FIELDS` of it.
    """
    pairs = _to_dataset(pairs)
    sources, references = list(pairs["text"]), list(pairs["summary"])
    read = {name: list(pairs[name]) for name in ("id", "facts", "features") if name in pairs.column_names}
    if reads_facts(model) and "facts" not in read:
        warn_once(NO_FACTS.format("the model"))
    if reads_features(model) and are_unknown(read.get("features", ()), tokenizer):
        warn_once(UNKNOWN_FEATURES.format("the model"))
    start = time.perf_counter()
    predictions = predict_pairs(model, tokenizer, pairs, **options)
    seconds = time.perf_counter() - start
    num_truncated = sum(outputs[0].is_truncated for outputs in predictions)
    for warning in describe_incomplete(num_truncated, 0, len(sources)):  # many are cut early in a training
        warn_once(warning)
    texts = [[output.text for output in outputs] for outputs in predictions]
    scores: Scores = {"oov_recall": None} | score_outputs(
        [[normalize_unknown(tokenizer, text) for text in row] for row in texts],
        references,
        [with_objects(*row) for row in zip(sources, read.get("facts", [None] * len(sources)), strict=True)],
        words=partial(split_words, tokenizer),
        vocabulary=tokenizer.get_vocab(),
        edit_distance=spells_words(getattr(tokenizer, "segmenter", None), sources),
    )
    best = [outputs[0] for outputs in predictions]
    right = find_right(tokenizer, best, references)
    scores |= score_confidence(best, right)
    if model.config.copies:
        flags = [flag for output in best for flag in output.copied]
        scores["copy_mode_fraction"] = 100 * sum(flags) / len(flags) if flags else 0.0
    rows: list[dict[str, Any]] = [
        ({"id": read["id"][row]} if "id" in read else {})
        | {"text": sources[row], "reference": references[row], "prediction": output.text, "right": right[row]}
        | {name: getattr(output, name) for name in FIELDS}
        | {name: read[name][row] for name in ("facts", "features") if name in read}
        | ({"predictions": texts[row]} if len(texts[row]) > 1 else {})
        for row, output in enumerate(best)
    ]
    return scores | {"seconds": round(seconds, 2)}, rows


def _to_dataset(pairs: Dataset | Sequence[Row]) -> Dataset:
    if not isinstance(pairs, Dataset):
        for row in pairs:
            if not isinstance(row, Mapping):
                kind = type(pairs).__name__
                raise TypeError(f"pairs is a {kind} of {type(row).__name__}: pass a Dataset or a list of dicts")
        names = dict.fromkeys(name for row in pairs for name in row)
        pairs = Dataset.from_list([{name: row.get(name) for name in names} for row in pairs])
    if missing := {"text", "summary"} - {*pairs.column_names}:
        raise ValueError(f"the pairs have no {' and no '.join(sorted(missing))}: pass a dataset or dicts with both")
    return pairs


def predict_pairs(
    model: CopyModel, tokenizer: PreTrainedTokenizerBase, pairs: Dataset, **options: Any
) -> list[list[Prediction]]:
    """The outputs of `predict_in_batches` for the texts of the pairs, with their facts and features."""
    columns = {name: list(pairs[name]) for name in ("facts", "features") if name in pairs.column_names}
    return predict_in_batches(model, tokenizer, list(pairs["text"]), **{**columns, **options})


def find_right(tokenizer: PreTrainedTokenizerBase, outputs: Sequence[Prediction], references: Texts) -> list[bool]:
    """Whether each output is right, by exact match."""
    texts = [normalize_unknown(tokenizer, output.text) for output in outputs]
    return find_exact_matches(texts, references)


def score_confidence(outputs: Sequence[Prediction], right: Sequence[bool]) -> Scores:
    """How well the outputs' probabilities say which of them are right, in percent.

    Returns:
        `exact_match_surest_50`, and so on: the exact match of the surest 50 %, 70 % and 90 % of the outputs; `auroc`,
        None if all are right, or none is; `calibration_error` of the confidence and `calibration_error_of_score`,
        without its calibration.
    """
    scores, confidences = ([getattr(output, name) or 0.0 for output in outputs] for name in ("score", "confidence"))
    auroc = measure_auroc(confidences, right)
    surest = measure_surest(confidences, right, SHARES)
    return {f"exact_match_surest_{share}": value for share, value in surest.items()} | {
        "auroc": None if auroc is None else 100 * auroc,
        "calibration_error": 100 * measure_calibration_error(confidences, right),
        "calibration_error_of_score": 100 * measure_calibration_error(scores, right),
    }


def calibrate_model(
    model: CopyModel, tokenizer: PreTrainedTokenizerBase, pairs: Dataset | Sequence[Row]
) -> Calibration | None:
    """Sets the calibration in the model's config to that of its outputs for validation pairs, and logs what it makes
    of scores: the confidence of an output is then the probability that it is right (Platt 1999). With fewer than 20
    pairs, it sets and returns None: the confidence is the score. Save the model afterwards.

    Args:
        pairs: with the columns `text` and `summary`, and optionally `facts` and `features`; a dataset, or dicts. At
            most 1,000 of them are used, drawn at random.
    """
    pairs = _to_dataset(pairs)
    if len(pairs) < MIN_PAIRS:
        logger.info("confidence: the score, as %d validation pairs are too few to calibrate it", len(pairs))
        model.config.calibration = None
        return None
    if len(pairs) > CALIBRATION_PAIRS:
        pairs = pairs.shuffle(seed=0).select(range(CALIBRATION_PAIRS))
    best = [outputs[0] for outputs in predict_pairs(model, tokenizer, pairs)]
    right = find_right(tokenizer, best, list(pairs["summary"]))
    calibration = fit_calibration([output.score or 0.0 for output in best], right)
    assert calibration is not None
    model.config.calibration = list(calibration)
    examples = (f"{calibrate(score, calibration):.2f} for a score of {score:g}" for score in (0.5, 0.9, 0.99))
    message = "confidence: calibrated on %d validation pairs, %d of whose outputs are wrong: %s"
    logger.info(message, len(right), len(right) - sum(right), ", ".join(examples))
    return calibration
