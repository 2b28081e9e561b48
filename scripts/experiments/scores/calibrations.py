"""Calibrations that were compared with the one of the package, by cross-validation."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copynet_hf.evaluation.calibration import MIN_PAIRS, fit_calibration, fit_logistic
from copynet_hf.evaluation.reliability import measure_calibration_error
from copynet_hf.model.confidence import calibrate, logit

Array = NDArray[Any]
# From scores and lengths of some outputs, and whether they are right, to the confidences of others.
Calibrate = Callable[[Array, Array, Array, Array, Array], Array]
NUM_FOLDS, FEW_PAIRS, REPEATS = 10, 50, 20


def _keep_scores(scores: Array, lengths: Array, right: Array, other_scores: Array, other_lengths: Array) -> Array:
    return other_scores


def _by_platt(scores: Array, lengths: Array, right: Array, other_scores: Array, other_lengths: Array) -> Array:
    """The calibration of the package."""
    calibration = fit_calibration(scores.tolist(), right.tolist())
    assert calibration is not None
    return np.array([calibrate(score, calibration) for score in other_scores])


def _by_platt_over_length(
    scores: Array, lengths: Array, right: Array, other_scores: Array, other_lengths: Array
) -> Array:
    """The sigmoid of a linear function of the score's logit and the log length."""
    return np.asarray(1 / (1 + np.exp(-_regress_on_length(scores, lengths, right, other_scores, other_lengths)[1])))


def _by_temperature(scores: Array, lengths: Array, right: Array, other_scores: Array, other_lengths: Array) -> Array:
    """score^(1/T), for the T of the highest likelihood."""
    targets = _smooth(right)

    def compute_loss(temperature: float) -> float:
        return _log_loss(scores ** (1 / temperature), targets)

    best = min(np.exp(np.linspace(-3, 3, 121)), key=compute_loss)
    return np.asarray(other_scores ** (1 / best))


def _by_isotonic(scores: Array, lengths: Array, right: Array, other_scores: Array, other_lengths: Array) -> Array:
    """The rising function of the score that is nearest to the targets, linear between the outputs."""
    return _fit_rising(np.array([*map(logit, scores)]), right, np.array([*map(logit, other_scores)]))


def _by_isotonic_over_length(
    scores: Array, lengths: Array, right: Array, other_scores: Array, other_lengths: Array
) -> Array:
    """The rising function of what `_by_platt_over_length` takes the sigmoid of."""
    logits, others = _regress_on_length(scores, lengths, right, other_scores, other_lengths)
    return _fit_rising(logits, right, others)


def _regress_on_length(
    scores: Array, lengths: Array, right: Array, other_scores: Array, other_lengths: Array
) -> tuple[Array, Array]:
    """The logits of a logistic regression on the score's logit and the log length: of the outputs that it is fitted
    on, with the targets and the prior of `fit_calibration`, and of the others."""
    inputs, others = (
        np.stack([np.array([*map(logit, values)]), np.log(counts), np.ones(len(values))], axis=1)
        for values, counts in ((scores, lengths), (other_scores, other_lengths))
    )
    num_wrong = int((~right).sum())
    weights = fit_logistic(inputs, _smooth(right), num_wrong, np.array([1.0, 0.0, 0.0]), np.full(3, True))
    return inputs @ weights, others @ weights


CALIBRATIONS: dict[str, Calibrate] = {
    "none": _keep_scores,
    "Platt": _by_platt,
    "Platt over score and length": _by_platt_over_length,
    "temperature": _by_temperature,
    "isotonic": _by_isotonic,
    "isotonic over score and length": _by_isotonic_over_length,
}


def compare_calibrations(scores: Sequence[float], lengths: Sequence[int], right: Sequence[bool]) -> dict[str, Any]:
    """Of each calibration the calibration error in percent and the log loss, fitted on all other outputs
    (cross-validation), and the same, fitted on `FEW_PAIRS` of them; nothing for too few outputs."""
    arrays = np.asarray(scores, float), np.asarray(lengths, float), np.asarray(right, bool)
    order = random.Random(0).sample(range(len(right)), len(right))
    if len(right) < 2 * max(FEW_PAIRS, MIN_PAIRS):
        return {}
    folds = [(sorted({*order} - {*order[start::NUM_FOLDS]}), order[start::NUM_FOLDS]) for start in range(NUM_FOLDS)]
    few = []
    for seed in range(REPEATS):
        shuffled = random.Random(seed + 1).sample(order, len(order))
        few.append((shuffled[:FEW_PAIRS], shuffled[FEW_PAIRS:]))
    return {name: [*_measure(fit, arrays, folds), *_measure(fit, arrays, few)] for name, fit in CALIBRATIONS.items()}


def _measure(
    fit: Calibrate, arrays: tuple[Array, Array, Array], splits: Sequence[tuple[list[int], list[int]]]
) -> list[float]:
    """Calibration error and log loss over the held-out outputs of all splits."""
    scores, lengths, right = arrays
    confidences = np.concatenate(
        [fit(scores[own], lengths[own], right[own], scores[held], lengths[held]) for own, held in splits]
    )
    flags = np.concatenate([right[held] for _, held in splits])
    return [round(100 * measure_calibration_error(confidences, flags), 2), round(_log_loss(confidences, flags), 4)]


def _smooth(right: Array) -> Array:
    """Platt's targets."""
    wins, losses = right.sum(), (~right).sum()
    return np.where(right, (wins + 1) / (wins + 2), 1 / (losses + 2))


def _fit_rising(inputs: Array, right: Array, others: Array) -> Array:
    """Isotonic regression by pooling adjacent violators."""
    order = np.argsort(inputs, kind="stable")
    blocks: list[tuple[float, int]] = []
    for target in _smooth(right)[order]:
        total, count = float(target), 1
        while blocks and blocks[-1][0] / blocks[-1][1] >= total / count:
            total, count = total + blocks[-1][0], count + blocks[-1][1]
            blocks.pop()
        blocks.append((total, count))
    values = np.concatenate([np.full(count, total / count) for total, count in blocks])
    return np.interp(others, inputs[order], values)


def _log_loss(confidences: Array, targets: Array) -> float:
    values = np.clip(confidences, 1e-6, 1 - 1e-6)
    return float(-(targets * np.log(values) + (1 - targets) * np.log1p(-values)).mean())
