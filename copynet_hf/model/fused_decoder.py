"""The decoder under teacher forcing in its fast form, with the gradient by hand.

Products that do not depend on the recurrence are computed for all steps before or after the loop. The loop saves only
what the backward pass needs; the attention's hidden units, B · S · A of them at each step, are recomputed there.

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
    allocate_units,
    fused_step,
    read_selectively,
    write_units,
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
        starts_blind: the first step attends to no position, later ones as always.
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
    source = _Source(
        memory.mask,
        memory.hidden_states,
        2 * memory.attention_keys,
        None if repeats is None else memory.copy_keys,
        *(() if features is None else features._replace(keys=2 * features.keys)),
    )
    readout, hidden, attention = FusedDecoder.apply(
        inputs, dropout_factors, repeats, initial, starts_blind, *source, *weights.recurrent.to(inputs.dtype)
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


class _Source(NamedTuple):
    """What the steps read of B sources; or the gradients of these tensors, None for the masks."""

    mask: Tensor  # (B, S) bool, false on padding
    hidden_states: Tensor  # (B, S, D) h_j
    keys: Tensor  # (B, S, A) 2U h_j
    copy_keys: Tensor | None  # (B, S, H) tanh(h_j W_c); None without selective read
    feature_keys: Tensor | None = None  # (B, F, A) 2U_f e(f_k)
    feature_contents: Tensor | None = None  # (B, F, D) W_f e(f_k)
    feature_mask: Tensor | None = None  # (B, F) bool

    @property
    def features(self) -> FeatureMemory | None:
        if self.feature_keys is None or self.feature_contents is None or self.feature_mask is None:
            return None
        return FeatureMemory(self.feature_keys, self.feature_contents, self.feature_mask)

    def zero_gradients(self) -> _Source:
        fields = (
            None if field is None or not field.is_floating_point() else torch.zeros_like(field) for field in self
        )
        return _Source(*fields)  # type: ignore[arg-type]


_NUM_SOURCE = len(_Source._fields)


class _Saved(NamedTuple):
    """What the backward pass reads; see `FusedDecoder`. r_t is kept after dropout, for all t from −1, and
    before it."""

    source: _Source
    columns: Tensor  # (T, B, A + 4H)
    decoder_states: Tensor  # (T + 1, B, H) s_{-1} … s_{T-1}
    attention: Tensor  # (T, B, S)
    contexts: Tensor  # (T, B, D) c_t, with what was read of features
    readouts: Tensor  # (T + 1, B, H)
    undropped: Tensor  # (T, B, H)
    coverage: Tensor | None  # (T + 1, B, S)
    dropout_factors: Tensor | None  # (T, B, H)
    feature_attention: Tensor | None  # (T, B, F) b_t

    @classmethod
    def allocate(
        cls, inputs: Tensor, initial: Tensor, dropout_factors: Tensor | None, source: _Source, kept: int, covers: bool
    ) -> _Saved:
        """Tensors that the steps fill, with the columns of `kept` steps."""
        steps, (batch, size), (length, attention_size) = inputs.shape[0], initial.shape, source.keys.shape[1:]
        new, zeros = inputs.new_empty, inputs.new_zeros
        readouts = zeros(steps + 1, batch, size)  # r_{-1} = 0: nothing was copied before the first step
        saved = cls(
            source,
            columns=new(kept, batch, attention_size + 4 * size),
            decoder_states=new(steps + 1, batch, size),
            attention=zeros(steps, batch, length),
            contexts=new(steps, batch, source.hidden_states.shape[2]),
            readouts=readouts,
            undropped=readouts[1:] if dropout_factors is None else new(steps, batch, size),
            coverage=at_least_float32(zeros(steps + 1, batch, length)) if covers else None,
            dropout_factors=dropout_factors,
            feature_attention=None if source.feature_mask is None else new(steps, *source.feature_mask.shape),
        )
        saved.decoder_states[0] = initial
        return saved

    def buffers(self, t: int, units: Tensor) -> StepBuffers:
        """What step t writes."""
        return StepBuffers(
            self.columns[t % len(self.columns)],
            self.attention[t],
            self.decoder_states[t + 1],
            self.undropped[t],
            units,
            None if self.feature_attention is None else self.feature_attention[t],
        )


class _Gradients(NamedTuple):
    """Gradients accumulated over the steps, named by the tensor they belong to.

    columns: (T, B, A + 4H or 5H). readouts: (T, B, H), after dropout. contexts: (T, B, D).
    """

    source: _Source
    columns: Tensor
    readouts: Tensor
    contexts: Tensor
    score: Tensor  # (A)
    coverage_weight: Tensor | None  # (A)
    units: Tensor  # (B, S, A), a buffer that all steps reuse

    @classmethod
    def start(cls, saved: _Saved, w: RecurrentWeights, d_readouts: Tensor) -> _Gradients:
        (steps, batch, size), attention_size = saved.undropped.shape, saved.source.keys.shape[2]
        width = attention_size + (4 if w.readout is None else 5) * size
        return cls(
            saved.source.zero_gradients(),
            columns=saved.columns.new_empty(steps, batch, width),
            readouts=d_readouts.clone(),  # ζ of the step after adds to it
            contexts=torch.empty_like(saved.contexts),
            score=at_least_float32(torch.zeros_like(w.score)),
            coverage_weight=None if w.coverage is None else at_least_float32(torch.zeros_like(w.coverage)),
            units=torch.empty_like(saved.source.keys),
        )


class FusedDecoder(torch.autograd.Function):
    """All steps of `CopyNetDecoder` under teacher forcing, from s_0, with the gradient by hand.

    Args:
        inputs: (T, B, X) the products of all that is known before the loop, biases included: of e(y_{t-1}), and of
            ζ(y_{t-1}) where y_{t-1} is at one position.
        dropout_factors: (T, B, H) of r_t, or None.
        repeats: (T, B, S) bool, x_j = y_{t-1} in rows where that word is at several positions. None without selective
            read.
        initial: (B, H) s_0.
        starts_blind: the first step attends to no position.
        tensors: the fields of `_Source`, then those of `RecurrentWeights`.

    Returns:
        r_t (T, B, H), s_t (T, B, H) and a_t (T, B, S).
    """

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        dropout_factors: Tensor | None,
        repeats: Tensor | None,
        initial: Tensor,
        starts_blind: bool,
        *tensors: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        source, w = _Source(*tensors[:_NUM_SOURCE]), RecurrentWeights(*tensors[_NUM_SOURCE:])  # type: ignore[arg-type]
        steps = inputs.shape[0]
        kept, covers = steps_to_keep(ctx, steps), w.coverage is not None
        saved = _Saved.allocate(inputs, initial, dropout_factors, source, kept, covers)
        ctx.starts_blind, ctx.repeated_words = starts_blind, find_repeated_words(repeats, steps)
        units = allocate_units(source.keys, len(initial))
        for t, repeated in enumerate(ctx.repeated_words):
            products = inputs[t].clone()
            if repeated is not None and w.selective is not None and source.copy_keys is not None:
                zeta = repeated.read(saved.readouts[t], source.copy_keys, source.hidden_states).zeta
                products[:, : len(w.selective)].index_add_(0, repeated.rows, zeta @ w.selective.t())
            saved.contexts[t] = fused_step(
                products,
                saved.decoder_states[t],
                None if saved.coverage is None else saved.coverage[t],
                source.mask,
                source.keys,
                source.hidden_states,
                source.features,
                w,
                saved.buffers(t, units),
                attends=t > 0 or not starts_blind,
            )
            if saved.coverage is not None:
                torch.add(saved.coverage[t], saved.attention[t], out=saved.coverage[t + 1])
            if dropout_factors is not None:
                torch.mul(saved.undropped[t], dropout_factors[t], out=saved.readouts[t + 1])
        ctx.save_for_backward(*source, *saved[1:], *w)
        return saved.readouts[1:], saved.decoder_states[1:], saved.attention

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_readouts: Tensor, d_states: Tensor, d_attention: Tensor) -> Any:
        tensors, weights = ctx.saved_tensors, _NUM_SOURCE + len(_Saved._fields) - 1  # checkpointing allows one access
        saved = _Saved(_Source(*tensors[:_NUM_SOURCE]), *tensors[_NUM_SOURCE:weights])
        w = RecurrentWeights(*tensors[weights:])
        grads, attention_size, size = _Gradients.start(saved, w, d_readouts), len(w.score), d_readouts.shape[2]
        d_recurrent, d_inputs = (
            grads.columns[..., : attention_size + 3 * size],
            grads.columns[..., attention_size + size :],
        )
        d_hidden = torch.zeros_like(saved.decoder_states[0])
        d_coverage = None if saved.coverage is None else torch.zeros_like(saved.coverage[0])
        repeated_reads: list[tuple[Tensor, Tensor]] = []
        for t, repeated in reversed(list(enumerate(ctx.repeated_words))):
            d_state = d_states[t] + d_hidden + _readout_backward(t, saved, w, grads)
            gates = (saved.columns[t, :, attention_size:], grads.columns[t, :, attention_size:])
            d_hidden = gru_step_backward(d_state, saved.decoder_states[t], *gates)
            if repeated is not None:
                repeated_reads.append(_selective_read_backward(t, repeated, d_inputs[t], saved, w, grads))
            torch.matmul(d_inputs[t, :, : len(w.context)], w.context, out=grads.contexts[t])  # W_c c_t
            grads.columns[t, :, :attention_size] = 0  # of the query, which both reads add to
            if t or not ctx.starts_blind:
                d_coverage = _attentive_read_backward(t, d_attention[t], d_coverage, saved, w, grads)
            _feature_read_backward(t, saved, w, grads)
            d_hidden.addmm_(d_recurrent[t], w.state)  # through 2W s_{t-1} and W_hh s_{t-1}
        # c_t = Σ_j a_tj h_j + Σ_k b_tk W_f e(f_k), over all steps: d_h_j += Σ_t a_tj d_c_t
        d_contexts = grads.contexts.transpose(0, 1)
        grads.source.hidden_states.baddbmm_(saved.attention.permute(1, 2, 0), d_contexts)
        if saved.feature_attention is not None and grads.source.feature_contents is not None:
            grads.source.feature_contents.baddbmm_(saved.feature_attention.permute(1, 2, 0), d_contexts)
        d_weights = _weight_gradients(d_recurrent, d_inputs, repeated_reads, saved, w, grads)
        return d_inputs, None, None, d_hidden, None, *grads.source, *d_weights


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
    source, d_source = saved.source, grads.source
    assert source.copy_keys is not None
    assert d_source.copy_keys is not None
    rows, before = repeated.rows[:, None], saved.readouts[t]  # r_{t-1}
    read = repeated.read(before, source.copy_keys, source.hidden_states)
    d_product = d_inputs[repeated.rows, : len(w.selective)]
    d_zeta = d_product @ w.selective
    d_rho = torch.bmm(read.hidden_states, d_zeta[..., None])[..., 0]  # ζ = Σ_j ρ_j h_j
    d_scores = softmax_backward(d_rho, read.rho)
    # no position appears twice, so assignment by index adds correctly
    d_source.hidden_states[rows, repeated.positions] += read.rho[..., None] * d_zeta[:, None, :]
    # ψ_c(j) = tanh(h_j W_c)·r_{t-1}
    d_source.copy_keys[rows, repeated.positions] += d_scores[..., None] * before[rows]
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
    d_weights = _read_backward(grads.contexts[t], saved.source.hidden_states) + d_attention  # c_t = Σ_j a_tj h_j
    if d_coverage is not None:
        d_weights = d_weights + d_coverage  # cov_{t+1} = cov_t + a_t
    keys, attention = saved.source.keys, saved.attention[t]
    d_energy = softmax_backward(d_weights, attention).to(attention.dtype)
    coverage = None if saved.coverage is None else saved.coverage[t].to(keys.dtype)
    query = saved.columns[t, :, : keys.shape[2]]
    d_units = _energy_backward(d_energy, keys, query, coverage, w, grads.score, grads.units)
    grads.source.keys.add_(d_units)
    grads.columns[t, :, : keys.shape[2]] += d_units.sum(1)
    if coverage is None or d_coverage is None or w.coverage is None or grads.coverage_weight is None:
        return None
    grads.coverage_weight.add_(coverage.flatten() @ d_units.flatten(0, 1))
    return d_coverage + d_units @ w.coverage


def _feature_read_backward(t: int, saved: _Saved, w: RecurrentWeights, grads: _Gradients) -> None:
    """Σ_k b_tk W_f e(f_k) at step t, which is added to c_t."""
    features, attention, d_keys = saved.source.features, saved.feature_attention, grads.source.feature_keys
    if features is None or attention is None or d_keys is None:
        return
    d_energy = softmax_backward(_read_backward(grads.contexts[t], features.contents), attention[t])
    query = saved.columns[t, :, : d_keys.shape[2]]
    d_units = _energy_backward(d_energy, features.keys, query, None, w, grads.score, torch.empty_like(d_keys))
    d_keys.add_(d_units)
    grads.columns[t, :, : d_keys.shape[2]] += d_units.sum(1)


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
    units: Tensor,
) -> Tensor:
    """The gradient (B, S, A) of 2x_j = 2U h_j + 2W s_{t-1} + 2w_cov cov_tj from that of e_j = 2v·σ(2x_j), (B, S).

    Args:
        keys: (B, S, A). query: (B, A). coverage: (B, S).
        d_score: the gradient of 2v, which this adds to.
        units: (B, S, A), where the result is written.
    """
    write_units(keys, query[:, None], None if coverage is None else coverage[:, None], w, units[:, None])
    d_score.add_(d_energy.flatten() @ units.flatten(0, 1))
    d_units = units.addcmul_(units, units, value=-1)  # σ' = σ − σ²
    return d_units.mul_(w.score).mul_(d_energy[..., None])


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
