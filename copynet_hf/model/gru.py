"""The GRU over all steps: as written, and with its gradient by hand.

Autograd computes the gradient of every weight at every step and records each small operation. `FusedGRU` saves only
what the backward pass needs, and each weight's gradient is one product over all steps, after the loop.

Letters: r reset gate, z update gate, n candidate, h state; d_x is the gradient of the loss with respect to x. One step
lays out what it computes, and its gradients, side by side in columns:

    W_hn h + b_hn | r | z | n

The recurrent product writes the first three, the inputs' product adds to the last three: the pre-activations of r and
z are sums of both, so that one gradient serves both products.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor

# d · (1 − y²) and d · y (1 − y), for y = tanh(x) and y = σ(x)
tanh_backward, sigmoid_backward = torch.ops.aten.tanh_backward.grad_input, torch.ops.aten.sigmoid_backward.grad_input


def first_order_only(backward: Callable[..., object]) -> Callable[..., object]:
    """A backward by hand, which has no gradient of its own, and says so where one would be recorded.

    torch's `once_differentiable` says nothing where the incoming gradient needs no gradient.
    """

    @wraps(backward)
    def checked(ctx: object, *gradients: Tensor) -> object:
        if torch.is_grad_enabled():  # as with create_graph=True
            raise RuntimeError(
                "the fast form has no second-order gradients: set use_fused=False in the model's config to compute "
                "them, or leave create_graph=True out."
            )
        return backward(ctx, *gradients)

    return checked


def gru_states(input_gates: Tensor, keep: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """GRU states of all steps, for several directions at once: the readable form of `FusedGRU`.

    Args:
        input_gates: (G, S, B, 3H) W_i x + b_i for the gates r, z, n.
        keep: (G, S, B, 1) bool; false on padding, where h passes on unchanged.
        weight: (G, H, 3H) recurrent weights, transposed: h @ weight.
        bias: (G, 1, 3H) recurrent bias.

    Returns:
        (G, S, B, H) h, for G directions, S steps in each direction's own order, B rows, H units.
    """
    size = weight.shape[1]
    hidden = input_gates.new_zeros(input_gates.shape[0], input_gates.shape[2], size)

    def step(hidden: Tensor, gates: Tensor, keep_t: Tensor) -> Tensor:
        hidden_gates = torch.baddbmm(bias, hidden, weight)  # (G, B, 3H)
        r, z = torch.sigmoid(gates[..., : 2 * size] + hidden_gates[..., : 2 * size]).chunk(2, dim=-1)
        n = torch.tanh(gates[..., 2 * size :] + r * hidden_gates[..., 2 * size :])
        return torch.where(keep_t, n + z * (hidden - n), hidden)

    if isinstance(input_gates.shape[1], torch.SymInt):  # an exported graph for any number of steps keeps the loop
        return _scan(step, hidden, input_gates, keep)
    states = []
    for gates, keep_t in zip(input_gates.unbind(1), keep.unbind(1), strict=True):
        hidden = step(hidden, gates, keep_t)
        states.append(hidden)
    return torch.stack(states, dim=1)


def _scan(step: Callable[..., Tensor], hidden: Tensor, *inputs: Tensor) -> Tensor:
    """States (G, S, …) over the inputs' second axis, as one operation of an exported graph."""
    from torch._higher_order_ops.scan import scan  # a prototype in torch, needed for exports alone

    def combine(before: Tensor, now: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        after = step(before, *now)
        return after, after.clone()  # scan forbids that the carry and the output share memory

    return scan(combine, hidden, inputs, dim=1)[1]


class FusedGRU(torch.autograd.Function):
    """`gru_states` with its gradient by hand, in the precision of `input_gates`. On padding z = 1, so h passes on."""

    @staticmethod
    def forward(ctx: Any, input_gates: Tensor, keep: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        directions, steps, batch, _ = input_gates.shape
        size = weight.shape[1]
        # r, z, n become n, r, z: the order of the columns
        weight, bias = (part.to(input_gates.dtype).roll(size, dims=-1) for part in (weight, bias))
        states = input_gates.new_empty(directions, steps + 1, batch, size)
        states[:, 0] = 0
        columns = input_gates.new_empty(directions, steps_to_keep(ctx, steps), batch, 4 * size)
        padded = ~keep
        for t in range(steps):
            now = columns[:, t % columns.shape[1]]
            torch.baddbmm(bias, states[:, t], weight, out=now[..., : 3 * size])
            gru_step(now, input_gates[:, t], states[:, t], padded[:, t], states[:, t + 1])
        ctx.save_for_backward(states, columns, weight)
        return states[:, 1:]

    @staticmethod
    @first_order_only
    def backward(ctx: Any, d_states: Tensor) -> tuple[Tensor | None, ...]:
        states, columns, weight = ctx.saved_tensors
        steps, size = d_states.shape[1], d_states.shape[3]
        weight_transposed = weight.transpose(1, 2).contiguous()
        d_columns = torch.empty_like(columns)
        d_recurrent = d_columns[..., : 3 * size]
        d_hidden = torch.zeros_like(states[:, 0])
        for t in reversed(range(steps)):
            d_hidden = gru_step_backward(d_states[:, t] + d_hidden, states[:, t], columns[:, t], d_columns[:, t])
            d_hidden.baddbmm_(d_recurrent[:, t], weight_transposed)  # through W_hh h
        before, d_products = states[:, :-1].flatten(1, 2), d_recurrent.flatten(1, 2)
        d_weight, d_bias = torch.bmm(before.transpose(1, 2), d_products), d_products.sum(1, keepdim=True)
        d_weight, d_bias = (part.roll(-size, dims=-1) for part in (d_weight, d_bias))
        return d_columns[..., size:], None, d_weight, d_bias


def steps_to_keep(ctx: Any, steps: int) -> int:
    """How many steps' columns the backward needs: all of them, or one buffer where there is no backward."""
    return steps if any(ctx.needs_input_grad) else 1


def gru_step(columns: Tensor, inputs: Tensor, before: Tensor, padded: Tensor | None, after: Tensor) -> None:
    """One GRU step in place: completes the columns and writes h_t to `after`.

    Args:
        columns: (…, 4H), whose first three parts hold the recurrent products.
        inputs: (…, 3H) the inputs' products for r, z, n.
        before, after: (…, H) h_{t-1} and h_t.
        padded: (…, 1) bool, true where h passes on unchanged.
    """
    size = before.shape[-1]
    candidate, r, z, n = columns.chunk(4, dim=-1)
    columns[..., size : 3 * size].add_(inputs[..., : 2 * size]).sigmoid_()  # r and z
    if padded is not None:
        z.masked_fill_(padded, 1.0)
    torch.addcmul(inputs[..., 2 * size :], r, candidate, out=n).tanh_()  # n = tanh(W_in x + b_in + r (W_hn h + b_hn))
    torch.lerp(n, before, z, out=after)  # h_t = n + z (h_{t-1} − n)


def gru_step_backward(d_after: Tensor, before: Tensor, columns: Tensor, d_columns: Tensor) -> Tensor:
    """Writes the gradients of the columns' pre-activations; returns d_after · z, the direct path to h_{t-1}."""
    size = before.shape[-1]
    candidate, r, z, n = columns.chunk(4, dim=-1)
    d_candidate, d_r, d_z, d_n = d_columns[..., : 4 * size].chunk(4, dim=-1)
    d_before = d_after * z
    tanh_backward(d_after - d_before, n, grad_input=d_n)  # d_after (1 − z) · tanh'
    sigmoid_backward((before - n).mul_(d_after), z, grad_input=d_z)  # d_after (h_{t-1} − n) · σ'
    sigmoid_backward(d_n * candidate, r, grad_input=d_r)  # d_n (W_hn h + b_hn) · σ'
    torch.mul(d_n, r, out=d_candidate)
    return d_before
