"""One step of a search, without gradients: `CopyNetDecoder.step` in fewer and larger products.

Letters and the order of columns are those of `fused_copynet`; shapes those of `memory_copynet`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .copy_distribution import copy_scores, masked_softmax, selective_read_weights
from .fused_copynet import DecoderWeights, gru_step
from .memory_copynet import DecoderState, Memory, StepWeights, by_source, read


def fused_step(
    w: StepWeights, embedding: Tensor, matches: Tensor, memory: Memory, state: DecoderState
) -> tuple[Tensor, DecoderState, Tensor]:
    """One word: r_t (R, H), the new state and a_t (R, S), from e(y_{t-1}) (R, E) and x_j = y_{t-1} (R, S) bool."""
    weights, keys = w.recurrent, memory.attention_keys
    assert keys is not None
    size, query = state.hidden.shape[1], keys.shape[2]
    columns = embedding.new_empty(embedding.shape[0], query + 4 * size)
    torch.addmm(weights.state_bias, state.hidden, weights.state.t(), out=columns[:, : query + 3 * size])
    attention = masked_softmax(_energies(keys, columns[:, :query], weights, state.coverage), memory.mask)

    sums = torch.addmm(w.bias, embedding, w.embedding.t())  # what gates and readout take of all inputs
    _take(sums, attention, weights.context, memory.context_reads, memory.hidden_states)
    if weights.selective is not None and state.copy_scores is not None:
        rho = selective_read_weights(state.copy_scores, matches)
        _take(sums, rho, weights.selective, memory.selective_reads, memory.hidden_states, matches.any(-1))

    hidden = torch.empty_like(state.hidden)
    gru_step(columns[:, query:], sums[:, : 3 * size], state.hidden, None, hidden)
    readout = hidden
    if weights.readout is not None:
        readout = torch.addmm(sums[:, 3 * size :], hidden, weights.readout.t()).tanh_()
    scores = None
    if memory.copy_keys is not None:
        scores = copy_scores(memory.copy_keys, by_source(readout, memory.copy_keys)).view(matches.shape)
    coverage = None if state.coverage is None else state.coverage + attention
    return readout, DecoderState(hidden, scores, coverage), attention


def _take(
    sums: Tensor,
    weights: Tensor,
    weight: Tensor,
    reads: Tensor | None,
    hidden_states: Tensor,
    rows: Tensor | None = None,
) -> None:
    """Adds what is taken of Σ_j weight_j h_j: read where that stands ready, else as a product, of `rows` (R) alone."""
    taken = sums[:, : weight.shape[0]]
    if reads is not None:
        taken += read(weights, reads)
    elif rows is None:
        taken.addmm_(read(weights, hidden_states), weight.t())
    else:
        places = rows.nonzero()[:, 0]
        taken.index_add_(0, places, read(weights, hidden_states)[places] @ weight.t())


_PIECE = 2**18
"""Attention features computed at a time, so that they stay in a core's cache."""


def _energies(keys: Tensor, query: Tensor, w: DecoderWeights, coverage: Tensor | None) -> Tensor:
    """2v·σ(2 (U h_j + W s_{t-1} + w_cov cov_tj)) of Eq. 3, see `CopyNetAttention`: (R, S)."""
    sources, length, _ = keys.shape
    query = by_source(query.contiguous(), keys)
    energies = keys.new_empty(sources, query.shape[1], length)
    covered = None if coverage is None else by_source(coverage, keys)
    at_once = min(sources, max(1, _PIECE // (query.shape[1] * keys[0].numel())))
    buffer = keys.new_empty(at_once, query.shape[1], *keys.shape[1:])
    for first in range(0, sources, at_once):
        piece = slice(first, first + at_once)
        features = torch.add(keys[piece, None], query[piece, :, None], out=buffer[: min(at_once, sources - first)])
        if covered is not None and w.coverage is not None:
            features.addcmul_(covered[piece, ..., None], w.coverage)
        torch.matmul(features.sigmoid_(), w.score, out=energies[piece])
    return energies.flatten(0, 1)
