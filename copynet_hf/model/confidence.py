"""The probability that an output is right, from the probability that the model gives it (Platt 1999).

Plain Python, as the server and the ONNX backend apply it as well; `serving/web/copynet.js` is a port.
"""

from __future__ import annotations

import math
from typing import NamedTuple

LOWEST_SCORE, HIGHEST_SCORE = 1e-300, 1 - 1e-6  # beyond it a product of numbers of single precision is rounding


class Calibration(NamedTuple):
    """a and b of `calibrate`; a is above 0, so that the order of the outputs is that of their scores."""

    slope: float = 1.0
    intercept: float = 0.0


def calibrate(score: float, calibration: Calibration) -> float:
    """1 / (1 + exp(−a · logit(score) − b)), the probability that an output is right."""
    exponent = -calibration.slope * logit(score) - calibration.intercept
    return 1 / (1 + math.exp(exponent)) if exponent < 700 else 0.0


def logit(score: float) -> float:
    """log p − log(1 − p) of a probability, which is kept from 0 and 1."""
    score = min(max(score, LOWEST_SCORE), HIGHEST_SCORE)
    return math.log(score) - math.log1p(-score)


def read_calibration(config: object) -> Calibration | None:
    """The calibration in a model's config; None: there is none, and the confidence is the score.

    Raises:
        ValueError: the field holds something else.
    """
    saved = getattr(config, "calibration", None)
    if saved is None:
        return None
    if not (
        isinstance(saved, list | tuple)
        and len(saved) == 2
        and all(isinstance(value, int | float) and math.isfinite(value) for value in saved)
        and saved[0] > 0
    ):
        raise ValueError(f"calibration={saved!r:.80} must be two numbers, the first above 0: leave it out.")
    return Calibration(*map(float, saved))
