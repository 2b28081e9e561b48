"""The two recurrences, of the encoder and of the decoder, with their gradients written by hand.

Autograd multiplies out the gradient of every weight at every step and keeps a tape of small operations; here the
loops keep what the gradient needs and no more (the decoder computes the tanh of its attention twice instead of
keeping it), and each weight's gradient is one product over all steps, behind the loop. The readable forms, which the
tests hold these to, are `gru_naive` and `CopyNetDecoder.step`.

Letters: r reset gate, z update gate, n candidate; h encoder states, s decoder states, a attention, ρ selective read,
c and ζ what the two read, ψ copy scores; d_x the gradient of the loss by x.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .copy_distribution import masked_softmax


def gru_naive(input_gates: Tensor, keep: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """GRU states of all steps from zero, for several directions at once.

    Args:
        input_gates: (G, S, B, 3H) W_i x + b_i for the gates r, z, n.
        keep: (G, S, B, 1) bool; where false, the step is padding and h stays.
        weight: (G, H, 3H) recurrent weights, transposed: h @ weight.
        bias: (G, 1, 3H) recurrent bias.

    Returns:
        (G, S, B, H) h, for G directions, S steps in each direction's own order, B rows, H units.
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
    """`gru_naive` with its gradient by hand, in `input_gates`' precision. A padded step has z = 1: h passes on."""

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
            hidden_gates = torch.baddbmm(bias, states[:, t], weight)
            _gru_step(
                input_gates[:, t],
                hidden_gates,
                states[:, t],
                keep[:, t],
                (gates[:, t], candidate_gates[:, t], states[:, t + 1]),
            )
        ctx.save_for_backward(states, gates, candidate_gates, weight)
        return states[:, 1:]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_states: Tensor) -> tuple[Tensor, None, Tensor, Tensor]:
        states, gates, candidate_gates, weight = ctx.saved_tensors
        directions, steps, batch, size = candidate_gates.shape
        weight_back = weight.transpose(1, 2).contiguous()
        d_input_gates, d_hidden_gates = torch.empty_like(gates), torch.empty_like(gates)
        carried = torch.zeros_like(states[:, 0])
        for t in reversed(range(steps)):
            carried = _gru_step_back(
                d_states[:, t] + carried,
                states[:, t],
                (gates[:, t], candidate_gates[:, t]),
                (d_input_gates[:, t], d_hidden_gates[:, t]),
            )
            carried.baddbmm_(d_hidden_gates[:, t], weight_back)
        flat = d_hidden_gates.view(directions, steps * batch, 3 * size)
        before = states[:, :-1].reshape(directions, steps * batch, size)
        return d_input_gates, None, torch.bmm(before.transpose(1, 2), flat), flat.sum(1, keepdim=True)


class DecoderWeights(NamedTuple):
    """The decoder's weights as the loop wants them, in the precision it runs in.

    state: (3H + A, H) W_hh of the GRU above W of Eq. 3, both read s_{t-1}; state_bias: (3H + A).
    score: (A) v of Eq. 3. coverage: (A) w_cov, or None.
    context, selective: (3H, D) what the gates take of c_t and of ζ_t, or (4H, D) with what the readout takes of them
        below it; selective is None without selective read.
    readout: (H, H) what the readout takes of s_t; None where r_t = s_t.
    """

    state: Tensor
    state_bias: Tensor
    score: Tensor
    coverage: Tensor | None
    context: Tensor
    selective: Tensor | None
    readout: Tensor | None


class FusedDecoder(torch.autograd.Function):
    """All steps of `CopyNetDecoder` under teacher forcing, from s_0, with the gradient by hand.

    ζ_t is 0 in rows whose y_{t-1} is not in the source: its products are taken of the other rows alone.

    Args:
        gate_inputs: (T, B, 3H) what the gates take of e(y_{t-1}), W_ih's bias included.
        readout_inputs: (T, B, H) what the readout takes of e(y_{t-1}), its bias included; None where r_t = s_t.
        dropped: (T, B, H) dropout's factors of r_t, or None.
        matches: (T, B, S) bool, x_j = y_{t-1}; None without selective read.
        mask: (B, S) bool, false on padding.
        hidden_states: (B, S, D) h. keys: (B, S, A) U h. copy_keys: (B, S, H) tanh(h W_c), or None.
        initial: (B, H) s_0.
        weights: the fields of `DecoderWeights`.

    Returns:
        r_t (T, B, H), s_t (T, B, H), a_t (T, B, S) and ψ_t (T, B, S), the last empty without copying.
    """

    @staticmethod
    def forward(
        ctx: Any,
        gate_inputs: Tensor,
        readout_inputs: Tensor | None,
        dropped: Tensor | None,
        matches: Tensor | None,
        mask: Tensor,
        hidden_states: Tensor,
        keys: Tensor,
        copy_keys: Tensor | None,
        initial: Tensor,
        *weights: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        w = DecoderWeights(*weights)  # type: ignore[arg-type]
        steps, batch, size = gate_inputs.shape[0], gate_inputs.shape[1], initial.shape[1]
        length, new = mask.shape[1], gate_inputs.new_empty
        states, gates, candidate_gates = (
            new(steps + 1, batch, size),
            new(steps, batch, 3 * size),
            new(steps, batch, size),
        )
        queries = new(steps, batch, keys.shape[2])
        read_weights = new(steps, batch, 1 if matches is None else 2, length)  # [a] or [a; ρ]
        reads = new(steps, batch, read_weights.shape[2], hidden_states.shape[2])  # [c] or [c; ζ]
        readouts, scores = new(steps, batch, size), new(steps, batch, 0 if copy_keys is None else length)
        coverage = None if w.coverage is None else gate_inputs.new_zeros(steps + 1, batch, length)
        matched = _matched_rows(matches)
        states[0] = initial
        for t in range(steps):
            state_gates = torch.addmm(w.state_bias, states[t], w.state.t())
            queries[t] = state_gates[:, 3 * size :]
            features = _attention_features(keys, queries[t], w, None if coverage is None else coverage[t])
            read_weights[t, :, 0] = masked_softmax(features @ w.score, mask)
            if matches is not None:
                read_weights[t, :, 1] = masked_softmax(scores[t - 1] if t else torch.zeros_like(scores[0]), matches[t])
            if coverage is not None:
                torch.add(coverage[t], read_weights[t, :, 0], out=coverage[t + 1])
            torch.bmm(read_weights[t], hidden_states, out=reads[t])
            gate_sum, inside = gate_inputs[t].clone(), None if readout_inputs is None else readout_inputs[t].clone()
            _add_read(gate_sum, inside, reads[t, :, 0], w.context, None)
            if w.selective is not None and matched[t].numel():
                _add_read(gate_sum, inside, reads[t, :, 1], w.selective, matched[t])
            written = (gates[t], candidate_gates[t], states[t + 1])
            _gru_step(gate_sum, state_gates[:, : 3 * size], states[t], None, written)
            if inside is None or w.readout is None:
                readouts[t] = states[t + 1]
            else:
                torch.addmm(inside, states[t + 1], w.readout.t(), out=readouts[t]).tanh_()
            if copy_keys is not None:
                readout = readouts[t] if dropped is None else readouts[t] * dropped[t]
                scores[t] = torch.bmm(readout[:, None, :], copy_keys.transpose(1, 2))[:, 0]
        saved = (states, gates, candidate_gates, queries, read_weights, reads, readouts, coverage)
        ctx.save_for_backward(*saved, dropped, matches, hidden_states, keys, copy_keys, *weights)
        return readouts if dropped is None else readouts * dropped, states[1:], read_weights[:, :, 0], scores

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_readouts: Tensor, d_states: Tensor, d_attention: Tensor, d_scores: Tensor) -> Any:
        saved = ctx.saved_tensors  # checkpointing gives them out once
        states, gates, candidate_gates, queries, read_weights, reads, readouts, coverage = saved[:8]
        dropped, matches, hidden_states, keys, copy_keys = saved[8:13]
        w = DecoderWeights(*saved[13:])
        steps, batch, size = readouts.shape
        matched = _matched_rows(matches)

        d_readouts, d_scores = d_readouts.clone(), d_scores.clone()  # the loop adds to them
        d_sums = gates.new_empty(steps, batch, 3 * size if w.readout is None else 4 * size)  # gates, then readout
        d_state_gates = gates.new_empty(steps, batch, w.state.shape[0])  # of W_hh s + b and of the query
        d_reads = torch.zeros_like(reads)
        d_keys, d_score = torch.zeros_like(keys), torch.zeros_like(w.score)
        d_coverage = None if coverage is None else torch.zeros_like(coverage[0])
        d_coverage_weight = None if w.coverage is None else torch.zeros_like(w.coverage)
        carried = torch.zeros_like(states[0])
        for t in reversed(range(steps)):
            if copy_keys is not None:
                d_readouts[t] += torch.bmm(d_scores[t][:, None, :], copy_keys)[:, 0]
            d_readout = d_readouts[t] if dropped is None else d_readouts[t] * dropped[t]
            d_state = d_states[t] + carried
            if w.readout is None:
                d_state += d_readout
            else:
                d_sums[t, :, 3 * size :] = d_readout * (1 - readouts[t] * readouts[t])
                d_state.addmm_(d_sums[t, :, 3 * size :], w.readout)
            written = (d_sums[t, :, : 3 * size], d_state_gates[t, :, : 3 * size])
            carried = _gru_step_back(d_state, states[t], (gates[t], candidate_gates[t]), written)

            d_reads[t, :, 0] = d_sums[t, :, : w.context.shape[0]] @ w.context
            if w.selective is not None and matched[t].numel():
                d_reads[t, matched[t], 1] = d_sums[t, matched[t], : w.selective.shape[0]] @ w.selective
            d_weights = torch.bmm(d_reads[t], hidden_states.transpose(1, 2))
            d_weights[:, 0] += d_attention[t] if d_coverage is None else d_attention[t] + d_coverage
            d_weights = read_weights[t] * (d_weights - (read_weights[t] * d_weights).sum(-1, keepdim=True))
            if w.selective is not None and t:
                d_scores[t - 1] += d_weights[:, 1]

            d_energy = d_weights[:, 0]
            features = _attention_features(keys, queries[t], w, None if coverage is None else coverage[t])
            d_score += d_energy.flatten() @ features.flatten(0, 1)
            d_features = features.mul_(features).neg_().add_(1).mul_(w.score).mul_(d_energy[..., None])
            d_keys += d_features
            d_state_gates[t, :, 3 * size :] = d_features.sum(1)
            if d_coverage is not None and w.coverage is not None:
                d_coverage_weight += coverage[t].flatten() @ d_features.flatten(0, 1)
                d_coverage = d_coverage + d_features @ w.coverage
            carried.addmm_(d_state_gates[t], w.state)

        rows = [x.transpose(0, 1).flatten(1, 2) for x in (read_weights, d_reads)]
        d_copy_keys = None
        if copy_keys is not None:
            final = readouts if dropped is None else readouts * dropped
            d_copy_keys = torch.bmm(d_scores.permute(1, 2, 0), final.transpose(0, 1))
        return (
            d_sums[..., : 3 * size],
            None if w.readout is None else d_sums[..., 3 * size :],
            *(None, None, None),
            torch.bmm(rows[0].transpose(1, 2), rows[1]),
            d_keys,
            d_copy_keys,
            carried,
            d_state_gates.flatten(0, 1).t() @ states[:-1].flatten(0, 1),
            d_state_gates.sum((0, 1)),
            d_score,
            d_coverage_weight,
            d_sums[..., : w.context.shape[0]].flatten(0, 1).t() @ reads[:, :, 0].flatten(0, 1),
            None if w.selective is None else _selective_gradient(d_sums[..., : w.selective.shape[0]], reads, matches),
            None if w.readout is None else d_sums[..., 3 * size :].flatten(0, 1).t() @ states[1:].flatten(0, 1),
        )


def _matched_rows(matches: Tensor | None) -> list[Tensor]:
    """For each step the rows whose y_{t-1} is in their source."""
    return [] if matches is None else [rows.nonzero()[:, 0] for rows in matches.any(-1)]


def _add_read(gates: Tensor, inside: Tensor | None, read: Tensor, weight: Tensor, rows: Tensor | None) -> None:
    """Adds what the gates, and the readout where it does, take of c_t or ζ_t; of `rows` only, where given."""
    taken = (read if rows is None else read[rows]) @ weight.t()
    width = gates.shape[1]
    for target, part in ((gates, taken[:, :width]), (inside, taken[:, width:])):
        if target is not None and part.shape[1]:
            target.add_(part) if rows is None else target.index_add_(0, rows, part)


def _selective_gradient(d_sums: Tensor, reads: Tensor, matches: Tensor) -> Tensor:
    """The gradient of what is taken of ζ, from the rows and steps where it is not 0."""
    places = matches.any(-1)
    return d_sums[places].t() @ reads[:, :, 1][places]


def _attention_features(keys: Tensor, query: Tensor, w: DecoderWeights, coverage: Tensor | None) -> Tensor:
    """tanh(U h_j + W s_{t-1} + w_cov cov_tj) of Eq. 3: (B, S, A)."""
    features = keys + query[:, None, :]
    if coverage is not None and w.coverage is not None:
        features.addcmul_(coverage[..., None], w.coverage)
    return features.tanh_()


def _gru_step(
    input_gates: Tensor,
    hidden_gates: Tensor,
    before: Tensor,
    keep: Tensor | None,
    written: tuple[Tensor, Tensor, Tensor],
) -> None:
    """One GRU step; writes the gates r, z, n, the candidate's recurrent part W_hn h + b_hn, and the new state."""
    gates, candidate_gates, after = written
    size = before.shape[-1]
    candidate_gates.copy_(hidden_gates[..., 2 * size :])
    r_z, n = gates[..., : 2 * size], gates[..., 2 * size :]
    torch.add(input_gates[..., : 2 * size], hidden_gates[..., : 2 * size], out=r_z).sigmoid_()
    if keep is not None:
        gates[..., size : 2 * size].masked_fill_(~keep, 1.0)
    torch.addcmul(input_gates[..., 2 * size :], gates[..., :size], candidate_gates, out=n).tanh_()
    torch.lerp(n, before, gates[..., size : 2 * size], out=after)


def _gru_step_back(
    d_after: Tensor, before: Tensor, kept: tuple[Tensor, Tensor], written: tuple[Tensor, Tensor]
) -> Tensor:
    """Writes the gradients by the gates' input side and by their recurrent side; returns what goes to `before`
    directly, z · d_after."""
    (gates, candidate_gates), (d_input_gates, d_hidden_gates) = kept, written
    size = before.shape[-1]
    r, z, n = gates.chunk(3, dim=-1)
    d_n = d_after * (1 - z) * (1 - n * n)
    d_input_gates[..., :size] = d_n * candidate_gates * r * (1 - r)
    d_input_gates[..., size : 2 * size] = d_after * (before - n) * z * (1 - z)
    d_input_gates[..., 2 * size :] = d_n
    d_hidden_gates[..., : 2 * size] = d_input_gates[..., : 2 * size]
    d_hidden_gates[..., 2 * size :] = d_n * r
    return d_after * z
