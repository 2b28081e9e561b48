"""All steps of CopyNet under teacher forcing in their fast form, with the gradient by hand.

The readable form is `CopyNetDecoder.step`, which the tests compare it with. Products that do not depend on the
recurrence are computed for all steps before or after the loop. The loop saves only what the backward pass needs; the
attention's hidden units, B · S · A of them at each step, are recomputed there.

Letters, shapes and columns as in `fast_step`; ψ_c are the copy scores. In the backward pass, the gradient of the
readout's pre-activation follows the columns.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .copy_distribution import at_least_float32, copy_scores, masked_softmax, selective_read_weights
from .decoder import CopyNetDecoder
from .fast_step import (
    RecurrentWeights,
    allocate_units,
    attend_to_features,
    attention_energies,
    energies_backward,
    multiply_state,
    softmax_backward,
    update_state,
)
from .gru import first_order_only, gru_step_backward, steps_to_keep, tanh_backward
from .layers import part_widths
from .memory import DecoderState, DecoderSteps, FeatureMemory, Memory, read_memory


class DecoderWeights(NamedTuple):
    """The decoder's weights, stacked as the fast form uses them: embedding (X, E) and bias (X) are for e(y_{t-1})."""

    embedding: Tensor
    bias: Tensor
    recurrent: RecurrentWeights

    def to(self, dtype: torch.dtype) -> DecoderWeights:
        return DecoderWeights(self.embedding.to(dtype), self.bias.to(dtype), self.recurrent.to(dtype))


def stack_weights(decoder: CopyNetDecoder) -> DecoderWeights:
    """Stacks the readout's weights below the gates', for each part of their inputs."""
    cell, attention, readout_proj = decoder.cell, decoder.attention, decoder.readout_proj
    assert attention is not None
    size, widths = cell.hidden_size, part_widths(decoder.config)
    columns = cell.weight_ih.split([widths[name] for name in decoder.input_parts], dim=1)
    weights = dict(zip(decoder.input_parts, columns, strict=True), bias=cell.bias_ih)
    if readout_proj is not None:
        columns = readout_proj.weight.split([widths[name] for name in decoder.readout_parts], dim=1)
        readout_weights = dict(zip(decoder.readout_parts, columns, strict=True), bias=readout_proj.bias)
        readout_weights.setdefault("embedding", cell.weight_ih.new_zeros(size, widths["embedding"]))
        for name, weight in readout_weights.items():
            weights[name] = torch.cat([weights[name], weight]) if name in weights else weight
    query, gates = 2 * attention.query_proj.weight, (2 * size, size)
    recurrent = RecurrentWeights(
        state=torch.cat([query, *cell.weight_hh.split(gates)[::-1]]),
        state_bias=torch.cat([query.new_zeros(query.shape[0]), *cell.bias_hh.split(gates)[::-1]]),
        score=2 * attention.score_proj.weight[0],
        coverage=None if attention.coverage_proj is None else 2 * attention.coverage_proj.weight[:, 0],
        context=weights["context"],
        selective=weights.get("selective_read"),
        readout=weights.get("state"),
    )
    return DecoderWeights(weights["embedding"], weights["bias"], recurrent)


class StepSource(NamedTuple):
    """What the steps read of N sources; or the gradients of these tensors, None for the masks."""

    mask: Tensor  # (N, S) bool, false on padding
    hidden_states: Tensor  # (N, S, D) h_j
    keys: Tensor  # (N, S, A) 2U h_j
    copy_keys: Tensor | None  # (N, S, H) tanh(h_j W_c); None without selective read
    feature_keys: Tensor | None = None  # (N, F, A) 2U_f e(f_k)
    feature_contents: Tensor | None = None  # (N, F, D) W_f e(f_k)
    feature_mask: Tensor | None = None  # (N, F) bool

    @classmethod
    def from_memory(cls, memory: Memory, reads_selectively: bool) -> StepSource:
        assert memory.attention_keys is not None
        copy_keys = memory.copy_keys if reads_selectively else None
        words = (memory.mask, memory.hidden_states, 2 * memory.attention_keys, copy_keys)
        features = memory.features
        return cls(*words) if features is None else cls(*words, *features._replace(keys=2 * features.keys))

    @property
    def features(self) -> FeatureMemory | None:
        if self.feature_keys is None or self.feature_contents is None or self.feature_mask is None:
            return None
        return FeatureMemory(self.feature_keys, self.feature_contents, self.feature_mask)

    def zero_gradients(self) -> StepSource:
        fields = (
            None if field is None or not field.is_floating_point() else torch.zeros_like(field) for field in self
        )
        return StepSource(*fields)  # type: ignore[arg-type]


_NUM_SOURCE = len(StepSource._fields)


class SavedSteps(NamedTuple):
    """What T steps write and the backward pass reads. r_t is kept after dropout, for all t from −1, and before it."""

    source: StepSource
    columns: Tensor  # (T, B, A + 4H); of one step alone where there is no backward pass
    hidden: Tensor  # (T + 1, B, H) s_{-1} … s_{T-1}
    attention: Tensor  # (T, B, S)
    contexts: Tensor  # (T, B, D) c_t, with what was read of features
    readouts: Tensor  # (T + 1, B, H)
    undropped: Tensor  # (T, B, H)
    coverage: Tensor | None  # (T + 1, B, S)
    dropout_factors: Tensor | None  # (T, B, H)
    feature_attention: Tensor | None  # (T, B, F) b_t

    @classmethod
    def allocate(
        cls,
        inputs: Tensor,
        initial: Tensor,
        dropout_factors: Tensor | None,
        source: StepSource,
        kept: int,
        covers: bool,
    ) -> SavedSteps:
        """Tensors that the steps fill, with the columns of `kept` steps."""
        steps, (batch, size), (length, attention_size) = inputs.shape[0], initial.shape, source.keys.shape[1:]
        new, zeros = inputs.new_empty, inputs.new_zeros
        readouts = zeros(steps + 1, batch, size)  # r_{-1} = 0: nothing was copied before the first step
        saved = cls(
            source,
            columns=new(kept, batch, attention_size + 4 * size),
            hidden=new(steps + 1, batch, size),
            attention=zeros(steps, batch, length),
            contexts=new(steps, batch, source.hidden_states.shape[2]),
            readouts=readouts,
            undropped=readouts[1:] if dropout_factors is None else new(steps, batch, size),
            coverage=at_least_float32(zeros(steps + 1, batch, length)) if covers else None,
            dropout_factors=dropout_factors,
            feature_attention=None if source.feature_mask is None else new(steps, *source.feature_mask.shape),
        )
        saved.hidden[0] = initial
        return saved


class StepGradients(NamedTuple):
    """Gradients accumulated over the steps, named by the tensor they belong to."""

    source: StepSource
    columns: Tensor  # (T, B, A + 4H or 5H)
    readouts: Tensor  # (T, B, H), after dropout
    contexts: Tensor  # (T, B, D)
    score: Tensor  # (A)
    coverage_weight: Tensor | None  # (A)
    units: Tensor  # (B, S, A), a buffer that all steps reuse

    @classmethod
    def start(cls, saved: SavedSteps, w: RecurrentWeights, d_readouts: Tensor) -> StepGradients:
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


# ---- the attentive read, Eq. 3


def _read_attentively(
    t: int, query: Tensor, saved: SavedSteps, w: RecurrentWeights, units: Tensor, *, attends: bool
) -> Tensor:
    """Writes a_t and b_t; returns c_t = Σ_j a_tj h_j + Σ_k b_tk W_f e(f_k) (B, D). `attends`: whether a_t is not 0."""
    source, attention = saved.source, saved.attention[t]
    if attends:
        coverage = None if saved.coverage is None else saved.coverage[t]
        attention.copy_(masked_softmax(attention_energies(source.keys, query, coverage, w, units), source.mask))
    context = read_memory(attention, source.hidden_states)
    if source.features is not None and saved.feature_attention is not None:
        saved.feature_attention[t] = attend_to_features(source.features, query, w)
        context = context + read_memory(saved.feature_attention[t], source.features.contents)
    return context


def _attentive_read_backward(
    t: int,
    d_attention: Tensor,
    d_coverage: Tensor | None,
    saved: SavedSteps,
    w: RecurrentWeights,
    grads: StepGradients,
) -> Tensor | None:
    """Eq. 3 at step t, for d_attention (B, S) and d_coverage (B, S), the gradient of cov_{t+1}.

    Returns:
        The gradient of cov_t; None without coverage.
    """
    d_weights = _weights_backward(grads.contexts[t], saved.source.hidden_states) + d_attention  # c_t = Σ_j a_tj h_j
    if d_coverage is not None:
        d_weights = d_weights + d_coverage  # cov_{t+1} = cov_t + a_t
    keys, attention = saved.source.keys, saved.attention[t]
    d_energies = softmax_backward(d_weights, attention).to(attention.dtype)
    coverage = None if saved.coverage is None else saved.coverage[t].to(keys.dtype)
    query = saved.columns[t, :, : keys.shape[2]]
    d_units = energies_backward(d_energies, keys, query, coverage, w, grads.score, grads.units)
    grads.source.keys.add_(d_units)
    grads.columns[t, :, : keys.shape[2]] += d_units.sum(1)
    if coverage is None or d_coverage is None or w.coverage is None or grads.coverage_weight is None:
        return None
    grads.coverage_weight.add_(coverage.flatten() @ d_units.flatten(0, 1))
    return d_coverage + d_units @ w.coverage


def _feature_read_backward(t: int, saved: SavedSteps, w: RecurrentWeights, grads: StepGradients) -> None:
    """Σ_k b_tk W_f e(f_k) at step t, which is added to c_t."""
    features, attention, d_keys = saved.source.features, saved.feature_attention, grads.source.feature_keys
    if features is None or attention is None or d_keys is None:
        return
    d_energies = softmax_backward(_weights_backward(grads.contexts[t], features.contents), attention[t])
    query = saved.columns[t, :, : d_keys.shape[2]]
    d_units = energies_backward(d_energies, features.keys, query, None, w, grads.score, torch.empty_like(d_keys))
    d_keys.add_(d_units)
    grads.columns[t, :, : d_keys.shape[2]] += d_units.sum(1)


def _weights_backward(d_content: Tensor, states: Tensor) -> Tensor:
    """The gradient (B, S) of the weights of a read, for that of its content (B, D) and states (B, S, D)."""
    return torch.bmm(d_content[:, None, :], states.transpose(1, 2))[:, 0]


# ---- the selective read, Eq. 9


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


class RepeatedRead(NamedTuple):
    """ζ (M, D), ρ (M, P), and the copy keys (M, P, H) and states (M, P, D) that they are made of."""

    zeta: Tensor
    rho: Tensor
    copy_keys: Tensor
    hidden_states: Tensor


class RepeatedWords(NamedTuple):
    """The rows of one step whose y_{t-1} is at several positions of their source: ρ depends on the step before.

    rows: (M). positions: (M, P) j. is_position: (M, P) bool; false where a row's word has fewer than P positions.
    """

    rows: Tensor
    positions: Tensor
    is_position: Tensor

    def read(self, readout: Tensor, source: StepSource) -> RepeatedRead:
        """Eq. 9 at these positions, from r_{t-1} (B, H): ψ_c of Eq. 8 is needed there alone, because Z cancels."""
        assert source.copy_keys is not None
        rows = self.rows[:, None]
        keys, states = source.copy_keys[rows, self.positions], source.hidden_states[rows, self.positions]
        rho = selective_read_weights(copy_scores(keys, readout[self.rows, None])[:, 0], self.is_position)
        return RepeatedRead(read_memory(rho, states), rho, keys, states)


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


def _selective_read_backward(
    t: int, repeated: RepeatedWords, d_inputs: Tensor, saved: SavedSteps, w: RecurrentWeights, grads: StepGradients
) -> tuple[Tensor, Tensor]:
    """Eq. 9 and 8 at the repeated words of step t, for d_inputs (B, X).

    Returns:
        The gradient of W ζ (M, X) and ζ (M, D), whose product is the gradient of W.
    """
    assert w.selective is not None
    assert grads.source.copy_keys is not None
    rows, before = repeated.rows[:, None], saved.readouts[t]  # r_{t-1}
    read = repeated.read(before, saved.source)
    d_product = d_inputs[repeated.rows, : len(w.selective)]
    d_zeta = d_product @ w.selective
    d_rho = torch.bmm(read.hidden_states, d_zeta[..., None])[..., 0]  # ζ = Σ_j ρ_j h_j
    d_scores = softmax_backward(d_rho, read.rho)
    # no position appears twice, so assignment by index adds correctly
    grads.source.hidden_states[rows, repeated.positions] += read.rho[..., None] * d_zeta[:, None, :]
    # ψ_c(j) = tanh(h_j W_c)·r_{t-1}
    grads.source.copy_keys[rows, repeated.positions] += d_scores[..., None] * before[rows]
    if t:
        d_before = torch.bmm(d_scores[:, None, :], read.copy_keys)[:, 0]
        grads.readouts[t - 1].index_add_(0, repeated.rows, d_before)
    return d_product, read.zeta


# ---- state and readout, Eq. 2


def _readout_backward(t: int, saved: SavedSteps, w: RecurrentWeights, grads: StepGradients) -> Tensor:
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


# ---- all steps


def run_all_steps(
    decoder: CopyNetDecoder,
    embeddings: Tensor,
    matches: Tensor,
    memory: Memory,
    state: DecoderState | None,
    keep: Tensor | None,
) -> DecoderSteps:
    """`CopyNetDecoder.run_steps` with the gradient by hand, from s_0 on, without padding: state and keep are None."""
    initial, weights = decoder.initial_state(memory, embeddings.shape[0]).hidden, stack_weights(decoder)
    inputs = nn.functional.linear(embeddings.transpose(0, 1), weights.embedding, weights.bias)  # (T, B, X)
    repeats, selective = None, weights.recurrent.selective
    if selective is not None:
        matches_by_step = matches.transpose(0, 1)  # (T, B, S)
        num_positions = matches_by_step.sum(-1, keepdim=True)
        repeats, single = matches_by_step & (num_positions > 1), matches_by_step & (num_positions == 1)
        inputs = add_reads_of_single_positions(inputs, single, memory.hidden_states, selective)
    dropout_factors, dropout = None, decoder.dropout
    if decoder.linear_readout_proj is None and dropout.training and dropout.p:
        dropout_factors = dropout(inputs.new_ones(*inputs.shape[:2], initial.shape[1]))
    source = StepSource.from_memory(memory, selective is not None)
    tensors = (*source, *weights.recurrent.to(inputs.dtype))
    by_step = FusedDecoder.apply(inputs, dropout_factors, repeats, initial, decoder.attends_after, *tensors)
    readout, hidden, attention = (field.transpose(0, 1) for field in by_step)
    if decoder.attends_after:  # the loop computes a_t at step t + 1, the last one is missing
        coverage = at_least_float32(attention).sum(1) if decoder.config.use_coverage else None
        last = decoder.attend(hidden[:, -1], memory, coverage)
        assert last is not None
        attention = torch.cat([attention[:, 1:], last[:, None]], dim=1)
    scores = None if memory.copy_keys is None else copy_scores(memory.copy_keys, readout)
    return DecoderSteps(readout, attention, DecoderState(hidden, scores, None))


class FusedDecoder(torch.autograd.Function):
    """All steps of `CopyNetDecoder` under teacher forcing, from s_0, with the gradient by hand.

    Args:
        inputs: (T, B, X) the products of all that is known before the loop, biases included: of e(y_{t-1}), and of
            ζ(y_{t-1}) where y_{t-1} is at one position.
        dropout_factors: (T, B, H) of r_t, or None.
        repeats: (T, B, S) bool, x_j = y_{t-1} in rows where that word is at several positions. None without selective
            read.
        initial: (B, H) s_0.
        attends_after: as `Mechanism.attends_after`; the first step then attends to no position.
        tensors: the fields of `StepSource`, then those of `RecurrentWeights`.

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
        attends_after: bool,
        *tensors: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        source, w = StepSource(*tensors[:_NUM_SOURCE]), RecurrentWeights(*tensors[_NUM_SOURCE:])  # type: ignore[arg-type]
        steps, attention_size = inputs.shape[0], len(w.score)
        kept, covers = steps_to_keep(ctx, steps), w.coverage is not None
        saved = SavedSteps.allocate(inputs, initial, dropout_factors, source, kept, covers)
        ctx.attends_after, ctx.repeated_words = attends_after, find_repeated_words(repeats, steps)
        units = allocate_units(source.keys, len(initial))
        for t, repeated in enumerate(ctx.repeated_words):
            products, before, columns = inputs[t].clone(), saved.hidden[t], saved.columns[t % kept]
            if repeated is not None and w.selective is not None:
                zeta = repeated.read(saved.readouts[t], source).zeta
                products[:, : len(w.selective)].index_add_(0, repeated.rows, zeta @ w.selective.t())
            attends = t > 0 or not attends_after
            multiply_state(before, w, columns, with_query=attends or source.features is not None)
            context = _read_attentively(t, columns[:, :attention_size], saved, w, units, attends=attends)
            products[:, : len(w.context)].addmm_(context, w.context.t())
            update_state(products, before, w, columns, saved.hidden[t + 1], saved.undropped[t])
            saved.contexts[t] = context
            if saved.coverage is not None:
                torch.add(saved.coverage[t], saved.attention[t], out=saved.coverage[t + 1])
            if dropout_factors is not None:
                torch.mul(saved.undropped[t], dropout_factors[t], out=saved.readouts[t + 1])
        ctx.save_for_backward(*source, *saved[1:], *w)
        return saved.readouts[1:], saved.hidden[1:], saved.attention

    @staticmethod
    @first_order_only
    def backward(ctx: Any, d_readouts: Tensor, d_states: Tensor, d_attention: Tensor) -> Any:
        tensors = ctx.saved_tensors  # checkpointing allows one access
        weights = _NUM_SOURCE + len(SavedSteps._fields) - 1
        saved = SavedSteps(StepSource(*tensors[:_NUM_SOURCE]), *tensors[_NUM_SOURCE:weights])
        w = RecurrentWeights(*tensors[weights:])
        grads, attention_size, size = StepGradients.start(saved, w, d_readouts), len(w.score), d_readouts.shape[2]
        d_recurrent = grads.columns[..., : attention_size + 3 * size]
        d_inputs = grads.columns[..., attention_size + size :]
        d_hidden = torch.zeros_like(saved.hidden[0])
        d_coverage = None if saved.coverage is None else torch.zeros_like(saved.coverage[0])
        repeated_reads: list[tuple[Tensor, Tensor]] = []
        for t, repeated in reversed(list(enumerate(ctx.repeated_words))):
            d_state = d_states[t] + d_hidden + _readout_backward(t, saved, w, grads)
            gates = (saved.columns[t, :, attention_size:], grads.columns[t, :, attention_size:])
            d_hidden = gru_step_backward(d_state, saved.hidden[t], *gates)
            if repeated is not None:
                repeated_reads.append(_selective_read_backward(t, repeated, d_inputs[t], saved, w, grads))
            torch.matmul(d_inputs[t, :, : len(w.context)], w.context, out=grads.contexts[t])  # of c_t
            grads.columns[t, :, :attention_size] = 0  # of the query, which both reads add to
            if t or not ctx.attends_after:
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


def _weight_gradients(
    d_recurrent: Tensor,
    d_inputs: Tensor,
    repeated_reads: list[tuple[Tensor, Tensor]],
    saved: SavedSteps,
    w: RecurrentWeights,
    grads: StepGradients,
) -> RecurrentWeights:
    """The gradients of the recurrence's weights: of each weight one product over all steps."""
    size = saved.undropped.shape[2]
    d_selective = None
    if w.selective is not None:
        d_selective = torch.zeros_like(w.selective)
        if repeated_reads:
            d_products, zeta = (torch.cat(parts) for parts in zip(*repeated_reads, strict=True))
            d_selective = d_products.t() @ zeta
    return RecurrentWeights(
        state=_sum_outer_products(d_recurrent, saved.hidden[:-1]),
        state_bias=d_recurrent.sum((0, 1)),
        score=grads.score,
        coverage=grads.coverage_weight,
        context=_sum_outer_products(d_inputs[..., : len(w.context)], saved.contexts),
        selective=d_selective,
        readout=None if w.readout is None else _sum_outer_products(d_inputs[..., 3 * size :], saved.hidden[1:]),
    )


def _sum_outer_products(d_outputs: Tensor, inputs: Tensor) -> Tensor:
    """The gradient (X, Y) of a weight over all steps, from (T, B, X) and (T, B, Y)."""
    return d_outputs.flatten(0, 1).t() @ inputs.flatten(0, 1)
