"""The encoder's recurrence with its gradient written by hand.

Autograd multiplies out the gradient of the recurrent weights at every step and keeps a tape of small operations;
here the loop keeps the gates alone, and one product over all steps gives the weights' gradient at its end. The
readable form, which the tests hold this to, is `gru_naive`.

Letters: r reset gate, z update gate, n candidate, h state; a padded position has z = 1, so h passes unchanged.
Shapes: G directions, S steps in each direction's own order, B rows, H units.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def gru_naive(input_gates: Tensor, keep: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """GRU states of all steps from zero, for several directions at once.

    Args:
        input_gates: (G, S, B, 3H) W_i x + b_i for the gates r, z, n.
        keep: (G, S, B, 1) bool; where false, the step is padding and h stays.
        weight: (G, H, 3H) recurrent weights, transposed: h @ weight.
        bias: (G, 1, 3H) recurrent bias.

    Returns:
        (G, S, B, H) h.
    """
    size = weight.shape[1]
    hidden = input_gates.new_zeros(input_gates.shape[0], input_gates.shape[2], size)
    states = []
    for gates, keep_t in zip(input_gates.unbind(1), keep.unbind(1), strict=True):
        hidden_gates = torch.baddbmm(bias, hidden, weight)
        r, z = torch.sigmoid(gates[..., : 2 * size] + hidden_gates[..., : 2 * size]).chunk(2, dim=-1)
        n = torch.tanh(gates[..., 2 * size :] + r * hidden_gates[..., 2 * size :])
        hidden = torch.where(keep_t, n + z * (hidden - n), hidden)
        states.append(hidden)
    return torch.stack(states, dim=1)


class FusedGRU(torch.autograd.Function):
    """`gru_naive` with its gradient by hand. States and gates are in `input_gates`' precision."""

    @staticmethod
    def forward(ctx: Any, input_gates: Tensor, keep: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        directions, steps, batch, _ = input_gates.shape
        size = weight.shape[1]
        weight, bias = weight.to(input_gates.dtype), bias.to(input_gates.dtype)
        states = input_gates.new_empty(directions, steps + 1, batch, size)
        states[:, 0] = 0
        gates = torch.empty_like(input_gates)  # r, z, n of every step
        candidate_gates = torch.empty_like(states[:, 1:])  # W_hn h + b_hn
        for t in range(steps):
            hidden, gate = states[:, t], gates[:, t]
            hidden_gates = torch.baddbmm(bias, hidden, weight)
            candidate_gates[:, t] = hidden_gates[..., 2 * size :]
            r_z, n = gate[..., : 2 * size], gate[..., 2 * size :]
            torch.add(input_gates[:, t, :, : 2 * size], hidden_gates[..., : 2 * size], out=r_z).sigmoid_()
            gate[..., size : 2 * size].masked_fill_(~keep[:, t], 1.0)
            torch.addcmul(
                input_gates[:, t, :, 2 * size :], gate[..., :size], hidden_gates[..., 2 * size :], out=n
            ).tanh_()
            torch.lerp(n, hidden, gate[..., size : 2 * size], out=states[:, t + 1])
        ctx.save_for_backward(states, gates, candidate_gates, weight)
        return states[:, 1:]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_states: Tensor) -> tuple[Tensor, None, Tensor, Tensor]:  # type: ignore[override]
        states, gates, candidate_gates, weight = ctx.saved_tensors
        directions, steps, batch, size = candidate_gates.shape
        weight_back = weight.transpose(1, 2).contiguous()
        grad_gates = torch.empty_like(gates)  # by the input side: before r scales the candidate
        grad_hidden_gates = torch.empty_like(gates)  # by the recurrent side
        carried = torch.zeros_like(states[:, 0])
        for t in reversed(range(steps)):
            r, z, n = gates[:, t].chunk(3, dim=-1)
            grad = grad_states[:, t] + carried
            grad_n = grad * (1 - z) * (1 - n * n)
            grad_gates[:, t, :, :size] = grad_n * candidate_gates[:, t] * r * (1 - r)
            grad_gates[:, t, :, size : 2 * size] = grad * (states[:, t] - n) * z * (1 - z)
            grad_gates[:, t, :, 2 * size :] = grad_n
            grad_hidden_gates[:, t, :, : 2 * size] = grad_gates[:, t, :, : 2 * size]
            torch.mul(grad_n, r, out=grad_hidden_gates[:, t, :, 2 * size :])
            carried = torch.baddbmm(grad * z, grad_hidden_gates[:, t], weight_back)
        flat = grad_hidden_gates.view(directions, steps * batch, 3 * size)
        before = states[:, :-1].reshape(directions, steps * batch, size)
        return grad_gates, None, torch.bmm(before.transpose(1, 2), flat), flat.sum(1, keepdim=True)
