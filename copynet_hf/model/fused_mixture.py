"""p(y) of CopyNet in its fast form, for search: Eq. 4 to 6 as one softmax over the scores of both modes.

The readable form is `copy_distribution.copynet_modes` and `copy_distribution.mixture`. Where each position's
probability goes follows from the source alone, so a search finds it once. Shapes: R rows, S source positions, T target
steps, V words, K slots.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .copy_distribution import IMPOSSIBLE_LOG_PROB, Mixture, at_least_float32, lowest
from .memory import Memory, PerRow


class CopyColumns(NamedTuple):
    """Where the copy probabilities of a search go; see `fused_mixture`.

    words: (R, S) the column of x_j's generate score; any where it has none. is_generated: (R, S) bool, whether it has.
    groups: (R, S) the first position of x_j's word; S on padding.
    columns: (R, S) x_j at the first position of a word, else V + K, which holds nothing.
    """

    words: PerRow
    is_generated: PerRow
    groups: PerRow
    columns: PerRow


def find_copy_columns(memory: Memory, vocab_size: int, max_source_oov: int) -> CopyColumns:
    """The columns of a search's memory, whose `first_positions` are known."""
    assert memory.first_positions is not None
    length = memory.ids.shape[1]
    is_generated = memory.ids < vocab_size
    is_first = memory.mask & (memory.first_positions == torch.arange(length, device=memory.ids.device))
    return CopyColumns(
        words=torch.where(is_generated, memory.ids, 0),
        is_generated=is_generated,
        groups=memory.first_positions.masked_fill(~memory.mask, length),
        columns=torch.where(is_first, memory.ids, vocab_size + max_source_oov),
    )


def fused_mixture(
    generate_scores: Tensor, copy_scores: Tensor, mask: Tensor, max_source_oov: int, columns: CopyColumns
) -> Mixture:
    """p(y) of CopyNet, without gradients.

    Args:
        generate_scores: (R, T, V) ψ_g. copy_scores: (R, T, S) ψ_c.
        mask: (R, S) bool, false on padding.
        max_source_oov: K.
    """
    generate_scores, copy_scores = at_least_float32(generate_scores), at_least_float32(copy_scores)
    vocab_size, width = generate_scores.shape[-1], generate_scores.shape[-1] + max_source_oov
    low = lowest(generate_scores.dtype)
    slots = generate_scores.new_full((*generate_scores.shape[:2], max_source_oov + 1), low)
    copied = copy_scores.masked_fill(~mask[:, None], low)
    # e^ψ / Z for V words, K slots and one spare column, then S positions
    table = torch.log_softmax(torch.cat([generate_scores, slots, copied], dim=-1), dim=-1)
    copied = table[..., width + 1 :]
    words, is_generated, groups, targets = (field[:, None].expand_as(copied) for field in columns)
    generated = table.gather(-1, words).masked_fill_(~is_generated, low)
    both = torch.logaddexp(generated, _sum_groups(copied, groups))
    table[..., vocab_size:width] = IMPOSSIBLE_LOG_PROB
    copy_probs = torch.exp(copied)
    return Mixture(table.scatter_(-1, targets, both)[..., :width], copy_probs)


def _sum_groups(scores: Tensor, groups: Tensor) -> Tensor:
    """log Σ e^score over each group of positions, relative to its largest, at the group's first position.

    Other positions are undefined.
    """
    shape = (*scores.shape[:-1], scores.shape[-1] + 1)  # one more position, for padding
    peak = scores.new_full(shape, lowest(scores.dtype)).scatter_reduce_(-1, groups, scores, "amax")
    shares = torch.exp(scores - peak.gather(-1, groups))
    sums = scores.new_zeros(shape).scatter_add_(-1, groups, shares)
    return (sums.log_() + peak)[..., :-1]
