"""The output distribution of CopyNet as pure functions, one for each equation of Gu et al. 2016.

Letters: x_j is the source word at position j, h_j its encoder state (together M), y_t the target word, s_t the
decoder state, r_t the readout that scores are taken from (s_t in the paper), ψ_g and ψ_c the scores of the two
modes, Z their shared normaliser, ρ and ζ the selective read.

Shapes: B rows, S source positions, T target steps, V words in the vocabulary, K slots for unseen words.
Sums over words and positions are taken in float32 or wider, whatever the scores' own precision.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

Terms = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]

UNOWNED_LOG_PROB = -60.0
"""Log-probability shown for slots that a row's source does not own. Finite, because label smoothing sums over all
columns and −inf would make it infinite; low enough to add nothing to the softmax in any precision."""


class Mixture(NamedTuple):
    """p(y_t | ·), Eq. 4, and how it came about.

    log_probs: (B, T, V + K) log p(y); rows of its exponential sum to one.
    copy_probs: (B, T, S) probability of copying from each position, e^ψ_c(j) / Z; None where nothing is copied.
    """

    log_probs: Tensor
    copy_probs: Tensor | None


def copy_scores(copy_keys: Tensor, readout: Tensor) -> Tensor:
    """ψ_c(j) = tanh(h_j W_c)·r_t, Eq. 8, from keys tanh(h_j W_c) (B, S, H) and r_t (B, T, H): (B, T, S)."""
    return readout @ copy_keys.transpose(1, 2)


def selective_read_weights(previous_copy_scores: Tensor, matches: Tensor) -> Tensor:
    """ρ_t of Eq. 9: the copy mode's probabilities of step t−1 over the positions of y_{t−1}, summing to one.

    Z cancels, so scores do. Zero everywhere when y_{t−1} is not in the source.

    Args:
        previous_copy_scores: (B, S) ψ_c of step t−1.
        matches: (B, S) bool, x_j = y_{t−1} and j is no padding.
    """
    return masked_softmax(previous_copy_scores, matches)


def copynet_mixture(
    generate_scores: Tensor,
    copy_scores: Tensor,
    source_ids: Tensor,
    source_mask: Tensor,
    max_source_oov: int,
    leaders: Tensor | None = None,
) -> Mixture:
    """p(y) = (1/Z) ([y ∈ V] e^ψ_g(y) + Σ_{j: x_j = y} e^ψ_c(j)) over the extended vocabulary, Eq. 4 to 6.

    Args:
        generate_scores: (B, T, V) ψ_g.
        copy_scores: (B, T, S) ψ_c.
        source_ids: (B, S) extended ids below V + K.
        source_mask: (B, S) bool, false on padding.
        max_source_oov: K.
        leaders: (B, S) what `first_positions` gives for the source, where it is at hand.
    """
    generate_scores, copy_scores = _at_least_float32(generate_scores), _at_least_float32(copy_scores)
    mask = source_mask[:, None, :]
    log_z = log_normaliser(torch.logsumexp(generate_scores, dim=-1), copy_scores, source_mask)[..., None]

    # A spare column behind the slots takes what positions write that are not the first of their word.
    generated = torch.nn.functional.pad(generate_scores - log_z, (0, max_source_oov + 1), value=UNOWNED_LOG_PROB)
    steps, width = generated.shape[1], generated.shape[2] - 1

    # Positions with the same word are one group, led by its first: log Σ e^ψ_c over each group, on the leader.
    if leaders is None:
        leaders = first_positions(source_ids, source_mask, width)
    word_scores = _grouped_logsumexp(copy_scores - log_z, leaders, mask)
    in_vocabulary = source_ids < generate_scores.shape[-1]
    words = torch.where(in_vocabulary, source_ids, 0)[:, None, :].expand(-1, steps, -1)
    both = torch.logaddexp(_fill(generate_scores.gather(-1, words) - log_z, in_vocabulary[:, None, :]), word_scores)

    is_leader = leaders == torch.arange(source_ids.shape[1], device=source_ids.device)
    columns = torch.where(is_leader, source_ids, width)[:, None, :].expand(-1, steps, -1)
    log_probs = generated.scatter_(-1, columns, both)[..., :width]

    copy_probs = torch.exp(copy_scores - log_z) * mask
    return Mixture(log_probs, copy_probs)


def generate_only(generate_scores: Tensor, max_source_oov: int) -> Mixture:
    """p(y) = softmax ψ_g(y), the RNN without copying, shown over the same extended vocabulary."""
    log_probs = torch.log_softmax(_at_least_float32(generate_scores), dim=-1)
    return Mixture(torch.nn.functional.pad(log_probs, (0, max_source_oov), value=UNOWNED_LOG_PROB), None)


def copynet_log_likelihood(
    generate_scores: Tensor,
    copy_scores: Tensor,
    targets: Tensor,
    source_ids: Tensor,
    source_mask: Tensor,
    terms: Terms | None = None,
) -> Tensor:
    """log p(y_t) of given words, Eq. 4 to 6, without the (B, T, V + K) table.

    Args:
        generate_scores, copy_scores, source_ids, source_mask: as in `copynet_mixture`.
        targets: (B, T) extended ids, each in the vocabulary or in its row's source (`own_targets`).
        terms: another form of `vocabulary_terms`.

    Returns:
        (B, T) log-probabilities.
    """
    copy_scores = _at_least_float32(copy_scores)
    in_vocabulary = targets < generate_scores.shape[-1]
    chosen, log_sum = (terms or vocabulary_terms)(generate_scores, torch.where(in_vocabulary, targets, 0))
    copied = masked_logsumexp(copy_scores, target_matches(targets, source_ids, source_mask))
    return torch.logaddexp(_fill(chosen, in_vocabulary), copied) - log_normaliser(log_sum, copy_scores, source_mask)


def generate_log_likelihood(generate_scores: Tensor, targets: Tensor, terms: Terms | None = None) -> Tensor:
    """log p(y_t) = ψ_g(y_t) − log Σ e^ψ_g of given words of the vocabulary, without copying: (B, T)."""
    chosen, log_sum = (terms or vocabulary_terms)(generate_scores, targets)
    return chosen - log_sum


def vocabulary_terms(generate_scores: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
    """What a likelihood needs of ψ_g (…, V): ψ_g(y) of the given words (…) and log Σ_v e^ψ_g(v), both (…)."""
    generate_scores = _at_least_float32(generate_scores)
    return generate_scores.gather(-1, words[..., None])[..., 0], torch.logsumexp(generate_scores, dim=-1)


def log_normaliser(generate_log_sum: Tensor, copy_scores: Tensor, source_mask: Tensor) -> Tensor:
    """log Z, the normaliser that both modes share (below Eq. 6): all of V ∪ {UNK} and every source position.

    From log Σ e^ψ_g (B, T), ψ_c (B, T, S) and the mask (B, S): (B, T).
    """
    return torch.logaddexp(generate_log_sum, masked_logsumexp(copy_scores, source_mask[:, None, :]))


def target_matches(target_ids: Tensor, source_ids: Tensor, source_mask: Tensor) -> Tensor:
    """Where x_j = y_t: (B, T, S) bool from (B, T) and (B, S) extended ids; never on padding."""
    return (target_ids[:, :, None] == source_ids[:, None, :]) & source_mask[:, None, :]


def fold_ids(ids: Tensor, limit: int, unk_token_id: int) -> Tensor:
    """Ids from `limit` on become UNK: for the embedding (limit V), or for words beyond the last slot (V + K)."""
    return torch.where(ids < limit, ids, unk_token_id)


def own_targets(
    targets: Tensor, source_ids: Tensor, source_mask: Tensor, vocab_size: int, unk_token_id: int
) -> Tensor:
    """Target words that are neither in the vocabulary nor in the row's own source become UNK (Eq. 5, last case).

    Negative targets (−100: no target) pass through. Shapes as in `copynet_log_likelihood`.
    """
    owned = (targets < vocab_size) | target_matches(targets, source_ids, source_mask).any(-1)
    return torch.where(owned, targets, unk_token_id)


def first_positions(source_ids: Tensor, source_mask: Tensor, width: int) -> Tensor:
    """For each position the first unpadded one with the same word: (B, S); on padding S, or some real position."""
    batch, length = source_ids.shape
    positions = torch.arange(length, device=source_ids.device).expand(batch, -1)
    positions = torch.where(source_mask, positions, length)
    first = positions.new_full((batch, width), length).scatter_reduce(1, source_ids, positions, "amin")
    return first.gather(1, source_ids)


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Softmax over the last axis where `mask` is true; zero elsewhere, and everywhere in a row without any."""
    return torch.softmax(_fill(_at_least_float32(scores), mask), dim=-1).to(scores.dtype) * mask


def masked_logsumexp(scores: Tensor, mask: Tensor) -> Tensor:
    """log Σ e^score over the last axis where `mask` is true; finite, and far below any score, where it never is."""
    if scores.shape[-1] == 0:
        return scores.new_full(scores.shape[:-1], _lowest(scores.dtype))
    return torch.logsumexp(_fill(scores, mask), dim=-1)


def _grouped_logsumexp(scores: Tensor, leaders: Tensor, mask: Tensor) -> Tensor:
    """log Σ e^score over each group of positions, standing at the group's leader; others hold no meaning.

    Each group is summed around its own maximum, so that a word's probability is exact however small it is.

    Args:
        scores: (B, T, S).
        leaders: (B, S) first position of each position's group; S on padding.
        mask: (B, 1, S) bool.
    """
    index = leaders[:, None, :].expand_as(scores)
    shape = (*scores.shape[:-1], scores.shape[-1] + 1)  # one place more, for padding
    filled = _fill(scores, mask)
    peak = filled.new_full(shape, _lowest(scores.dtype)).scatter_reduce(-1, index, filled.detach(), "amax")
    shares = torch.exp(filled - peak.gather(-1, index)) * mask
    sums = scores.new_zeros(shape).scatter_add(-1, index, shares)
    # Where no group is led the sum is 0; the 1 keeps log and its gradient finite there.
    return (torch.log(torch.where(sums > 0, sums, 1.0)) + peak)[..., :-1]


def _fill(scores: Tensor, mask: Tensor) -> Tensor:
    """Scores where `mask` is true, elsewhere the lowest that still leaves room for sums and differences.

    Finite, unlike −inf, whose gradients are NaN where a whole row is masked.
    """
    return scores.masked_fill(~mask, _lowest(scores.dtype))


def _lowest(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).min / 4


def _at_least_float32(scores: Tensor) -> Tensor:
    return scores.to(torch.promote_types(scores.dtype, torch.float32))
