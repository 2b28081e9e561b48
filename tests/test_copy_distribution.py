"""The mixture worked out by hand: likelihoods of every kind of target word, and the properties that must hold."""

from __future__ import annotations

import math

import pytest
import torch

from copynet_hf.model.copy_distribution import (
    IMPOSSIBLE_LOG_PROB,
    ModeScores,
    copynet_modes,
    find_matches,
    generate_only,
    log_likelihood,
    mixture,
    pointer_generator_modes,
    replace_unreachable_words,
)

V, K, UNK = 4, 3, 3
# Scores as logarithms of small whole numbers: e^ψ_g = 1, 2, 3, 4 and e^ψ_c = 5, 6, 7, 8, so Z = 10 + 26 = 36.
GENERATE = torch.tensor([1.0, 2, 3, 4]).log().view(1, 1, V)
COPY = torch.tensor([5.0, 6, 7, 8]).log().view(1, 1, 4)
# Word 1 of the vocabulary; the unseen word 4 twice; the unseen word 5.
SOURCE = torch.tensor([[1, 4, 5, 4]])
MASK = torch.ones(1, 4, dtype=torch.bool)


def copynet_mixture(generate, copy, source, mask, slots):
    return mixture(generate, copynet_modes(scores(generate, copy, mask)), source, mask, slots)


def copynet_log_likelihood(generate, copy, targets, source, mask):
    known = targets < generate.shape[-1]
    chosen = generate.gather(-1, torch.where(known, targets, 0)[..., None])[..., 0]
    return log_likelihood(
        chosen, copynet_modes(scores(generate, copy, mask)), known, find_matches(targets, source, mask)
    )


def scores(generate, copy, mask):
    return ModeScores(
        torch.logsumexp(generate.float() if generate.dtype != torch.float64 else generate, -1), mask, copy
    )


CASES = {
    "generated_and_copied": (1, (2 + 5) / 36),
    "generated_only": (2, 3 / 36),
    "copied_only_oov": (5, 7 / 36),
    "copied_from_two_positions": (4, (6 + 8) / 36),
    "unk_when_in_neither": (UNK, 4 / 36),
}


@pytest.mark.parametrize(("word", "probability"), CASES.values(), ids=CASES)
def test_probability_worked_out_by_hand(word, probability):
    made = copynet_mixture(GENERATE, COPY, SOURCE, MASK, K)
    assert made.log_probs[0, 0, word].exp().item() == pytest.approx(probability, rel=1e-6)
    target = torch.tensor([[word]])
    likelihood = copynet_log_likelihood(GENERATE, COPY, target, SOURCE, MASK)
    assert likelihood.item() == pytest.approx(math.log(probability), rel=1e-6)


def test_probabilities_sum_to_one_and_unowned_slots_have_none():
    made = copynet_mixture(GENERATE, COPY, SOURCE, MASK, K)
    assert made.log_probs.exp().sum().item() == pytest.approx(1.0, abs=1e-6)
    assert made.log_probs[0, 0, 6].item() == IMPOSSIBLE_LOG_PROB


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_padding_adds_nothing_whatever_its_id_and_score(dtype):
    plain = copynet_mixture(GENERATE.to(dtype), COPY.to(dtype), SOURCE, MASK, K)
    for pad_id in (0, 1, 4):
        source = torch.tensor([[1, 4, pad_id, 5, 4, pad_id]])
        mask = torch.tensor([[True, True, False, True, True, False]])
        high, low = torch.full((1, 1, 1), 50.0), torch.full((1, 1, 1), -50.0)
        copy = torch.cat([COPY[..., :2], high, COPY[..., 2:], low], dim=-1).to(dtype)
        padded = copynet_mixture(GENERATE.to(dtype), copy, source, mask, K)
        assert torch.allclose(padded.log_probs, plain.log_probs, atol=1e-6)
        assert (padded.copy_probs[..., [2, 5]] == 0).all()


def test_padding_whose_score_is_far_above_the_normaliser_is_not_copied():
    made = copynet_mixture(GENERATE - 200, COPY.where(SOURCE == 1, 0.0) - 200 * (SOURCE == 1), SOURCE, SOURCE == 1, K)
    assert made.copy_probs.tolist() == [[pytest.approx([5 / 15, 0, 0, 0], rel=1e-4)]]


def test_attention_that_is_zero_everywhere_copies_with_the_probability_of_the_switch():
    switch = torch.zeros(1, 1)  # p_gen = ½
    modes = pointer_generator_modes(ModeScores(GENERATE.logsumexp(-1), MASK, attention=0 * COPY, switch=switch))
    made = mixture(GENERATE, modes, SOURCE, MASK, K)
    assert made.log_probs.exp().sum().item() == pytest.approx(1.0, abs=1e-4)
    assert made.copy_probs.sum().item() == pytest.approx(0.5, abs=1e-4)


def test_a_row_that_is_all_padding_generates_only():
    empty = copynet_mixture(GENERATE, COPY, SOURCE, torch.zeros_like(MASK), K)
    alone = mixture(GENERATE, generate_only(scores(GENERATE, COPY, MASK)), SOURCE, MASK, K)
    assert torch.allclose(empty.log_probs, alone.log_probs)
    assert empty.copy_probs.sum() == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_words_far_below_the_best_keep_their_exact_log_probability_and_a_gradient(dtype):
    copy = torch.tensor([[[0.0, 300.0, -400.0, -401.0]]], dtype=dtype, requires_grad=True)
    source = torch.tensor([[1, 4, 5, 5]])
    target = torch.tensor([[5]])
    expected = -400 + math.log1p(math.exp(-1)) - 300
    likelihood = copynet_log_likelihood(GENERATE.to(dtype), copy, target, source, MASK)
    table = copynet_mixture(GENERATE.to(dtype), copy, source, MASK, K).log_probs
    assert likelihood.item() == pytest.approx(expected, rel=1e-6)
    assert table[0, 0, 5].item() == pytest.approx(expected, rel=1e-6)
    for value in (likelihood.sum(), table[0, 0, 5]):
        (gradient,) = torch.autograd.grad(value, copy, retain_graph=True)
        share = 1 / (1 + math.exp(-1))
        assert torch.allclose(gradient[0, 0], torch.tensor([0.0, -1.0, share, 1 - share], dtype=dtype), atol=1e-6)


def test_gradients_match_finite_differences():
    torch.manual_seed(0)
    generate = torch.randn(2, 3, V, dtype=torch.float64, requires_grad=True)
    copy = torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True)
    source = torch.tensor([[1, 4, 4, 2, 0], [5, 1, 1, 5, 5]])
    mask = torch.tensor([[True, True, True, True, False], [True] * 5])
    targets = torch.tensor([[4, 1, 3], [5, 2, 0]])
    owned = torch.ones(2, V + K, dtype=torch.bool)
    owned[:, V:] = torch.tensor([[True, False, False], [False, True, False]])

    def table(generate, copy):
        made = copynet_mixture(generate, copy, source, mask, K)
        return made.log_probs[owned[:, None].expand(-1, 3, -1)], made.copy_probs

    assert torch.autograd.gradcheck(table, (generate, copy))
    assert torch.autograd.gradcheck(lambda g, c: copynet_log_likelihood(g, c, targets, source, mask), (generate, copy))


def test_half_precision_scores_are_summed_in_float32():
    generate, copy = GENERATE.bfloat16(), COPY.bfloat16()
    made = copynet_mixture(generate, copy, SOURCE, MASK, K)
    assert made.log_probs.dtype == torch.float32
    assert made.log_probs.exp().sum().item() == pytest.approx(1.0, abs=1e-5)


def test_words_of_other_rows_become_unk_and_own_ones_stay():
    words = torch.tensor([[4, 5, 6, 2, -100, 99]])
    resolved, matches = replace_unreachable_words(words, SOURCE, MASK, words < V, UNK)
    assert resolved.tolist() == [[4, 5, UNK, 2, -100, UNK]]
    assert torch.equal(matches, find_matches(resolved, SOURCE, MASK))


def test_a_word_that_became_unk_is_copied_from_source_words_without_a_slot():
    source = torch.tensor([[UNK, 4, UNK, UNK]])
    mask = torch.tensor([[True, True, True, False]])
    words = torch.tensor([[6, 4]])
    resolved, matches = replace_unreachable_words(words, source, mask, words < V, UNK)
    assert resolved.tolist() == [[UNK, 4]]
    assert matches.tolist() == [[[True, False, True, False], [False, True, False, False]]]
