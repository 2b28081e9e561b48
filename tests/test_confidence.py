"""The probability that an output is right: its maths, its fit, and the models that have it."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import torch
from helpers import tiny_model, tiny_tokenizer

from copynet_hf import CopyNetConfig, CopyNetForConditionalGeneration
from copynet_hf.evaluation.calibration import MIN_PAIRS, PRIOR, fit_calibration
from copynet_hf.inference.predictor import CopyNetPredictor
from copynet_hf.model.confidence import Calibration, calibrate
from copynet_hf.model.prediction import predict


def draw_outputs(count, slope, intercept, seed=0):
    """Scores, and outputs that are right with the probability that this calibration gives."""
    draw = random.Random(seed)
    logits = [draw.gauss(1, 2) for _ in range(count)]
    scores = [1 / (1 + math.exp(-value)) for value in logits]
    right = [draw.random() < 1 / (1 + math.exp(-slope * value - intercept)) for value in logits]
    return scores, right


def test_without_a_calibration_the_confidence_is_the_score_and_with_the_identity_too():
    for score in (1e-12, 0.1, 0.5, 0.99):
        assert calibrate(score, Calibration()) == pytest.approx(score)
    assert calibrate(0.5, Calibration(3.0, math.log(3))) == pytest.approx(0.75)
    for score in (0.0, 1.0):
        assert 0 <= calibrate(score, Calibration(4.0, -2.0)) <= 1


@pytest.mark.parametrize(("slope", "intercept"), [(1.0, 0.0), (0.4, 1.5), (2.5, -2.0)])
def test_the_fit_is_that_of_a_general_optimiser(slope, intercept):
    scores, right = draw_outputs(211, slope, intercept)
    inputs = torch.tensor(scores, dtype=torch.float64).logit()
    wins = sum(right)
    targets = torch.tensor([(wins + 1) / (wins + 2) if flag else 1 / (len(right) - wins + 2) for flag in right])
    weights = torch.tensor([1.0, 0.0], dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([weights], max_iter=500, tolerance_grad=1e-12, tolerance_change=1e-15)

    def closure():
        optimiser.zero_grad()
        logits = weights[0] * inputs + weights[1]
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, targets.double(), reduction="sum")
        loss = loss + PRIOR / (len(right) - wins + 1) / 2 * ((weights[0] - 1) ** 2 + weights[1] ** 2)
        loss.backward()
        return loss

    optimiser.step(closure)
    assert fit_calibration(scores, right) == pytest.approx(weights.tolist(), abs=1e-5)


def test_many_outputs_give_back_what_they_were_drawn_with():
    assert fit_calibration(*draw_outputs(20_000, 0.6, 1.0)) == pytest.approx((0.6, 1.0), abs=0.08)


@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize("count", [MIN_PAIRS, 63])
def test_where_all_outputs_are_alike_no_certainty_follows(flag, count):
    scores = [0.9999 - 1e-5 * n for n in range(count)]
    calibration = fit_calibration(scores, [flag] * count)
    surest = calibrate(scores[0], calibration)
    assert 0 < (1 - surest if flag else surest) < 3 / count
    assert calibrate(0.2, calibration) < surest


def test_the_fewer_outputs_are_wrong_the_nearer_the_confidence_is_to_the_score():
    """Of right outputs alone, which have scores from 0.52 to 0.999: nothing shows that 0.5 is not too low."""
    scores = [1 / (1 + math.exp(-n / 14)) for n in range(1, 100)]
    alone = fit_calibration(scores, [True] * len(scores))
    assert 0.5 < calibrate(0.5, alone) < 0.7
    assert 0.9 < calibrate(0.9, alone) < 0.97
    others = [0.3 + 0.005 * n for n in range(20)]
    with_wrong = fit_calibration(scores + others, [True] * len(scores) + [False] * len(others))
    assert calibrate(0.3, with_wrong) < 0.15
    assert calibrate(0.8, with_wrong) > 0.95


def test_where_no_output_is_right_none_is_sure_however_improbable_the_others_were():
    calibration = fit_calibration([10.0 ** -(100 + 3 * n) for n in range(60)], [False] * 60)
    assert max(calibrate(score, calibration) for score in (1e-90, 1e-9, 0.5, 0.99)) < 0.05


def test_outputs_without_an_end_do_not_make_others_sure():
    """Of an untrained model, whose outputs are long, wrong and improbable."""
    calibration = fit_calibration([10.0 ** -(3 * n) for n in range(1, 61)] + [0.0], [False] * 61)
    assert calibrate(0.5, calibration) < 0.5
    assert calibrate(1e-9, calibration) < 0.2


@pytest.mark.parametrize(("mean", "count", "right"), [(-80, 100, 0), (-120, 1000, 2), (-200, 1000, 0), (-300, 20, 0)])
def test_probable_outputs_are_not_sure_where_improbable_ones_were_wrong(mean, count, right):
    logits = sorted(np.random.default_rng(1).normal(mean, -mean / 4, count).clip(max=-1), reverse=True)
    scores = [1 / (1 + math.exp(-value)) for value in logits]
    calibration = fit_calibration(scores, [n < right for n in range(count)])
    assert calibrate(0.9, calibration) < 0.6


def test_the_order_of_the_scores_is_kept_even_where_they_are_misleading():
    scores = [n / 41 for n in range(1, 41)]
    calibration = fit_calibration(scores, [score < 0.5 for score in scores])
    confidences = [calibrate(score, calibration) for score in scores]
    assert confidences == sorted(confidences)
    assert confidences[0] < confidences[-1]


def test_few_pairs_give_no_calibration():
    assert fit_calibration([0.5] * (MIN_PAIRS - 1), [True] * (MIN_PAIRS - 1)) is None


def test_a_calibration_is_saved_with_the_model_and_applied_by_predict(tmp_path):
    model, tokenizer = tiny_model(), tiny_tokenizer()
    texts = ["alpha beta", "gamma", ""]
    any_word = list(range(2, model.config.extended_vocab_size))  # ends an output, so that none is cut
    options = {"num_beams": 2, "num_return_sequences": 2, "eos_token_id": any_word}
    scored = [output for row in predict(model, tokenizer, texts, **options) for output in row]
    assert all((each.confidence, each.accepted) == (each.score, None) for each in scored)
    scores = sorted(each.score for each in scored if each.score is not None)
    threshold = (calibrate(scores[1], Calibration(0.5, 1.0)) + calibrate(scores[2], Calibration(0.5, 1.0))) / 2
    model.config.calibration = (0.5, 1.0)
    model.save_pretrained(tmp_path)
    loaded = CopyNetForConditionalGeneration.from_pretrained(tmp_path)
    outputs = predict(loaded, tokenizer, texts, min_confidence=threshold, trace=False, **options)
    for each in [*outputs[0], *outputs[1]]:
        expected = 1 / (1 + math.exp(-0.5 * math.log(each.score / (1 - each.score)) - 1))
        assert each.confidence == pytest.approx(expected)
        assert each.accepted == (expected >= threshold)
    assert sorted(each.accepted for row in outputs[:2] for each in row) == [False, False, True, True]
    assert [(each.confidence, each.accepted) for each in outputs[2]] == [(None, False)] * 2


@pytest.mark.parametrize("value", [[1.0], [0.0, 1.0], [1.0, math.inf], "ab", [1, None], [True, "x"]])
def test_a_damaged_calibration_is_refused(value):
    with pytest.raises(ValueError, match=r"calibration=.* must be two numbers"):
        CopyNetConfig(calibration=value)


@pytest.mark.parametrize("threshold", [2.0, math.nan, "0.9"])
def test_a_threshold_other_than_a_number_between_0_and_1_is_refused(threshold):
    with pytest.raises(ValueError, match=f"min_confidence is {threshold!r}: use a number between 0 and 1"):
        predict(tiny_model(), tiny_tokenizer(), ["alpha"], min_confidence=threshold)
    with pytest.raises(ValueError, match=f"min_confidence is {threshold!r}: use a number between 0 and 1"):
        CopyNetPredictor("unread", min_confidence=threshold)
