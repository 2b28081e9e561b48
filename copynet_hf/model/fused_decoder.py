"""The decoder under teacher forcing in its fast form, with the gradient by hand.

Products that do not depend on the recurrence are computed for all steps before or after the loop. The loop saves only
what the backward pass needs; the attention's features, B · S · A of them at each step, are recomputed there.

The readable form is `CopyNetDecoder.step`; letters, columns and shapes are those of `fused_step`, with B rows where
R = N. d_x is the gradient of the loss with respect to x; with a readout, the last H columns of `d_columns` hold the
gradient of its pre-activation.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from .copy_distribution import at_least_float32, copy_scores
from .fused_step import (
    DecoderWeights,
    RecurrentWeights,
    StepBuffers,
    allocate_features,
    fused_step,
    read_selectively,
    write_features,
)
from .gru import gru_step_backward, steps_to_keep, tanh_backward
from .memory import FeatureMemory, Memory


def run_fused(
    embeddings: Tensor,
    matches: Tensor,
    memory: Memory,
    initial: Tensor,
    weights: DecoderWeights,
    dropout: nn.Dropout | None,
    starts_blind: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """r_t (B, T, H), s_t (B, T, H) and a_t (B, T, S) of all steps from s_0 (B, H), with the gradient by hand.

    Args:
        embeddings: (B, T, E). matches: (B, T, S) bool, x_j = y_{t-1}.
        dropout: of r_t; None: it has none.
        starts_blind: the first step attends to nothing, later ones as always.
    """
    assert memory.attention_keys is not None
    inputs = nn.functional.linear(embeddings.transpose(0, 1), weights.embedding, weights.bias)  # (T, B, X)
    repeats = None
    if weights.recurrent.selective is not None:
        matches_by_step = matches.transpose(0, 1)  # (T, B, S)
        times = matches_by_step.sum(-1, keepdim=True)
        repeats = matches_by_step & (times > 1)
        inputs = add_reads_of_single_positions(
            inputs, matches_by_step & (times == 1), memory.hidden_states, weights.recurrent.selective
        )
    dropout_factors = None
    if dropout is not None and dropout.training and dropout.p:
        dropout_factors = dropout(inputs.new_ones(*inputs.shape[:2], initial.shape[1]))
    features = memory.features
    readout, hidden, attention = FusedDecoder.apply(
        inputs,
        dropout_factors,
        repeats,
        memory.mask,
        memory.hidden_states,
        2 * memory.attention_keys,
        None if repeats is None else memory.copy_keys,
        initial,
        starts_blind,
        *((None, None, None) if features is None else features._replace(keys=2 * features.keys)),
        *weights.recurrent.to(inputs.dtype),
    )
    return readout.transpose(0, 1), hidden.transpose(0, 1), attention.transpose(0, 1)


def add_reads_of_single_positions(inputs: Tensor, matches: Tensor, hidden_states: Tensor, weight: Tensor) -> Tensor:
    """Adds W ζ(y_{t-1}) where y_{t-1} is at one position of the source: ρ = 1 there, so ζ is h_j and needs no loop.

    inputs (T, B, X); matches (T, B, S) bool, these positions; hidden_states (B, S, D); weight (at most X, D), of the
    first X.
    """
    steps, rows, positions = matches.nonzero(as_tuple=True)
    _, batch, length = matches.shape
    zeta = hidden_states.flatten(0, 1).index_select(0, rows * length + positions)
    product = nn.functional.pad(nn.functional.linear(zeta, weight), (0, inputs.shape[-1] - weight.shape[0]))
    return inputs.flatten(0, 1).index_add(0, steps * batch + rows, product).view(inputs.shape)


class RepeatedWords(NamedTuple):
    """The rows of one step whose y_{t-1} is at several positions of their source: ρ depends on the step before.

    rows: (M). positions: (M, P) j. is_position: (M, P) bool; false where a row's word has fewer than P positions.
    """

    rows: Tensor
    positions: Tensor
    is_position: Tensor

    def read(self, readout: Tensor, copy_keys: Tensor, hidden_states: Tensor) -> RepeatedRead:
        """Eq. 9 at these positions, from r_{t-1} (B, H): ψ_c of Eq. 8 is needed there alone, because Z cancels."""
        rows = self.rows[:, None]
        keys, states = copy_keys[rows, self.positions], hidden_states[rows, self.positions]
        scores = copy_scores(keys, readout[self.rows, None])[:, 0]
        rho, zeta = read_selectively(scores, self.is_position, states)
        return RepeatedRead(zeta, rho, keys, states)


class RepeatedRead(NamedTuple):
    """ζ (M, D), ρ (M, P), and the copy keys (M, P, H) and states (M, P, D) that they are made of."""

    zeta: Tensor
    rho: Tensor
    copy_keys: Tensor
    hidden_states: Tensor


def find_repeated_words(repeats: Tensor | None, steps: int) -> list[RepeatedWords | None]:
    """For each step the rows with a repeated word, from `repeats` (T, B, S) bool; None where there are none."""
    if repeats is None:
        return [None] * steps
    found: list[RepeatedWords | None] = []
    for matches, most in zip(repeats, repeats.sum(-1).amax(-1).tolist(), strict=True):
        if not most:
            found.append(None)
            continue
        rows = matches.any(-1).nonzero()[:, 0]
        is_position, positions = matches[rows].to(torch.uint8).topk(most, dim=-1)
        found.append(RepeatedWords(rows, positions, is_position.bool()))
    return found


class _Saved(NamedTuple):
    """What the backward pass reads; see `FusedDecoder`. r_t is kept after dropout, for all t from −1, and
    before it."""

    columns: Tensor  # (T, B, A + 4H)
    decoder_states: Tensor  # (T + 1, B, H) s_{-1} … s_{T-1}
    attention: Tensor  # (T, B, S)
    contexts: Tensor  # (T, B, D) c_t, with what was read of features
    readouts: Tensor  # (T + 1, B, H)
    undropped: Tensor  # (T, B, H)
    coverage: Tensor | None  # (T + 1, B, S)
    dropout_factors: Tensor | None  # (T, B, H)
    hidden_states: Tensor  # (B, S, D) h_j
    keys: Tensor  # (B, S, A) 2U h_j
    copy_keys: Tensor | None  # (B, S, H) tanh(h_j W_c)
    feature_attention: Tensor | None  # (T, B, F) b_t
    feature_keys: Tensor | None  # (B, F, A) 2U_f e(f_k)
    feature_states: Tensor | None  # (B, F, D) W_f e(f_k)
    feature_mask: Tensor | None  # (B, F)

    @property
    def source_features(self) -> FeatureMemory | None:
        if self.feature_keys is None or self.feature_states is None or self.feature_mask is None:
            return None
        return FeatureMemory(self.feature_keys, self.feature_states, self.feature_mask)


class _Gradients(NamedTuple):
    """Gradients accumulated over the steps, named by the tensor they belong to.

    columns: (T, B, A + 4H or 5H). readouts: (T, B, H), after dropout. contexts: (T, B, D).
    """

    columns: Tensor
    readouts: Tensor
    contexts: Tensor
    hidden_states: Tensor  # (B, S, D)
    keys: Tensor  # (B, S, A)
    copy_keys: Tensor | None  # (B, S, H)
    feature_keys: Tensor | None  # (B, F, A)
    feature_states: Tensor | None  # (B, F, D)
    score: Tensor  # (A)
    coverage_weight: Tensor | None  # (A)
    features: Tensor  # (B, S, A), a buffer that all steps reuse


class FusedDecoder(torch.autograd.Function):
    """All steps of `CopyNetDecoder` under teacher forcing, from s_0, with the gradient by hand.

    Args:
        inputs: (T, B, X) the products of all that is known before the loop, biases included: of e(y_{t-1}), and of
            ζ(y_{t-1}) where y_{t-1} is at one position.
        dropout_factors: (T, B, H) of r_t, or None.
        repeats: (T, B, S) bool, x_j = y_{t-1} in rows where that word is at several positions. None without selective
            read.
        mask: (B, S) bool, false on padding.
        hidden_states: (B, S, D) h_j. keys: (B, S, A) 2U h_j. copy_keys: (B, S, H) tanh(h_j W_c); None without
            `repeats`.
        initial: (B, H) s_0.
        starts_blind: the first step attends to no position.
        feature_keys: (B, F, A) 2U_f e(f_k). feature_states: (B, F, D) W_f e(f_k). feature_mask: (B, F) bool. None each
            without features.
        weights: the fields of `RecurrentWeights`.

    Returns:
        r_t (T, B, H), s_t (T, B, H) and a_t (T, B, S).
    """

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        dropout_factors: Tensor | None,
        repeats: Tensor | None,
        mask: Tensor,
        hidden_states: Tensor,
        keys: Tensor,
        copy_keys: Tensor | None,
        initial: Tensor,
        starts_blind: bool,
        feature_keys: Tensor | None,
        feature_states: Tensor | None,
        feature_mask: Tensor | None,
        *weights: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        w = RecurrentWeights(*weights)  # type: ignore[arg-type]
        steps, (batch, size), (length, attention_size) = inputs.shape[0], initial.shape, keys.shape[1:]
        new, zeros = inputs.new_empty, inputs.new_zeros
        readouts = zeros(steps + 1, batch, size)  # r_{-1} = 0: nothing was copied before the first step
        saved = _Saved(
            columns=new(steps_to_keep(ctx, steps), batch, attention_size + 4 * size),
            decoder_states=new(steps + 1, batch, size),
            attention=zeros(steps, batch, length),
            contexts=new(steps, batch, hidden_states.shape[2]),
            readouts=readouts,
            undropped=readouts[1:] if dropout_factors is None else new(steps, batch, size),
            coverage=None if w.coverage is None else at_least_float32(zeros(steps + 1, batch, length)),
            dropout_factors=dropout_factors,
            hidden_states=hidden_states,
            keys=keys,
            copy_keys=copy_keys,
            feature_attention=None if feature_mask is None else new(steps, *feature_mask.shape),
            feature_keys=feature_keys,
            feature_states=feature_states,
            feature_mask=feature_mask,
        )
        saved.decoder_states[0] = initial
        ctx.starts_blind, ctx.repeated_words = starts_blind, find_repeated_words(repeats, steps)
        features = allocate_features(keys, batch)
        for t, repeated in enumerate(ctx.repeated_words):
            products = inputs[t].clone()
            if repeated is not None and w.selective is not None and copy_keys is not None:
                zeta = repeated.read(readouts[t], copy_keys, hidden_states).zeta
                products[:, : len(w.selective)].index_add_(0, repeated.rows, zeta @ w.selective.t())
            columns = saved.columns[t % len(saved.columns)]
            buffers = StepBuffers(
                columns,
                saved.attention[t],
                saved.decoder_states[t + 1],
                saved.undropped[t],
                features,
                None if saved.feature_attention is None else saved.feature_attention[t],
            )
            coverage = None if saved.coverage is None else saved.coverage[t]
            attends = t > 0 or not starts_blind
            memory = (mask, keys, hidden_states, saved.source_features)
            saved.contexts[t] = fused_step(
                products, saved.decoder_states[t], coverage, *memory, w, buffers, attends=attends
            )
            if saved.coverage is not None:
                torch.add(saved.coverage[t], saved.attention[t], out=saved.coverage[t + 1])
            if dropout_factors is not None:
                torch.mul(saved.undropped[t], dropout_factors[t], out=readouts[t + 1])
        ctx.save_for_backward(*saved, *weights)
        return readouts[1:], saved.decoder_states[1:], saved.attention

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_readouts: Tensor, d_states: Tensor, d_attention: Tensor) -> Any:
        tensors = ctx.saved_tensors  # checkpointing allows one access
        saved, w = _Saved(*tensors[: len(_Saved._fields)]), RecurrentWeights(*tensors[len(_Saved._fields) :])
        (steps, batch, size), attention_size = saved.undropped.shape, saved.keys.shape[2]
        d_columns = saved.columns.new_empty(steps, batch, attention_size + (4 if w.readout is None else 5) * size)
        d_recurrent, d_inputs = d_columns[..., : attention_size + 3 * size], d_columns[..., attention_size + size :]
        grads = _Gradients(
            columns=d_columns,
            readouts=d_readouts.clone(),  # ζ of the step after adds to it
            contexts=torch.empty_like(saved.contexts),
            hidden_states=torch.zeros_like(saved.hidden_states),
            keys=torch.zeros_like(saved.keys),
            copy_keys=None if saved.copy_keys is None else torch.zeros_like(saved.copy_keys),
            feature_keys=None if saved.feature_keys is None else torch.zeros_like(saved.feature_keys),
            feature_states=None if saved.feature_states is None else torch.zeros_like(saved.feature_states),
            score=at_least_float32(torch.zeros_like(w.score)),
            coverage_weight=None if w.coverage is None else at_least_float32(torch.zeros_like(w.coverage)),
            features=torch.empty_like(saved.keys),
        )
        d_hidden = torch.zeros_like(saved.decoder_states[0])
        d_coverage = None if saved.coverage is None else torch.zeros_like(saved.coverage[0])
        repeated_reads: list[tuple[Tensor, Tensor]] = []
        for t, repeated in reversed(list(enumerate(ctx.repeated_words))):
            d_state = d_states[t] + d_hidden + _readout_backward(t, saved, w, grads)
            gates = (saved.columns[t, :, attention_size:], d_columns[t, :, attention_size:])
            d_hidden = gru_step_backward(d_state, saved.decoder_states[t], *gates)
            if repeated is not None:
                repeated_reads.append(_selective_read_backward(t, repeated, d_inputs[t], saved, w, grads))
            torch.matmul(d_inputs[t, :, : len(w.context)], w.context, out=grads.contexts[t])  # W_c c_t
            d_columns[t, :, :attention_size] = 0
            if t or not ctx.starts_blind:
                d_coverage = _attentive_read_backward(t, d_attention[t], d_coverage, saved, w, grads)
            _feature_read_backward(t, saved, w, grads)
            d_hidden.addmm_(d_recurrent[t], w.state)  # through 2W s_{t-1} and W_hh s_{t-1}
        # c_t = Σ_j a_tj h_j, over all steps: d_h_j += Σ_t a_tj d_c_t
        grads.hidden_states.baddbmm_(saved.attention.permute(1, 2, 0), grads.contexts.transpose(0, 1))
        if saved.feature_attention is not None and grads.feature_states is not None:
            grads.feature_states.baddbmm_(saved.feature_attention.permute(1, 2, 0), grads.contexts.transpose(0, 1))
        return (
            d_inputs,
            *(None, None, None),
            grads.hidden_states,
            grads.keys,
            grads.copy_keys,
            d_hidden,
            None,
            grads.feature_keys,
            grads.feature_states,
            None,
            *_weight_gradients(d_recurrent, d_inputs, repeated_reads, saved, w, grads),
        )


def _readout_backward(t: int, saved: _Saved, w: RecurrentWeights, grads: _Gradients) -> Tensor:
    """The gradient (B, H) of s_t through r_t = s_t, or r_t = tanh(W_r s_t + …); writes the latter's."""
    size = saved.undropped.shape[2]
    d_readout = grads.readouts[t]
    if saved.dropout_factors is not None:
        d_readout = d_readout * saved.dropout_factors[t]
    if w.readout is None:
        return d_readout
    d_sum = grads.columns[t, :, -size:]
    tanh_backward(d_readout, saved.undropped[t], grad_input=d_sum)
    return d_sum @ w.readout


def _selective_read_backward(
    t: int, repeated: RepeatedWords, d_inputs: Tensor, saved: _Saved, w: RecurrentWeights, grads: _Gradients
) -> tuple[Tensor, Tensor]:
    """Eq. 9 and 8 at the repeated words of step t, for d_inputs (B, X).

    Returns:
        The gradient of W ζ (M, X) and ζ (M, D), whose product is the gradient of W.
    """
    assert w.selective is not None
    assert saved.copy_keys is not None
    assert grads.copy_keys is not None
    rows, before = repeated.rows[:, None], saved.readouts[t]  # r_{t-1}
    read = repeated.read(before, saved.copy_keys, saved.hidden_states)
    d_product = d_inputs[repeated.rows, : len(w.selective)]
    d_zeta = d_product @ w.selective
    d_rho = torch.bmm(read.hidden_states, d_zeta[..., None])[..., 0]  # ζ = Σ_j ρ_j h_j
    d_scores = softmax_backward(d_rho, read.rho)
    # no position appears twice, so assignment by index adds correctly
    grads.hidden_states[rows, repeated.positions] += read.rho[..., None] * d_zeta[:, None, :]
    grads.copy_keys[rows, repeated.positions] += d_scores[..., None] * before[rows]  # ψ_c(j) = tanh(h_j W_c)·r_{t-1}
    if t:
        d_before = torch.bmm(d_scores[:, None, :], read.copy_keys)[:, 0]
        grads.readouts[t - 1].index_add_(0, repeated.rows, d_before)
    return d_product, read.zeta


def _attentive_read_backward(
    t: int, d_attention: Tensor, d_coverage: Tensor | None, saved: _Saved, w: RecurrentWeights, grads: _Gradients
) -> Tensor | None:
    """Eq. 3 at step t, for d_attention (B, S) and d_coverage (B, S), the gradient of cov_{t+1}.

    Returns:
        The gradient of cov_t; None without coverage.
    """
    d_weights = _read_backward(grads.contexts[t], saved.hidden_states) + d_attention  # c_t = Σ_j a_tj h_j
    if d_coverage is not None:
        d_weights = d_weights + d_coverage  # cov_{t+1} = cov_t + a_t
    attention_size, attention = saved.keys.shape[2], saved.attention[t]
    d_energy = softmax_backward(d_weights, attention).to(attention.dtype)
    coverage = None if saved.coverage is None else saved.coverage[t].to(saved.keys.dtype)
    query = saved.columns[t, :, :attention_size]
    d_features = _energy_backward(d_energy, saved.keys, query, coverage, w, grads.score, grads.features)
    grads.keys.add_(d_features)
    grads.columns[t, :, :attention_size] += d_features.sum(1)
    if coverage is None or d_coverage is None or w.coverage is None or grads.coverage_weight is None:
        return None
    grads.coverage_weight.add_(coverage.flatten() @ d_features.flatten(0, 1))
    return d_coverage + d_features @ w.coverage


def _feature_read_backward(t: int, saved: _Saved, w: RecurrentWeights, grads: _Gradients) -> None:
    """Σ_k b_tk W_f e(f_k) at step t, which is added to c_t."""
    features, attention = saved.source_features, saved.feature_attention
    if features is None or attention is None or grads.feature_keys is None:
        return
    attention_size, buffer = features.keys.shape[2], torch.empty_like(features.keys)
    d_energy = softmax_backward(_read_backward(grads.contexts[t], features.states), attention[t])
    query = saved.columns[t, :, :attention_size]
    d_features = _energy_backward(d_energy, features.keys, query, None, w, grads.score, buffer)
    grads.feature_keys.add_(d_features)
    grads.columns[t, :, :attention_size] += d_features.sum(1)


def _read_backward(d_content: Tensor, states: Tensor) -> Tensor:
    """The gradient (B, S) of the weights of a read, for that of its content (B, D) and states (B, S, D)."""
    return torch.bmm(d_content[:, None, :], states.transpose(1, 2))[:, 0]


def _energy_backward(
    d_energy: Tensor,
    keys: Tensor,
    query: Tensor,
    coverage: Tensor | None,
    w: RecurrentWeights,
    d_score: Tensor,
    features: Tensor,
) -> Tensor:
    """The gradient (B, S, A) of 2x_j = 2U h_j + 2W s_{t-1} + 2w_cov cov_tj from that of e_j = 2v·σ(2x_j), (B, S).

    Args:
        keys: (B, S, A). query: (B, A). coverage: (B, S).
        d_score: the gradient of 2v, which this adds to.
        features: (B, S, A), where the result is written.
    """
    write_features(keys, query[:, None], None if coverage is None else coverage[:, None], w, features[:, None])
    d_score.add_(d_energy.flatten() @ features.flatten(0, 1))
    d_features = features.addcmul_(features, features, value=-1)  # σ' = σ − σ²
    return d_features.mul_(w.score).mul_(d_energy[..., None])


def _weight_gradients(
    d_recurrent: Tensor,
    d_inputs: Tensor,
    repeated_reads: list[tuple[Tensor, Tensor]],
    saved: _Saved,
    w: RecurrentWeights,
    grads: _Gradients,
) -> tuple[Tensor | None, ...]:
    """The gradients of the fields of `RecurrentWeights`: of each weight one product over all steps."""
    size = saved.undropped.shape[2]
    d_selective = None
    if w.selective is not None:
        d_selective = torch.zeros_like(w.selective)
        if repeated_reads:
            d_products, zeta = (torch.cat(parts) for parts in zip(*repeated_reads, strict=True))
            d_selective = d_products.t() @ zeta
    return RecurrentWeights(
        state=sum_outer_products(d_recurrent, saved.decoder_states[:-1]),
        state_bias=d_recurrent.sum((0, 1)),
        score=grads.score,
        coverage=grads.coverage_weight,
        context=sum_outer_products(d_inputs[..., : len(w.context)], saved.contexts),
        selective=d_selective,
        readout=None if w.readout is None else sum_outer_products(d_inputs[..., 3 * size :], saved.decoder_states[1:]),
    )


def sum_outer_products(d_outputs: Tensor, inputs: Tensor) -> Tensor:
    """The gradient (X, Y) of a weight over all steps, from (T, B, X) and (T, B, Y)."""
    return d_outputs.flatten(0, 1).t() @ inputs.flatten(0, 1)


def softmax_backward(d_weights: Tensor, weights: Tensor) -> Tensor:
    """The gradient (…, S) of the scores of a softmax over the last axis."""
    return weights * (d_weights - (weights * d_weights).sum(-1, keepdim=True))
