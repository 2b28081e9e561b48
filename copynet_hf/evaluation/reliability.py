"""How well scores say which outputs are right: how right the surest are, AUROC, and calibration error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

NUM_BINS = 15  # as in Guo et al. 2017

Array = NDArray[Any]


def measure_coverage(scores: Sequence[float] | Array, right: Sequence[bool] | Array) -> Array:
    """How right the surest k outputs are, for k = 1 … N.

    Args:
        scores: N scores, higher for surer outputs.
        right: N flags.

    Returns:
        (N) shares from 0 to 1. Among outputs of one score, which have no order, each counts as their mean.
    """
    order = np.argsort(-np.asarray(scores, float), kind="stable")
    ranked, flags = np.asarray(scores, float)[order], np.asarray(right, float)[order]
    _, groups, sizes = np.unique(-ranked, return_inverse=True, return_counts=True)
    means = np.bincount(groups, flags) / sizes
    return means[groups].cumsum() / np.arange(1, len(flags) + 1)


def measure_surest(
    scores: Sequence[float] | Array, right: Sequence[bool] | Array, shares: Sequence[float]
) -> dict[str, float]:
    """For each share of the outputs, as a percentage such as "70", how many percent of the surest ones are right."""
    curve = measure_coverage(scores, right)
    counts = {f"{100 * share:g}": max(round(share * len(curve)), 1) for share in shares}
    return {share: 100 * float(curve[count - 1]) for share, count in counts.items()}


def measure_accepted(
    confidences: Sequence[float] | Array, right: Sequence[bool] | Array, thresholds: Sequence[float]
) -> dict[float, tuple[int, int]]:
    """For each threshold, how many outputs have at least this confidence, and how many of these are right."""
    values, flags = np.asarray(confidences, float), np.asarray(right, bool)
    accepted = {threshold: values >= threshold for threshold in thresholds}
    return {threshold: (int(each.sum()), int((each & flags).sum())) for threshold, each in accepted.items()}


def measure_auroc(scores: Sequence[float] | Array, right: Sequence[bool] | Array) -> float | None:
    """The probability that a right output has a higher score than a wrong one, from 0 to 1; a tie counts as half. None
    if all outputs are right, or none is."""
    values, flags = np.asarray(scores, float), np.asarray(right, bool)
    num_right, num_wrong = int(flags.sum()), int((~flags).sum())
    if not num_right or not num_wrong:
        return None
    _, groups, sizes = np.unique(values, return_inverse=True, return_counts=True)
    ranks = sizes.cumsum() - (sizes - 1) / 2  # the mean rank of each score
    return float((ranks[groups][flags].sum() - num_right * (num_right + 1) / 2) / (num_right * num_wrong))


def measure_calibration_error(confidences: Sequence[float] | Array, right: Sequence[bool] | Array) -> float:
    """The expected calibration error (Guo et al. 2017, Eq. 3), from 0 to 1: how far confidence and the share of right
    outputs are apart, on average over `NUM_BINS` bins of equal width."""
    values, flags = np.asarray(confidences, float), np.asarray(right, float)
    bins = np.clip(np.ceil(values * NUM_BINS) - 1, 0, NUM_BINS - 1).astype(int)
    gaps = np.bincount(bins, values - flags, NUM_BINS)  # of each bin, times its size
    return float(np.abs(gaps).sum() / len(values))
