"""Pointer Networks against the oracle, on words and on real numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers import LETTERS, POINTER, SOURCES, SPELLED, beside, check_gradients, padded, sources, tiny_model
from oracle import Oracle

from copynet_hf import CopyNetForConditionalGeneration

V, EOS = 13, 2
WORDS = [[13, 5, 14, EOS], [13, 13, EOS], [10, EOS], [16, 15, 4, EOS]]  # each in its row of SOURCES

POINTS = [[[0.1, 0.9], [0.5, -0.3], [-0.7, 0.2], [0.4, 0.4]], [[0.2, 0.1], [-0.6, -0.8], [0.3, 0.9]]]
TOURS = [[V, V + 2, V + 1, V + 3, EOS], [V + 1, V, EOS]]


def points_model(**changes):
    return tiny_model(**{**POINTER, "num_features": 2, "max_source_oov": 5, **changes})


def points(rows=POINTS):
    width = max(map(len, rows))
    return {
        "input_features": torch.tensor([row + [[9.0, 9.0]] * (width - len(row)) for row in rows]),
        "attention_mask": torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows]),
    }


def nll(shares, source, target):
    losses = []
    for share, word in zip(shares, target, strict=True):
        places = [len(source)] if word == EOS else [j for j, x in enumerate(source) if x == word]
        losses.append(-np.log(sum(share[j] for j in places)))
    return sum(losses)


@pytest.mark.parametrize("changes", [{}, SPELLED], ids=["words", "letters"])
def test_words_are_pointed_at_as_the_oracle_does(changes):
    model = tiny_model(**POINTER, **changes).double()
    oracle, total = Oracle(model), 0.0
    output = model(**sources(), **beside(model.config), labels=padded(WORDS, -100))
    for row, (source, target) in enumerate(zip(SOURCES, WORDS, strict=True)):
        oracle.letters = LETTERS[row] if changes else []
        shares = oracle.point(source, [1, *target[:-1]])
        for t, share in enumerate(shares):
            np.testing.assert_allclose(output.copy_probs[row, t, : len(source)].detach(), share[:-1], 1e-9)
            probs = output.logits[row, t].exp()
            assert probs[EOS].item() == pytest.approx(share[-1], rel=1e-9)
            for word in set(source):
                places = [j for j, x in enumerate(source) if x == word]
                assert probs[word].item() == pytest.approx(sum(share[j] for j in places), rel=1e-9)
            assert probs.sum().item() == pytest.approx(1.0, abs=1e-9)
        total += nll(shares, source, target)
    assert output.loss.item() == pytest.approx(total / sum(map(len, WORDS)), rel=1e-9)


def test_points_are_projected_and_the_one_pointed_at_is_fed_back():
    model = points_model(encoder_residual=True).double()
    oracle, total = Oracle(model), 0.0
    inputs = points()
    output = model(
        input_features=inputs["input_features"].double(),
        attention_mask=inputs["attention_mask"],
        labels=padded(TOURS, -100),
    )
    for row, (source, target) in enumerate(zip(POINTS, TOURS, strict=True)):
        ids = [V + j for j in range(len(source))]
        shares = oracle.point(ids, [1, *target[:-1]], source)
        for t, share in enumerate(shares):
            np.testing.assert_allclose(output.copy_probs[row, t, : len(source)].detach(), share[:-1], 1e-6)
        total += nll(shares, ids, target)
    assert output.loss.item() == pytest.approx(total / sum(map(len, TOURS)), rel=1e-6)


@pytest.mark.parametrize("features", [False, True], ids=["words", "points"])
@pytest.mark.parametrize("use_fused", [True, False])
def test_gradients_equal_finite_differences_of_the_oracle(features, use_fused):
    if features:
        model = points_model(scale=1.0, use_fused=use_fused).double()
        ids, target = [V + j for j in range(4)], TOURS[0]
        inputs = {"input_features": torch.tensor(POINTS[:1]).double()}
    else:
        model = tiny_model(scale=1.0, use_fused=use_fused, **POINTER).double()
        ids, target = SOURCES[0], WORDS[0]
        inputs = {"input_ids": torch.tensor([ids])}
    model(**inputs, labels=torch.tensor([target])).loss.backward()
    oracle = Oracle(model)
    vectors = inputs["input_features"][0].tolist() if features else None
    check_gradients(
        model, oracle, lambda: nll(oracle.point(ids, [1, *target[:-1]], vectors), ids, target) / len(target)
    )


@pytest.mark.parametrize("num_beams", [1, 3])
def test_searches_over_points_write_positions_and_rows_do_not_see_each_other(num_beams):
    model = points_model(seed=2)
    together = model.generate(**points(), num_beams=num_beams, max_new_tokens=6)
    for row, own in enumerate(POINTS):
        alone = model.generate(**points([own]), num_beams=num_beams, max_new_tokens=6)[0].tolist()
        words = together[row].tolist()[: len(alone)]
        assert words == alone
        assert all(word == EOS or V <= word < V + len(own) or word in (0, 1) for word in words)
    without = model.generate(**points(), num_beams=num_beams, max_new_tokens=6, use_cache=False)
    assert torch.equal(together, without)


def test_a_tour_visits_each_point_once_where_that_is_asked():
    model = points_model(seed=4, scale=4.0)
    tours = model.generate(
        **points(POINTS[:1]), num_beams=4, no_repeat_ngram_size=1, min_new_tokens=4, max_new_tokens=5
    )
    assert sorted(tours[0].tolist()) == sorted([1, EOS, *range(V, V + 4)])


def test_a_word_that_no_position_holds_is_refused():
    model = tiny_model(**POINTER)
    with pytest.raises(ValueError, match=r"labels\[0, 1\] is 9, which is neither in the row's source nor the end"):
        model(input_ids=torch.tensor([[5, 6]]), labels=torch.tensor([[5, 9, 2]]))


def test_features_of_another_form_are_refused():
    model = points_model()
    with pytest.raises(ValueError, match=r"input_features has shape None, and num_features is 2"):
        model(input_ids=torch.tensor([[5]]), labels=torch.tensor([[5]]))
    with pytest.raises(ValueError, match=r"shape \(1, 4, 3\), and num_features is 2"):
        model(input_features=torch.zeros(1, 4, 3), labels=torch.tensor([[2]]))
    with pytest.raises(ValueError, match=r"6 positions, but max_source_oov is 5"):
        model(input_features=torch.zeros(1, 6, 2), labels=torch.tensor([[2]]))
    with pytest.raises(ValueError, match=r"num_features is 0"):
        tiny_model(**POINTER)(input_features=torch.zeros(1, 4, 2), labels=torch.tensor([[2]]))


def test_it_is_saved_and_loaded(tmp_path):
    model = points_model()
    model.save_pretrained(tmp_path)
    again = CopyNetForConditionalGeneration.from_pretrained(tmp_path)
    labels = padded(TOURS, -100)
    assert torch.equal(again(**points(), labels=labels).loss, model(**points(), labels=labels).loss)
    assert torch.equal(again.generate(**points()), model.generate(**points()))


@pytest.mark.parametrize("mask", [{}, {"attention_mask": torch.zeros(2, 0, dtype=torch.long)}], ids=["", "masked"])
def test_points_that_are_none_end_at_once(mask):
    model = points_model()
    inputs = {"input_features": torch.zeros(2, 0, 2), **mask}
    probs = model(**inputs, decoder_input_ids=torch.ones(2, 1, dtype=torch.long)).logits.exp()
    assert probs[..., EOS].allclose(torch.ones(2, 1))
    assert model.generate(**inputs, max_new_tokens=3).tolist() == [[1, EOS], [1, EOS]]
