"""The parts of CopyNet's step in their fast form, which training and search share. Each backward is under its forward.

Letters: s decoder state, h encoder states, a attention, ρ selective read, c and ζ what the two read, b the attention
to the source's features f_k, r readout; d_x is the gradient of the loss with respect to x. Shapes as in `memory`, with
B rows where R = N, and X = 3H, the gates' rows, or 4H with the readout's below them (unless r_t = s_t).

A step lays out what it computes side by side in columns; see `gru`:

    2W s_{t-1} | W_hn s_{t-1} + b_hn | r | z | n

Softmax ignores constants and tanh(x) = 2σ(2x) − 1, so v·tanh(x) is computed as 2v·σ(2x): the sigmoid is faster than
tanh on many CPUs.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .copy_distribution import group_by_source, masked_softmax
from .gru import gru_step
from .memory import FeatureMemory

_UNITS_PER_THREAD = 2**18
"""Hidden units of the attention that a thread computes at a time, so that they stay in its cache."""


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


# ---- the attention, Eq. 3


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
        _write_units(keys[piece], grouped[piece], None if covered is None else covered[piece], weights, units)
        torch.matmul(units, weights.score, out=energies[piece])
    return energies.flatten(0, 1)


def allocate_units(keys: Tensor, rows: int) -> Tensor:
    """A buffer (n ≤ N, R / N, S, A) for hidden units, reused by all steps; on a CPU it fits the cache."""
    count, rows_per_source = len(keys), rows // len(keys)
    if keys.is_cpu:
        count = min(count, max(1, _UNITS_PER_THREAD * torch.get_num_threads() // (rows_per_source * keys[0].numel())))
    return keys.new_empty(count, rows_per_source, *keys.shape[1:])


def _write_units(
    keys: Tensor, query: Tensor, coverage: Tensor | None, weights: RecurrentWeights, units: Tensor
) -> None:
    """σ(2 (U h_j + W s_{t-1} + w_cov cov_tj)): units (N, Q, S, A) of keys (N, S, A), query (N, Q, A) and coverage.

    coverage: (N, Q, S).
    """
    torch.add(keys[:, None], query[:, :, None], out=units)
    if coverage is not None and weights.coverage is not None:
        units.addcmul_(coverage[..., None], weights.coverage)
    units.sigmoid_()


def energies_backward(
    d_energies: Tensor,
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
    _write_units(keys, query[:, None], None if coverage is None else coverage[:, None], w, units[:, None])
    d_score.add_(d_energies.flatten() @ units.flatten(0, 1))
    d_units = units.addcmul_(units, units, value=-1)  # σ' = σ − σ²
    return d_units.mul_(w.score).mul_(d_energies[..., None])


def attend_to_features(features: FeatureMemory, query: Tensor, weights: RecurrentWeights) -> Tensor:
    """b_t (R, F) from 2W s_{t-1} (R, A); the features' keys are 2U_f e(f_k), their mask has R rows."""
    buffer = allocate_units(features.keys, len(query))
    return masked_softmax(attention_energies(features.keys, query, None, weights, buffer), features.mask)


def softmax_backward(d_weights: Tensor, weights: Tensor) -> Tensor:
    """The gradient (…, S) of the scores of a softmax over the last axis."""
    return weights * (d_weights - (weights * d_weights).sum(-1, keepdim=True))


# ---- state and readout, Eq. 2


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
