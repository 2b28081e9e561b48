"""One step of a search, without gradients: `CopyNetDecoder.step` in fewer and larger products.

Letters and the order of columns are those of `fused_copynet`; shapes those of `memory_copynet`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .copy_distribution import copy_scores, masked_softmax, selective_read_weights
from .fused import DecoderWeights, gru_step
from .memory import DecoderState, Memory, by_source, read


def fused_step(
    sums: Tensor, matches: Tensor, memory: Memory, state: DecoderState
) -> tuple[Tensor, DecoderState, Tensor]:
    """One word: r_t (R, H), the new state and a_t (R, S).

    sums: (R, X) what gates and readout take of e(y_{t-1}), see `StepWeights`; written over.
    matches: (R, S) bool, x_j = y_{t-1}.
    """
    assert memory.attention_keys is not None
    assert memory.weights is not None
    weights, keys = memory.weights.recurrent, memory.attention_keys
    (rows, size), query = state.hidden.shape, keys.shape[2]
    columns = sums.new_empty(rows, query + 4 * size)
    # without W s_{t-1} for those who attend after: they ask with s_t
    wanted = slice(0 if state.attention is None else query, query + 3 * size)
    torch.addmm(weights.state_bias[wanted], state.hidden, weights.state[wanted].t(), out=columns[:, wanted])
    attention = state.attention
    if attention is None:
        attention = masked_softmax(_energies(memory, columns[:, :query], weights, state.coverage), memory.mask)

    rho = None
    if weights.selective is not None and state.copy_scores is not None:
        rho = selective_read_weights(state.copy_scores, matches)
    sums = _with_reads(sums, attention, rho, memory, weights)

    hidden = torch.empty_like(state.hidden)
    gru_step(columns[:, query:], sums[:, : 3 * size], state.hidden, None, hidden)
    readout = hidden
    if weights.readout is not None:
        readout = torch.addmm(sums[:, 3 * size :], hidden, weights.readout.t()).tanh_()
    scores = None
    if memory.copy_keys is not None:
        scores = copy_scores(memory.copy_keys, by_source(readout, memory.copy_keys)).view(matches.shape)
    if state.attention is not None:
        asked = hidden @ weights.state[:query].t()
        attention = masked_softmax(_energies(memory, asked, weights, state.coverage), memory.mask)
    coverage = None if state.coverage is None else state.coverage + attention
    attended = None if state.attention is None else attention
    return readout, DecoderState(hidden, scores, coverage, attended), attention


def _with_reads(sums: Tensor, attention: Tensor, rho: Tensor | None, memory: Memory, w: DecoderWeights) -> Tensor:
    """Adds what gates and readout take of c_t and of ζ_t: read where that stands ready, else as products."""
    if memory.reads is not None:
        read_weights = attention if rho is None else torch.stack([attention, rho], dim=-1).flatten(1)
        taken = torch.baddbmm(by_source(sums, memory.reads), by_source(read_weights, memory.reads), memory.reads)
        return taken.flatten(0, 1)
    sums[:, : w.context.shape[0]].addmm_(read(attention, memory.hidden_states), w.context.t())
    if rho is not None and w.selective is not None:
        rows = rho.any(-1).nonzero()[:, 0]  # ζ = 0 elsewhere
        zeta = read(rho, memory.hidden_states)[rows]
        sums[:, : w.selective.shape[0]].index_add_(0, rows, zeta @ w.selective.t())
    return sums


_PIECE = 2**18
"""Attention features that a thread computes at a time, so that they stay in its cache."""
LARGEST_EXPONENT = 87.0
"""e to it and to its negative are the last that float32 holds; what is added up in the attention is cut off there."""


def key_factors(keys: Tensor) -> Tensor:
    """e^(−2U h_j) from 2U h_j; see `_energies`."""
    return keys.clamp(-LARGEST_EXPONENT, LARGEST_EXPONENT).neg_().exp_()


def _energies(memory: Memory, query: Tensor, w: DecoderWeights, coverage: Tensor | None) -> Tensor:
    """2v·σ(2 (U h_j + W s_{t-1} + w_cov cov_tj)) of Eq. 3, see `CopyNetAttention`: (R, S).

    Without coverage σ is taken as 1 / (1 + e^(−2U h_j) e^(−2W s_{t-1})), which needs no exponential at each position.
    """
    keys, factors = memory.attention_keys, memory.key_factors
    assert keys is not None
    query = by_source(query if factors is None else key_factors(query), keys)
    energies = keys.new_empty(len(keys), query.shape[1], keys.shape[1])
    covered = None if coverage is None else by_source(coverage.to(keys.dtype), keys)
    at_once = len(keys)
    if keys.is_cpu:
        at_once = min(at_once, max(1, _PIECE * torch.get_num_threads() // (query.shape[1] * keys[0].numel())))
    buffer = keys.new_empty(at_once, query.shape[1], *keys.shape[1:])
    for first in range(0, len(keys), at_once):
        piece, features = slice(first, first + at_once), buffer[: len(keys) - first]
        if factors is not None:
            torch.mul(factors[piece, None], query[piece, :, None], out=features).add_(1).reciprocal_()
        else:
            torch.add(keys[piece, None], query[piece, :, None], out=features)
            if covered is not None and w.coverage is not None:
                features.addcmul_(covered[piece, ..., None], w.coverage)
            features.sigmoid_()
        torch.matmul(features, w.score, out=energies[piece])
    return energies.flatten(0, 1)
