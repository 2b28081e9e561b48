"""How well scores say which outputs are right, compared with loops over pairs and bins."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from copynet_hf.evaluation.reliability import (
    measure_accepted,
    measure_auroc,
    measure_calibration_error,
    measure_coverage,
    measure_surest,
)


def draw(count, seed, digits):
    draw = random.Random(seed)
    scores = [round(draw.random(), digits) for _ in range(count)]
    return scores, [draw.random() < score for score in scores]


@pytest.mark.parametrize("digits", [1, 6])
@pytest.mark.parametrize("count", [2, 7, 63])
def test_auroc_counts_the_pairs_in_the_right_order(count, digits):
    scores, right = draw(count, count, digits)
    right[0], right[1] = True, False
    pairs = [(a, b) for a, b in itertools.product(range(count), repeat=2) if right[a] and not right[b]]
    expected = sum((scores[a] > scores[b]) + (scores[a] == scores[b]) / 2 for a, b in pairs) / len(pairs)
    assert measure_auroc(scores, right) == pytest.approx(expected)
    assert measure_auroc(scores, [True] * count) is None
    assert measure_auroc(scores, [False] * count) is None


@pytest.mark.parametrize("count", [1, 7, 65])
def test_the_surest_are_those_of_the_highest_scores(count):
    scores, right = draw(count, count, 9)
    ranked = [flag for _, flag in sorted(zip(scores, right, strict=True), reverse=True)]
    expected = [sum(ranked[:k]) / k for k in range(1, count + 1)]
    assert measure_coverage(scores, right).tolist() == pytest.approx(expected)
    assert measure_surest(scores, right, [1.0])["100"] == pytest.approx(100 * sum(right) / count)


def test_outputs_of_one_score_count_as_their_mean():
    assert measure_coverage([0.5, 0.9, 0.5, 0.5], [True, True, False, False]).tolist() == pytest.approx(
        [1, (1 + 1 / 3) / 2, (1 + 2 / 3) / 3, 2 / 4]
    )
    assert measure_surest([0.1, 0.9], [False, True], (0.5, 0.7, 0.9, 1.0)) == {
        "50": 100.0,
        "70": 100.0,
        "90": 50.0,
        "100": 50.0,
    }


def test_outputs_are_accepted_from_the_threshold_on():
    confidences, right = [0.9, 0.95, 0.8999, 0.2], [True, False, True, False]
    assert measure_accepted(confidences, right, (0.0, 0.9, 0.92, 0.99)) == {
        0.0: (4, 2),
        0.9: (2, 1),
        0.92: (1, 0),
        0.99: (0, 0),
    }


@pytest.mark.parametrize("count", [1, 7, 65])
def test_the_calibration_error_is_the_gap_in_each_bin(count):
    scores, right = draw(count, count, 2)
    scores[0] = 0.0
    scores[-1] = 1.0
    expected = 0.0
    for lower in range(15):
        inside = [n for n in range(count) if max(math.ceil(scores[n] * 15) - 1, 0) == lower]
        if inside:
            gap = sum(scores[n] for n in inside) / len(inside) - sum(right[n] for n in inside) / len(inside)
            expected += len(inside) / count * abs(gap)
    assert measure_calibration_error(scores, right) == pytest.approx(expected)
