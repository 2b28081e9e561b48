"""The two recurrences, of the encoder and of the decoder, and the sum over the vocabulary, gradients by hand.

Autograd multiplies out the gradient of every weight at every step and keeps a tape of small operations; here the
loops keep what the gradient needs and no more (the decoder computes what is under its attention twice instead of
keeping it), and each matrix's gradient is one product over all steps, behind the loop. The readable forms, which the
tests hold these to, are `gru_naive`, `CopyNetDecoder.step` and `vocabulary_terms`.

Letters: r reset gate, z update gate, n candidate; h encoder states, s decoder states, a attention, ρ selective read,
c and ζ what the two read, ψ scores; d_x the gradient of the loss by x.

What a step computes stands side by side in columns, and so do the gradients:

    (query W s,) W_hn h + b_hn, r, z, n (, the readout's input)

The recurrent product writes those up to z, the inputs' product adds to those from r on: r and z have one gradient,
which both read where it stands.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .copy_distribution import at_least_float32, masked_softmax, vocabulary_terms

# gradient · (1 − y²) and gradient · y (1 − y), from y = tanh(x) and y = σ(x)
_TANH_BACK, _SIGMOID_BACK = torch.ops.aten.tanh_backward.grad_input, torch.ops.aten.sigmoid_backward.grad_input


def gru_naive(
    input_gates: Tensor, keep: Tensor, weight: Tensor, bias: Tensor, initial: Tensor | None = None
) -> Tensor:
    """GRU states of all steps, for several directions at once.

    Args:
        input_gates: (G, S, B, 3H) W_i x + b_i for the gates r, z, n.
        keep: (G, S, B, 1) bool; where false, the step is padding and h stays.
        weight: (G, H, 3H) recurrent weights, transposed: h @ weight.
        bias: (G, 1, 3H) recurrent bias.
        initial: (G, B, H) h before the first step; None: zero.

    Returns:
        (G, S, B, H) h, for G directions, S steps in each direction's own order, B rows, H units.
    """
    size = weight.shape[1]
    zeros = input_gates.new_zeros(input_gates.shape[0], input_gates.shape[2], size)
    hidden = zeros if initial is None else initial

    def step(hidden: Tensor, gates: Tensor, keep_t: Tensor) -> Tensor:
        hidden_gates = torch.baddbmm(bias, hidden, weight)
        r, z = torch.sigmoid(gates[..., : 2 * size] + hidden_gates[..., : 2 * size]).chunk(2, dim=-1)
        n = torch.tanh(gates[..., 2 * size :] + r * hidden_gates[..., 2 * size :])
        return torch.where(keep_t, n + z * (hidden - n), hidden)

    if isinstance(input_gates.shape[1], torch.SymInt):  # a graph for any number of steps, which must keep the loop
        return _scanned(step, hidden, input_gates, keep)
    states = []
    for gates, keep_t in zip(input_gates.unbind(1), keep.unbind(1), strict=True):
        hidden = step(hidden, gates, keep_t)
        states.append(hidden)
    return torch.stack(states, dim=1)


def _scanned(step: Callable[..., Tensor], hidden: Tensor, *inputs: Tensor) -> Tensor:
    """The states (G, S, …) of all steps over the inputs' second axis, as one operation of a graph."""
    from torch._higher_order_ops.scan import scan  # a prototype of torch's, wanted for exports alone

    def combine(before: Tensor, now: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        after = step(before, *now)
        return after, after.clone()  # what is handed on and what is kept may not be one tensor

    return scan(combine, hidden, inputs, dim=1)[1]


class FusedGRU(torch.autograd.Function):
    """`gru_naive` with its gradient by hand, in `input_gates`' precision. A padded step has z = 1: h passes on."""

    @staticmethod
    def forward(
        ctx: Any, input_gates: Tensor, keep: Tensor, weight: Tensor, bias: Tensor, initial: Tensor | None = None
    ) -> Tensor:
        directions, steps, batch, _ = input_gates.shape
        size = weight.shape[1]
        # r, z, n become n, r, z: the order of the columns
        weight, bias = (part.to(input_gates.dtype).roll(size, dims=-1) for part in (weight, bias))
        states = input_gates.new_empty(directions, steps + 1, batch, size)
        states[:, 0] = 0 if initial is None else initial
        columns = input_gates.new_empty(directions, _kept(ctx, steps), batch, 4 * size)
        padded = ~keep
        for t in range(steps):
            now = columns[:, t % columns.shape[1]]
            torch.baddbmm(bias, states[:, t], weight, out=now[..., : 3 * size])
            gru_step(now, input_gates[:, t], states[:, t], padded[:, t], states[:, t + 1])
        ctx.save_for_backward(states, columns, weight)
        return states[:, 1:]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_states: Tensor) -> tuple[Tensor | None, ...]:
        states, columns, weight = ctx.saved_tensors
        steps, size = d_states.shape[1], d_states.shape[3]
        weight_back = weight.transpose(1, 2).contiguous()
        d_columns = torch.empty_like(columns)
        d_recurrent = d_columns[..., : 3 * size]
        carried = torch.zeros_like(states[:, 0])
        for t in reversed(range(steps)):
            carried = _gru_step_back(d_states[:, t] + carried, states[:, t], columns[:, t], d_columns[:, t])
            carried.baddbmm_(d_recurrent[:, t], weight_back)
        before, flat = states[:, :-1].flatten(1, 2), d_recurrent.flatten(1, 2)
        d_weight, d_bias = torch.bmm(before.transpose(1, 2), flat), flat.sum(1, keepdim=True)
        d_weight, d_bias = (part.roll(-size, dims=-1) for part in (d_weight, d_bias))
        return (d_columns[..., size:], None, d_weight, d_bias, carried)[: len(ctx.needs_input_grad)]


def _kept(ctx: Any, steps: int) -> int:
    """How many steps' columns to keep: all where a gradient is wanted, else one, written over."""
    return steps if any(ctx.needs_input_grad) else 1


class DecoderWeights(NamedTuple):
    """The decoder's weights as the loop wants them, in the precision it runs in.

    state: (A + 3H, H) 2W of Eq. 3 above W_hh of the GRU, whose gates stand in the order n, r, z: all read s_{t-1}.
    state_bias: (A + 3H). score: (A) 2v of Eq. 3. coverage: (A) 2 w_cov, or None.
    context, selective: (3H, D) what the gates r, z, n take of c_t and of ζ_t, or (4H, D) with what the readout takes
        of them below it; selective is None without selective read.
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

    Args:
        inputs: (T, B, 3H) what the gates take of all that is known before the loop, W_ih's bias included: of
            e(y_{t-1}), and of ζ_t where y_{t-1} stands once; (T, B, 4H) with what the readout takes, unless r_t = s_t.
        dropped: (T, B, H) dropout's factors of r_t, or None.
        repeats: (T, B, S) bool, x_j = y_{t-1} in rows where that word stands more than once; their ζ_t depends on
            r_{t-1} and is read in the loop. None without selective read.
        mask: (B, S) bool, false on padding.
        hidden_states: (B, S, D) h. keys: (B, S, A) 2U h. copy_keys: (B, S, H) tanh(h W_c), or None without `repeats`.
        initial: (B, H) s_0.
        starts_blind: the first step attends to nothing.
        weights: the fields of `DecoderWeights`.

    Returns:
        r_t (T, B, H), s_t (T, B, H) and a_t (T, B, S).
    """

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        dropped: Tensor | None,
        repeats: Tensor | None,
        mask: Tensor,
        hidden_states: Tensor,
        keys: Tensor,
        copy_keys: Tensor | None,
        initial: Tensor,
        starts_blind: bool,
        *weights: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        w = DecoderWeights(*weights)  # type: ignore[arg-type]
        steps, (batch, size), (length, query) = inputs.shape[0], initial.shape, keys.shape[1:]
        new, zeros = inputs.new_empty, inputs.new_zeros
        columns = new(_kept(ctx, steps), batch, query + 4 * size)
        attention, contexts = new(steps, batch, length), new(steps, batch, hidden_states.shape[2])
        states = new(steps + 1, batch, size)
        readouts = zeros(steps + 1, batch, size)  # r_{-1} = 0: nothing was copied before the first step
        undropped = readouts[1:] if dropped is None else new(steps, batch, size)
        coverage = None if w.coverage is None else at_least_float32(zeros(steps + 1, batch, length))
        features = torch.empty_like(keys)  # one for all steps: new memory would cost more than the sum
        states[0] = initial
        ctx.places = _places(repeats, steps)
        for t, place in enumerate(ctx.places):
            now = columns[t % columns.shape[0]]
            torch.addmm(w.state_bias, states[t], w.state.t(), out=now[:, : query + 3 * size])
            _attention_features(keys, now[:, :query], w, None if coverage is None else coverage[t], features)
            attention[t] = masked_softmax(features @ w.score, mask) if t or not starts_blind else 0
            if coverage is not None:
                torch.add(coverage[t], attention[t], out=coverage[t + 1])
            contexts[t] = torch.bmm(attention[t][:, None, :], hidden_states)[:, 0]
            sums = inputs[t].clone()
            sums[:, : w.context.shape[0]].addmm_(contexts[t], w.context.t())
            if place is not None and w.selective is not None and copy_keys is not None:
                read = _RepeatedRead.of(place, readouts[t], copy_keys, hidden_states)
                sums[:, : w.selective.shape[0]].index_add_(0, place.rows, read.zeta @ w.selective.t())
            gru_step(now[:, query:], sums[:, : 3 * size], states[t], None, states[t + 1])
            if w.readout is None:
                undropped[t] = states[t + 1]
            else:
                torch.addmm(sums[:, 3 * size :], states[t + 1], w.readout.t(), out=undropped[t]).tanh_()
            if dropped is not None:
                torch.mul(undropped[t], dropped[t], out=readouts[t + 1])
        kept = (columns, states, attention, contexts, readouts, undropped, coverage)
        ctx.save_for_backward(*kept, dropped, hidden_states, keys, copy_keys, *weights)
        return readouts[1:], states[1:], attention

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_readouts: Tensor, d_states: Tensor, d_attention: Tensor) -> Any:
        saved = ctx.saved_tensors  # checkpointing gives them out once
        columns, states, attention, contexts, readouts, undropped, coverage = saved[:7]
        dropped, hidden_states, keys, copy_keys = saved[7:11]
        w = DecoderWeights(*saved[11:])
        (steps, batch, size), query = undropped.shape, keys.shape[2]

        d_readouts = d_readouts.clone()  # what is read in the loop adds to it
        d_columns = columns.new_empty(steps, batch, query + (4 if w.readout is None else 5) * size)
        d_recurrent, d_inputs = d_columns[..., : query + 3 * size], d_columns[..., query + size :]
        d_contexts, d_keys = torch.empty_like(contexts), torch.zeros_like(keys)
        d_score = at_least_float32(torch.zeros_like(w.score))  # a sum over all steps
        d_hidden_states = torch.zeros_like(hidden_states)
        d_copy_keys = None if copy_keys is None else torch.zeros_like(copy_keys)
        reads: list[tuple[Tensor, Tensor]] = []  # of each step: gradients of what was taken of ζ, and ζ
        d_coverage = None if coverage is None else torch.zeros_like(coverage[0])
        d_coverage_weight = None if w.coverage is None else torch.zeros_like(d_score)
        features, carried = torch.empty_like(keys), torch.zeros_like(states[0])
        for t, place in reversed(list(enumerate(ctx.places))):
            d_readout = d_readouts[t] if dropped is None else d_readouts[t] * dropped[t]
            d_state = d_states[t] + carried
            if w.readout is None:
                d_state += d_readout
            else:
                _TANH_BACK(d_readout, undropped[t], grad_input=d_inputs[t, :, 3 * size :])
                d_state.addmm_(d_inputs[t, :, 3 * size :], w.readout)
            carried = _gru_step_back(d_state, states[t], columns[t, :, query:], d_columns[t, :, query:])
            if place is not None and w.selective is not None and copy_keys is not None and d_copy_keys is not None:
                read = _RepeatedRead.of(place, readouts[t], copy_keys, hidden_states)
                d_taken = d_inputs[t, place.rows, : w.selective.shape[0]]
                d_before = _read_back(place, read, readouts[t], d_taken @ w.selective, d_hidden_states, d_copy_keys)
                if t:
                    d_readouts[t - 1].index_add_(0, place.rows, d_before)
                reads.append((d_taken, read.zeta))

            d_contexts[t] = d_inputs[t, :, : w.context.shape[0]] @ w.context
            d_weights = torch.bmm(d_contexts[t][:, None, :], hidden_states.transpose(1, 2))[:, 0] + d_attention[t]
            d_weights = d_weights if d_coverage is None else d_weights + d_coverage
            d_energy = _softmax_back(d_weights, attention[t]).to(attention.dtype)
            _attention_features(keys, columns[t, :, :query], w, None if coverage is None else coverage[t], features)
            d_score += d_energy.flatten() @ features.flatten(0, 1)
            d_features = features.addcmul_(features, features, value=-1).mul_(w.score).mul_(d_energy[..., None])
            d_keys += d_features
            d_columns[t, :, :query] = d_features.sum(1)
            if d_coverage is not None and w.coverage is not None:
                d_coverage_weight += coverage[t].to(d_features.dtype).flatten() @ d_features.flatten(0, 1)
                d_coverage = d_coverage + d_features @ w.coverage
            carried.addmm_(d_recurrent[t], w.state)

        return (
            d_inputs,
            *(None, None, None),
            d_hidden_states.baddbmm_(attention.permute(1, 2, 0), d_contexts.transpose(0, 1)),
            d_keys,
            d_copy_keys,
            carried,
            None,
            _summed_product(d_recurrent, states[:-1]),
            d_recurrent.sum((0, 1)),
            d_score,
            d_coverage_weight,
            _summed_product(d_inputs[..., : w.context.shape[0]], contexts),
            None if w.selective is None else _selective_gradient(reads, w.selective),
            None if w.readout is None else _summed_product(d_inputs[..., 3 * size :], states[1:]),
        )


class _Place(NamedTuple):
    """Where the rows of one step read a word that stands more than once in their source.

    rows: (M). positions: (M, R) j. standing: (M, R) bool; false where a row's word stands less than R times.
    """

    rows: Tensor
    positions: Tensor
    standing: Tensor


def _places(repeats: Tensor | None, steps: int) -> list[_Place | None]:
    """For each step the rows that read in the loop; None where there are none."""
    if repeats is None:
        return [None] * steps
    times = repeats.sum(-1)
    places: list[_Place | None] = []
    for matches, most in zip(repeats, times.amax(-1).tolist(), strict=True):
        rows = matches.any(-1).nonzero()[:, 0] if most else None
        places.append(None if rows is None else _Place(rows, *_first_true(matches[rows], most)))
    return places


def _first_true(matches: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Up to `most` places of each row where `matches` is true, and whether they are."""
    standing, positions = matches.to(torch.uint8).topk(most, dim=-1)
    return positions, standing.bool()


class _RepeatedRead(NamedTuple):
    """ζ (M, D) of Eq. 9 at one step, with what it is made of: ρ (M, R) over copy keys (M, R, H) and h (M, R, D)."""

    zeta: Tensor
    rho: Tensor
    keys: Tensor
    hidden_states: Tensor

    @classmethod
    def of(cls, place: _Place, readout: Tensor, copy_keys: Tensor, hidden_states: Tensor) -> _RepeatedRead:
        """From r_{t-1} (B, H): ψ_c of Eq. 8 at the places alone, for Z cancels in ρ."""
        rows = place.rows[:, None]
        keys, states = copy_keys[rows, place.positions], hidden_states[rows, place.positions]
        rho = masked_softmax(torch.bmm(keys, readout[place.rows][..., None])[..., 0], place.standing)
        return cls(torch.bmm(rho[:, None, :], states)[:, 0], rho, keys, states)


def _read_back(
    place: _Place,
    read: _RepeatedRead,
    readout: Tensor,
    d_zeta: Tensor,
    d_hidden_states: Tensor,
    d_copy_keys: Tensor,
) -> Tensor:
    """Adds what ζ's gradient (M, D) gives h and the copy keys at the places; returns what it gives r_{t-1} (M, H)."""
    rows = place.rows[:, None]
    d_scores = _softmax_back(torch.bmm(read.hidden_states, d_zeta[..., None])[..., 0], read.rho)
    d_hidden_states[rows, place.positions] += read.rho[..., None] * d_zeta[:, None, :]  # no place stands twice
    d_copy_keys[rows, place.positions] += d_scores[..., None] * readout[rows]
    return torch.bmm(d_scores[:, None, :], read.keys)[:, 0]


def _selective_gradient(reads: list[tuple[Tensor, Tensor]], weight: Tensor) -> Tensor:
    if not reads:
        return torch.zeros_like(weight)
    d_taken, zeta = (torch.cat(parts) for parts in zip(*reads, strict=True))
    return d_taken.t() @ zeta


def _summed_product(d_outputs: Tensor, inputs: Tensor) -> Tensor:
    """The gradient of a weight over all steps: (X, Y) from (T, B, X) and (T, B, Y)."""
    return d_outputs.flatten(0, 1).t() @ inputs.flatten(0, 1)


def _softmax_back(d_weights: Tensor, weights: Tensor) -> Tensor:
    """The gradient by the scores of a softmax over the last axis."""
    return weights * (d_weights - (weights * d_weights).sum(-1, keepdim=True))


def _attention_features(
    keys: Tensor, query: Tensor, w: DecoderWeights, coverage: Tensor | None, features: Tensor
) -> None:
    """Writes σ(2 (U h_j + W s_{t-1} + w_cov cov_tj)) (B, S, A), for the tanh of Eq. 3 (see `CopyNetAttention`)."""
    torch.add(keys, query[:, None, :], out=features)
    if coverage is not None and w.coverage is not None:
        features.addcmul_(coverage[..., None].to(features.dtype), w.coverage)
    features.sigmoid_()


def gru_step(columns: Tensor, inputs: Tensor, before: Tensor, padded: Tensor | None, after: Tensor) -> None:
    """One GRU step, from columns whose first three hold the recurrent products and inputs of r, z, n; completes the
    columns and writes the new state."""
    size = before.shape[-1]
    candidate, r, z, n = columns.split(size, dim=-1)
    columns[..., size : 3 * size].add_(inputs[..., : 2 * size]).sigmoid_()
    if padded is not None:
        z.masked_fill_(padded, 1.0)
    torch.addcmul(inputs[..., 2 * size :], r, candidate, out=n).tanh_()
    torch.lerp(n, before, z, out=after)


def _gru_step_back(d_after: Tensor, before: Tensor, columns: Tensor, d_columns: Tensor) -> Tensor:
    """Writes the gradients by the columns; returns what goes to `before` directly, z · d_after."""
    size = before.shape[-1]
    candidate, r, z, n = columns.split(size, dim=-1)
    d_candidate, d_r, d_z, d_n = d_columns[..., : 4 * size].split(size, dim=-1)
    carried = d_after * z
    _TANH_BACK(d_after - carried, n, grad_input=d_n)
    _SIGMOID_BACK((before - n).mul_(d_after), z, grad_input=d_z)
    _SIGMOID_BACK(d_n * candidate, r, grad_input=d_r)
    torch.mul(d_n, r, out=d_candidate)
    return carried


class FusedVocabularyTerms(torch.autograd.Function):
    """`vocabulary_terms` without a second tensor as large as the scores: sums and gradients are taken in pieces.

    With `reuse` the gradient is written over the scores: for those that nobody reads again.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, columns: Tensor, reuse: bool) -> tuple[Tensor, Tensor]:
        scores = scores.contiguous()
        pieces = zip(_pieces(scores, scores), _pieces(columns, scores), strict=True)
        terms = zip(*(vocabulary_terms(*piece) for piece in pieces), strict=True)
        chosen, log_sum = (torch.cat(term).view(columns.shape) for term in terms)
        ctx.save_for_backward(scores, columns, log_sum)
        ctx.reuse, ctx.spent = reuse, False
        return chosen, log_sum

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_chosen: Tensor, d_log_sum: Tensor) -> tuple[Tensor, None, None]:
        if ctx.spent:
            raise RuntimeError(
                "a second backward through the loss, whose scores the first one has turned into their gradient: pass "
                "skip_logits=False to the model to keep them."
            )
        scores, columns, log_sum = ctx.saved_tensors
        ctx.spent = ctx.reuse
        d_scores = scores if ctx.reuse else torch.empty_like(scores)
        tensors = (d_scores, scores, columns, log_sum, d_chosen, d_log_sum)
        pieces = zip(*(_pieces(tensor, scores) for tensor in tensors), strict=True)
        for d_piece, piece, words, normaliser, d_word, d_normaliser in pieces:
            shares = torch.sub(piece.to(normaliser.dtype), normaliser[:, None]).exp_().mul_(d_normaliser[:, None])
            d_piece.copy_(shares.scatter_add_(-1, words[:, None], d_word[:, None]))
        return d_scores, None, None


_PIECE = 2**18
"""Scores to a piece, so that it and what is computed of it stay in a core's cache; 64 times as many elsewhere."""


def _pieces(tensor: Tensor, scores: Tensor) -> tuple[Tensor, ...]:
    """`tensor`, one row for each row of scores (B, T, V), split along those rows."""
    at_once = _PIECE if scores.is_cpu else 64 * _PIECE
    return tensor.flatten(0, 1).split(max(1, at_once // scores.shape[-1]))
