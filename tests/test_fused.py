"""The hand-written recurrences give the readable ones' numbers and gradients."""

from __future__ import annotations

import pytest
import torch
from helpers import SOURCES, TARGETS, VARIANTS, padded, tiny_model

from copynet_hf.fused_copynet import DecoderWeights, FusedDecoder, FusedGRU, gru_naive


def inputs(directions, steps, batch, size, dtype):
    torch.manual_seed(0)
    keep = torch.rand(directions, steps, batch, 1) > 0.3
    tensors = [
        torch.randn(directions, steps, batch, 3 * size, dtype=torch.float64),
        torch.randn(directions, size, 3 * size, dtype=torch.float64) / size**0.5,
        torch.randn(directions, 1, 3 * size, dtype=torch.float64),
    ]
    gates, weight, bias = (tensor.to(dtype).requires_grad_() for tensor in tensors)
    return gates, keep, weight, bias


@pytest.mark.parametrize("shape", [(2, 7, 3, 5), (1, 1, 1, 1), (2, 33, 65, 9)], ids=str)
def test_states_and_gradients_match_the_readable_form_in_float64(shape):
    gates, keep, weight, bias = inputs(*shape, torch.float64)
    expected, actual = gru_naive(gates, keep, weight, bias), FusedGRU.apply(gates, keep, weight, bias)
    assert torch.allclose(actual, expected, rtol=0, atol=1e-13)
    upstream = torch.randn_like(expected)
    grads = [torch.autograd.grad(states, (gates, weight, bias), upstream) for states in (expected, actual)]
    for a, b in zip(*grads, strict=True):
        assert ((a - b).abs().max() / a.abs().max().clamp(min=1e-30)) < 1e-12


def test_gradients_match_finite_differences():
    gates, keep, weight, bias = inputs(2, 4, 2, 3, torch.float64)
    assert torch.autograd.gradcheck(lambda g, w, b: FusedGRU.apply(g, keep, w, b), (gates, weight, bias))


def test_bfloat16_stays_within_one_percent():
    gates, keep, weight, bias = inputs(2, 20, 4, 16, torch.bfloat16)
    exact = gru_naive(gates.double(), keep, weight.double(), bias.double())
    assert (FusedGRU.apply(gates, keep, weight, bias) - exact).abs().max() < 2e-2


def test_a_padded_step_hands_the_state_on_unchanged():
    gates, keep, weight, bias = inputs(2, 6, 3, 4, torch.float64)
    states = FusedGRU.apply(gates, keep, weight, bias)
    same = (states[:, 1:] == states[:, :-1]).all(-1, keepdim=True)
    assert (same == ~keep[:, 1:]).all()


def outputs_and_gradients(use_fused, dtype, **changes):
    model = tiny_model(use_fused=use_fused, scale=1.0, **changes).to(dtype)
    source = padded(SOURCES, 0)
    inputs = {"input_ids": source, "attention_mask": (source != 0).long(), "labels": padded(TARGETS, -100)}
    output = model(**inputs, output_attentions=True)
    loss = output.loss
    for extra in (output.copy_probs, *(output.cross_attentions or ())):  # gradients of these count as well
        loss = loss if extra is None else loss + extra.pow(2).sum()
    loss.backward()
    return output, {name: parameter.grad for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_a_whole_model_learns_the_same_with_and_without_it(changes):
    readable, expected = outputs_and_gradients(False, torch.float64, **changes)
    fused, actual = outputs_and_gradients(True, torch.float64, **changes)
    assert torch.allclose(fused.logits, readable.logits, rtol=0, atol=1e-12)
    for name, gradient in expected.items():
        scale = gradient.abs().max().clamp(min=1e-6)
        assert ((actual[name] - gradient).abs().max() / scale) < 1e-10, name


@pytest.mark.parametrize("changes", [{}, {"use_coverage": True}, {"readout": ["state"]}], ids=str)
def test_a_whole_model_in_bfloat16_stays_close(changes):
    exact, _ = outputs_and_gradients(False, torch.float64, **changes)
    fused, gradients = outputs_and_gradients(True, torch.bfloat16, **changes)
    assert (fused.logits.exp() - exact.logits.exp()).abs().max() < 2e-2
    assert all(torch.isfinite(gradient).all() for gradient in gradients.values())


def test_dropout_of_the_readout_is_the_same_factor_forwards_and_backwards():
    torch.manual_seed(0)
    steps, batch, positions, size, width, attention = 3, 2, 4, 3, 4, 2
    tensors = {
        "gate_inputs": torch.randn(steps, batch, 3 * size),
        "readout_inputs": torch.randn(steps, batch, size),
        "hidden_states": torch.randn(batch, positions, width),
        "keys": torch.randn(batch, positions, attention),
        "copy_keys": torch.randn(batch, positions, size),
        "initial": torch.randn(batch, size),
    }
    weights = DecoderWeights(
        state=torch.randn(3 * size + attention, size),
        state_bias=torch.randn(3 * size + attention),
        score=torch.randn(attention),
        coverage=torch.randn(attention),
        context=torch.randn(4 * size, width),
        selective=torch.randn(3 * size, width),
        readout=torch.randn(size, size),
    )
    dropped = (torch.rand(steps, batch, size) > 0.3).double() / 0.7
    matches = torch.rand(steps, batch, positions) > 0.4
    mask = torch.tensor([[True] * 4, [True, True, False, True]])

    def run(gate_inputs, readout_inputs, hidden_states, keys, copy_keys, initial, *weights):
        constants = (dropped, matches & mask, mask)
        return FusedDecoder.apply(
            gate_inputs, readout_inputs, *constants, hidden_states, keys, copy_keys, initial, *weights
        )

    inputs = [tensor.double().requires_grad_() for tensor in (*tensors.values(), *weights)]
    assert torch.autograd.gradcheck(run, inputs)
