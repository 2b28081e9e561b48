"""A copy mechanism is one equation and one config value: what a new one gets without any other code."""

from __future__ import annotations

import pytest
import torch
from helpers import SOURCES, TARGETS, padded, tiny_model

from copynet_hf.configuration_copynet import COPY_MECHANISMS, Mechanism
from copynet_hf.copy_distribution import MODES, Modes, ModeScores


def halves(scores: ModeScores) -> Modes:
    """p(y) = ½ softmax ψ_g(y) + ½ Σ_{j: x_j = y} a_tj."""
    assert scores.attention is not None
    half = torch.tensor(0.5).log()
    attention = scores.attention.clamp(min=torch.finfo(scores.attention.dtype).tiny)
    return Modes(scores.generate_log_sum - half, attention.log(), (-half).expand_as(scores.generate_log_sum))


@pytest.fixture
def model(monkeypatch):
    monkeypatch.setitem(COPY_MECHANISMS, "halves", Mechanism(copies_by_attention=True))
    monkeypatch.setitem(MODES, "halves", halves)
    return tiny_model(copy_mechanism="halves")


def test_every_mechanism_has_its_equation():
    assert MODES.keys() == COPY_MECHANISMS.keys()


def test_a_new_mechanism_has_probabilities_loss_search_and_traces(model):
    inputs = {"input_ids": padded(SOURCES, 0), "attention_mask": (padded(SOURCES, 0) != 0).long()}
    output = model(**inputs, labels=padded(TARGETS, -100), output_attentions=True)
    assert output.logits.exp().sum(-1).allclose(torch.ones(4, 5), atol=1e-5)
    assert torch.allclose(output.copy_probs, 0.5 * output.cross_attentions[0][:, 0], atol=1e-6)
    targets = padded(TARGETS, 0)
    kept = targets != 0
    rows = zip(targets.tolist(), SOURCES, strict=True)
    owned = [[word if word < 13 or word in source else 3 for word in row] for row, source in rows]
    expected = -output.logits.gather(-1, torch.tensor(owned)[..., None])[..., 0][kept].mean()
    assert output.loss.item() == pytest.approx(expected.item(), rel=1e-5)
    output.loss.backward()
    found = model.generate(**inputs, num_beams=3, max_new_tokens=5)
    assert torch.equal(found, model.generate(**inputs, num_beams=3, max_new_tokens=5, use_cache=False))
    trace = model.trace_copies(found, **inputs)
    assert ((trace.copied >= 0) & (trace.copied <= 1)).all()
