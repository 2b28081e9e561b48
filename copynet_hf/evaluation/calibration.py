"""Fits what turns the score of an output into the probability that it is right (Platt 1999)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..model.confidence import Calibration, logit

Array = NDArray[Any]

MIN_PAIRS = 20  # fewer say nothing
# Logits go down to -690. Where outputs are that improbable, and wrong, the intercept makes up for a larger slope, and
# probable outputs would be called right.
MIN_SLOPE = 0.001
# The weight of (a − 1)² + b² where no output is wrong, so that none shows which scores are too low; n₋ wrong ones
# divide it by n₋ + 1. With 0.1, one model had a confidence of 0.9 or more in all of 2,000 outputs, 233 of them wrong
# (results/recipe.md).
PRIOR = 10.0
MAX_STEPS = 100


def fit_calibration(scores: Sequence[float], right: Sequence[bool]) -> Calibration | None:
    """The calibration of the highest likelihood, with Platt's targets (n₊ + 1) / (n₊ + 2) and 1 / (n₋ + 2) for the n₊
    right and the n₋ wrong outputs; None for fewer than `MIN_PAIRS`. With few outputs, or few wrong ones, the
    confidence stays near the score.

    Args:
        scores: N probabilities of outputs.
        right: N flags.
    """
    if len(scores) < MIN_PAIRS:
        return None
    flags = np.asarray(right, bool)
    num_right, num_wrong = int(flags.sum()), int((~flags).sum())
    targets = np.where(flags, (num_right + 1) / (num_right + 2), 1 / (num_wrong + 2))
    inputs = np.stack([np.array([logit(score) for score in scores]), np.ones(len(scores))], axis=1)
    fit = partial(fit_logistic, inputs, targets, num_wrong)
    weights = fit(np.array([1.0, 0.0]), np.array([True, True]))
    if weights[0] < MIN_SLOPE or not num_right:  # where none is right, nothing says that a higher score is
        weights = fit(np.array([MIN_SLOPE, 0.0]), np.array([False, True]))
    return Calibration(*map(float, weights))


def fit_logistic(inputs: Array, targets: Array, num_wrong: int, prior: Array, is_free: Array) -> Array:
    """The weights (W) of the lowest cross-entropy of the targets, by Newton's method.

    Args:
        inputs: (N, W), the last one constant.
        targets: (N) probabilities.
        num_wrong: n₋, by which `PRIOR` is divided.
        prior: (W) values of the weights without pairs.
        is_free: (W) which of them are fitted; the others are those of the prior.
    """
    strength = PRIOR / (num_wrong + 1)

    def loss(weights: Array) -> float:
        logits = inputs @ weights
        cross_entropy = (np.logaddexp(0, logits) - targets * logits).sum()
        return float(cross_entropy + strength / 2 * ((weights - prior) ** 2).sum())

    mean = targets.mean()
    start = np.zeros_like(prior)  # the curvature is high there
    start[-1] = np.log(mean / (1 - mean))
    weights = np.where(is_free, start, prior)
    for _ in range(MAX_STEPS):
        probs = 1 / (1 + np.exp(-np.clip(inputs @ weights, -700, 700)))
        gradient = inputs.T @ (probs - targets) + strength * (weights - prior)
        curvature = (inputs.T * (probs * (1 - probs))) @ inputs + strength * np.eye(len(prior))
        step = np.zeros_like(weights)
        step[is_free] = np.linalg.solve(curvature[np.ix_(is_free, is_free)], gradient[is_free])
        while loss(weights - step) > loss(weights) + 1e-9:
            step /= 2
        weights = weights - step
        if np.abs(step).max() < 1e-9:
            break
    return weights
