"""The hand-written recurrence gives the readable one's numbers and gradients."""

from __future__ import annotations

import pytest
import torch

from copynet_hf.fused_copynet import FusedGRU, gru_naive


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
