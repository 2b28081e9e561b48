"""The decoder's step in its fast form, for teacher forcing (`fused_decoder`) and for search.

The readable form is `CopyNetDecoder.step`, which the tests compare it with. Letters: s decoder state, h encoder
states, a attention, ρ selective read, c and ζ what the two read, b the attention to the source's features f_k, r
readout, ψ_c copy scores. Shapes as in `memory`, and X = 3H, the gates' rows, or 4H with the readout's below them
(unless r_t = s_t).

A step lays out what it computes side by side in columns; see `gru`:

    2W s_{t-1} | W_hn s_{t-1} + b_hn | r | z | n

Softmax ignores constants and tanh(x) = 2σ(2x) − 1, so v·tanh(x) is computed as 2v·σ(2x): the sigmoid is faster than
tanh on many CPUs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .attention import CopyNetAttention
from .copy_distribution import copy_scores, masked_softmax, selective_read_weights
from .fused_mixture import CopyColumns
from .gru import gru_step
from .memory import DecoderState, FeatureMemory, Memory, PerSource, group_by_source, read_memory, select_rows

_UNITS_PER_THREAD = 2**18
"""Hidden units of the attention that a thread computes at a time, so that they stay in its cache."""
_EXPECTED_WORDS = 16
_FEWEST_ROWS = 8
"""Assumed output length, and rows up to which a product takes as long as with one, to decide whether projecting the
memory pays."""


class RecurrentWeights(NamedTuple):
    """Weights of the products inside the recurrence.

    state: (A + 3H, H) 2W of Eq. 3 above W_hh of the GRU, its gates in the order n, r, z: all multiply s_{t-1}.
    state_bias: (A + 3H). score: (A) 2v of Eq. 3. coverage: (A) 2 w_cov, or None.
    context: (3H or X, D), for c_t. selective: (3H or X, D), for ζ(y_{t-1}); None without selective read.
    readout: (H, H), for s_t; None where r_t = s_t.
    """

    state: Tensor
    state_bias: Tensor
    score: Tensor
    coverage: Tensor | None
    context: Tensor
    selective: Tensor | None
    readout: Tensor | None

    def to(self, dtype: torch.dtype) -> RecurrentWeights:
        return RecurrentWeights(*(None if weight is None else weight.to(dtype) for weight in self))  # type: ignore[arg-type]


class DecoderWeights(NamedTuple):
    """The decoder's weights, stacked as the fast form uses them: embedding (X, E) and bias (X) are for e(y_{t-1})."""

    embedding: Tensor
    bias: Tensor
    recurrent: RecurrentWeights

    def to(self, dtype: torch.dtype) -> DecoderWeights:
        return DecoderWeights(self.embedding.to(dtype), self.bias.to(dtype), self.recurrent.to(dtype))


def stack_decoder_weights(
    cell: nn.GRUCell,
    attention: CopyNetAttention,
    readout_proj: nn.Linear | None,
    input_parts: Sequence[str],
    readout_parts: Sequence[str],
    widths: Mapping[str, int],
) -> DecoderWeights:
    """Stacks the readout's weights below the gates', for each part of their inputs.

    Args:
        input_parts, readout_parts: what the GRU and the readout read, in the order of their weights' columns.
        widths: columns of each part.
    """
    size = cell.hidden_size
    weights = dict(zip(input_parts, cell.weight_ih.split([widths[name] for name in input_parts], dim=1), strict=True))
    weights["bias"] = cell.bias_ih
    if readout_proj is not None:
        columns = readout_proj.weight.split([widths[name] for name in readout_parts], dim=1)
        readout_weights = dict(zip(readout_parts, columns, strict=True), bias=readout_proj.bias)
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


# ---- one step


class StepBuffers(NamedTuple):
    """What a step writes: columns (R, A + 4H), a_t (R, S), s_t (R, H), r_t (R, H) before dropout, b_t (R, F) or None.

    units: of `allocate_units`, for intermediate values.
    """

    columns: Tensor
    attention: Tensor
    hidden: Tensor
    readout: Tensor
    units: Tensor
    feature_attention: Tensor | None


def fused_step(
    inputs: Tensor,
    before: Tensor,
    coverage: Tensor | None,
    mask: Tensor,
    keys: Tensor,
    states: Tensor,
    features: FeatureMemory | None,
    weights: RecurrentWeights,
    buffers: StepBuffers,
    *,
    attends: bool = True,
) -> Tensor:
    """One step of `CopyNetDecoder`, Eq. 2 and 3 and the readout, into the buffers.

    Args:
        inputs: (R, X) the products of e(y_{t-1}) and ζ(y_{t-1}); written over.
        before: (R, H) s_{t-1}. coverage: (R, S). mask: (R, S) bool. keys: (N, S, A) 2U h_j. states: (N, S, D) h_j.
        features: with keys 2U_f e(f_k).
        attends: whether a_t is computed; if not, the buffer holds the weights to read by.

    Returns:
        (R, D) c_t.
    """
    attention_size = keys.shape[2]
    query = buffers.columns[:, :attention_size]
    multiply_state(before, weights, buffers.columns, with_query=attends or features is not None)
    if attends:
        energies = attention_energies(keys, query, coverage, weights, buffers.units)
        buffers.attention.copy_(masked_softmax(energies, mask))
    context = read_memory(buffers.attention, states)
    if features is not None and buffers.feature_attention is not None:
        buffers.feature_attention.copy_(attend_to_features(features, query, weights))
        context = context + read_memory(buffers.feature_attention, features.contents)
    inputs[:, : weights.context.shape[0]].addmm_(context, weights.context.t())
    update_state(inputs, before, weights, buffers.columns, buffers.hidden, buffers.readout)
    return context


def multiply_state(before: Tensor, weights: RecurrentWeights, columns: Tensor, *, with_query: bool) -> None:
    """Writes the products of s_{t-1} (R, H) to the first columns (R, A + 4H); `with_query`: also the attention's."""
    hidden_size = before.shape[1]
    used = slice(0 if with_query else columns.shape[1] - 4 * hidden_size, columns.shape[1] - hidden_size)
    torch.addmm(weights.state_bias[used], before, weights.state[used].t(), out=columns[:, used])


def update_state(
    inputs: Tensor, before: Tensor, weights: RecurrentWeights, columns: Tensor, hidden: Tensor, readout: Tensor
) -> None:
    """s_t by Eq. 2, and r_t, from the products of all inputs (R, X) and of s_{t-1} (R, A + 4H, in columns)."""
    hidden_size = before.shape[1]
    gates, columns = inputs[:, : 3 * hidden_size], columns[:, columns.shape[1] - 4 * hidden_size :]
    gru_step(columns, gates, before, None, hidden)
    if weights.readout is None:
        readout.copy_(hidden)
    else:
        torch.addmm(inputs[:, 3 * hidden_size :], hidden, weights.readout.t(), out=readout).tanh_()


def attention_energies(
    keys: Tensor, query: Tensor, coverage: Tensor | None, weights: RecurrentWeights, buffer: Tensor
) -> Tensor:
    """2v·σ(2 (U h_j + W s_{t-1} + w_cov cov_tj)): Eq. 3's v·tanh(…) but for a constant. (R, S) from 2W s_{t-1} (R, A).

    The hidden units are computed for as many sources at a time as the buffer holds; see `allocate_units`.
    """
    grouped = group_by_source(query, keys)  # (N, R / N, A)
    covered = None if coverage is None else group_by_source(coverage.to(keys.dtype), keys)  # (N, R / N, S)
    energies = keys.new_empty(len(keys), grouped.shape[1], keys.shape[1])
    for first in range(0, len(keys), len(buffer)):
        piece, units = slice(first, first + len(buffer)), buffer[: len(keys) - first]
        write_units(keys[piece], grouped[piece], None if covered is None else covered[piece], weights, units)
        torch.matmul(units, weights.score, out=energies[piece])
    return energies.flatten(0, 1)


def attend_to_features(features: FeatureMemory, query: Tensor, weights: RecurrentWeights) -> Tensor:
    """b_t (R, F) from 2W s_{t-1} (R, A); the features' keys are 2U_f e(f_k)."""
    buffer = allocate_units(features.keys, len(query))
    return masked_softmax(attention_energies(features.keys, query, None, weights, buffer), features.mask)


def allocate_units(keys: Tensor, rows: int) -> Tensor:
    """A buffer (n ≤ N, R / N, S, A) for hidden units, reused by all steps; on a CPU it fits the cache."""
    count, rows_per_source = len(keys), rows // len(keys)
    if keys.is_cpu:
        count = min(count, max(1, _UNITS_PER_THREAD * torch.get_num_threads() // (rows_per_source * keys[0].numel())))
    return keys.new_empty(count, rows_per_source, *keys.shape[1:])


def write_units(
    keys: Tensor, query: Tensor, coverage: Tensor | None, weights: RecurrentWeights, units: Tensor
) -> None:
    """σ(2 (U h_j + W s_{t-1} + w_cov cov_tj)): units (N, Q, S, A) of keys (N, S, A), query (N, Q, A) and coverage.

    coverage: (N, Q, S).
    """
    torch.add(keys[:, None], query[:, :, None], out=units)
    if coverage is not None and weights.coverage is not None:
        units.addcmul_(coverage[..., None], weights.coverage)
    units.sigmoid_()


def read_selectively(scores: Tensor, matches: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
    """ρ_t (R, S) and ζ(y_{t-1}) (R, D) of Eq. 9, from ψ_c (R, S) of step t − 1 and where x_j = y_{t-1} (R, S).

    `states` (N, S, D) are h_j, or their projection, in which case ζ is projected as well.
    """
    rho = selective_read_weights(scores, matches)
    return rho, read_memory(rho, states)


# ---- search


class SearchTables(NamedTuple):
    """Tables shared by the steps of a search.

    weights: in the memory's precision. keys: (N, S, A) 2U h_j.
    context, selective: (N, S, 3H or X) h_j projected by the weights of c_t and of ζ_t; None where the projection would
        cost more than it saves.
    features: `Memory.features` with keys 2U_f e(f_k) and contents (N, F, 3H or X) projected by the weights of c_t.
    copy_columns: where copy probabilities go; None where p(y) runs in the readable form.
    """

    weights: DecoderWeights
    keys: PerSource
    context: PerSource | None
    selective: PerSource | None
    features: FeatureMemory | None = None
    copy_columns: CopyColumns | None = None

    def select(self, rows: Tensor, rows_per_source: int) -> SearchTables:
        """The tables of the given rows, each with a source of its own."""
        sources = rows // rows_per_source
        return select_rows(self._replace(weights=None), rows, sources)._replace(weights=self.weights)  # type: ignore[arg-type]


def precompute_tables(memory: Memory, weights: DecoderWeights) -> SearchTables:
    """Projects the memory if that multiplies fewer rows than the steps of the search are expected to; features, which
    are few, always."""
    assert memory.attention_keys is not None
    states = memory.hidden_states
    weights = weights.to(states.dtype)
    recurrent = weights.recurrent
    context = selective = None
    if states.shape[:2].numel() <= _EXPECTED_WORDS * max(len(memory.ids), _FEWEST_ROWS):
        context = states @ recurrent.context.t()
        selective = None if recurrent.selective is None else states @ recurrent.selective.t()
    features = memory.features
    if features is not None:
        features = features._replace(keys=2 * features.keys, contents=features.contents @ recurrent.context.t())
    return SearchTables(weights, 2 * memory.attention_keys, context, selective, features)


def fused_search_step(
    embedding: Tensor, matches: Tensor, memory: Memory, state: DecoderState, tables: SearchTables
) -> tuple[Tensor, DecoderState, Tensor]:
    """`CopyNetDecoder.step` without gradients and dropout: `fused_step`, but one softmax and one pass over the memory
    serve both reads."""
    weights, keys, (rows, size) = tables.weights.recurrent, tables.keys, state.hidden.shape
    attention_size, attends, features = keys.shape[2], state.attention is None, tables.features
    inputs = nn.functional.linear(
        embedding.to(tables.weights.bias.dtype), tables.weights.embedding, tables.weights.bias
    )
    columns, units = inputs.new_empty(rows, attention_size + 4 * size), allocate_units(keys, rows)
    multiply_state(state.hidden, weights, columns, with_query=attends or features is not None)

    def attend(query: Tensor) -> Tensor:
        return attention_energies(keys, query, state.coverage, weights, units)

    if state.attention is not None:  # c_{t-1}; nothing is read selectively
        attention, reads = state.attention, state.attention[:, None]
    elif weights.selective is None or state.copy_scores is None:
        attention = masked_softmax(attend(columns[:, :attention_size]), memory.mask)
        reads = attention[:, None]
    else:  # a_t and ρ_t
        both = torch.stack([attend(columns[:, :attention_size]), state.copy_scores], dim=1)
        reads = masked_softmax(both, torch.stack([memory.mask, matches], dim=1))  # (R, 2, S)
        attention = reads[:, 0]
    _add_reads(inputs, reads, memory, tables)
    if features is not None:
        read = attend_to_features(features, columns[:, :attention_size], weights)
        _add_projected(inputs, read, features.contents)
    hidden, readout = torch.empty_like(state.hidden), torch.empty_like(state.hidden)
    update_state(inputs, state.hidden, weights, columns, hidden, readout)
    if not attends:  # the query is s_t, not s_{t-1}
        attention = masked_softmax(attend(hidden @ weights.state[:attention_size].t()), memory.mask)
    scores = None
    if memory.copy_keys is not None:
        scores = copy_scores(memory.copy_keys, group_by_source(readout, memory.copy_keys)).view(matches.shape)
    coverage = None if state.coverage is None else state.coverage + attention
    return readout, DecoderState(hidden, scores, coverage, None if attends else attention), attention


def _add_reads(inputs: Tensor, reads: Tensor, memory: Memory, tables: SearchTables) -> None:
    """Adds the products of c_t, and of ζ(y_{t-1}) if it is read, to inputs (R, X).

    reads: (R, 1 or 2, S) a_t, and ρ_t if there is a selective read.
    """
    recurrent = tables.weights.recurrent
    if tables.context is None:
        contents = read_memory(reads, memory.hidden_states).unbind(1)  # c_t and ζ(y_{t-1}): (R, D) each
        for content, weight in zip(contents, (recurrent.context, recurrent.selective), strict=False):
            assert weight is not None
            inputs[:, : len(weight)].addmm_(content, weight.t())
        return
    for weights, projected in zip(reads.unbind(1), (tables.context, tables.selective), strict=False):
        assert projected is not None
        _add_projected(inputs, weights, projected)


def _add_projected(inputs: Tensor, weights: Tensor, projected: Tensor) -> None:
    """Adds to inputs (R, X) what the weights (R, S) read of the projected states (N, S, at most X)."""
    products = group_by_source(inputs, projected)[..., : projected.shape[2]]
    products.baddbmm_(group_by_source(weights, projected), projected)
