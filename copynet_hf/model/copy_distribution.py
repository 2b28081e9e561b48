"""The output distributions as pure functions: the equation of each copy mechanism, and what they share.

Equations without another name are those of Gu et al. 2016. Letters: x_j is the source word at position j, h_j its
encoder state (together M), y_t the target word, e(y) its embedding, s_t the decoder state, r_t the readout that scores
are computed from (s_t in the paper), a_tj the attention, c_t the attentive read, ψ_g and ψ_c the scores of the two
modes, Z their shared normaliser, ζ the selective read and ρ its weights.

Shapes: B rows decode from N sources, B / N of them side by side from each; in training B = N. S source positions, T
target steps, V words in the vocabulary, K slots for unseen words.
Sums over words and positions are computed in float32 or wider, whatever the precision of the scores.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

IMPOSSIBLE_LOG_PROB = -60.0
"""Log-probability of slots that a row's source does not own. Finite, because label smoothing sums over all columns;
low enough to add nothing to the softmax in any precision."""


class ModeScores(NamedTuple):
    """The arguments of the mechanisms' equations; None where a mechanism does not use one.

    generate_log_sum: (B, T) log Σ_v e^ψ_g(v).
    source_mask: (B, S) bool, positions that can be copied; false on padding.
    copy_scores: (B, T, S) ψ_c.
    attention: (B, T, S) a_tj, summing to one over the source.
    switch: (B, T) the logit of p_gen for `pointer_generator_modes`, of λ for `gated_modes`.
    """

    generate_log_sum: Tensor
    source_mask: Tensor
    copy_scores: Tensor | None = None
    attention: Tensor | None = None
    switch: Tensor | None = None


class Modes(NamedTuple):
    """The two modes of a mechanism, p(y) = [y ∈ V] e^(ψ_g(y) − generate_normaliser) + Σ_{j: x_j = y} e^copied(j).

    generate_normaliser: (B, T).
    copied(j) = copy_logits (B, T, S) − copy_normaliser (B, T); has no meaning on padding: mask it. None without a
        copy mode.
    """

    generate_normaliser: Tensor
    copy_logits: Tensor | None = None
    copy_normaliser: Tensor | None = None


class Mixture(NamedTuple):
    """p(y_t | ·), Eq. 4, and its copy mode.

    log_probs: (B, T, V + K) log p(y); rows of its exponential sum to one.
    copy_probs: (B, T, S) probability of copying from each position; None without a copy mode.
    """

    log_probs: Tensor
    copy_probs: Tensor | None


# ---- the mechanisms: one equation each; model cards quote their docstrings


def copynet_modes(scores: ModeScores) -> Modes:
    """Both modes compete under one normaliser Z = Σ_v e^ψ_g(v) + Σ_j e^ψ_c(j), of all words and all source positions.

    Gu et al. 2016, Eq. 4 to 6, whose second sum is written over words x of the source; over positions, as in the
    authors' code, p sums to one.
    """
    assert scores.copy_scores is not None
    copy_scores = at_least_float32(scores.copy_scores)
    copied = _mask_scores(copy_scores, scores.source_mask[:, None, :])
    log_z = torch.logsumexp(torch.cat([copied, scores.generate_log_sum[..., None]], dim=-1), dim=-1)
    return Modes(log_z, copy_scores, log_z)


def generate_only(scores: ModeScores) -> Modes:
    """p(y) = softmax ψ_g(y), the attentive RNN without copying (Bahdanau et al. 2014)."""
    return Modes(scores.generate_log_sum)


def pointer_generator_modes(scores: ModeScores) -> Modes:
    """p(y) = p_gen softmax ψ_g(y) + (1 − p_gen) Σ_{j: x_j = y} a_tj, with p_gen = σ(switch).

    See, Liu, Manning 2017 (arXiv 1704.04368), Eq. 8 and 9. The query of a_t is s_t, their Eq. 1
    (`Mechanism.attends_after`). With an empty source, p_gen is 1.
    """
    assert scores.switch is not None
    return _weigh_modes(scores, at_least_float32(scores.switch))


def gated_modes(scores: ModeScores) -> Modes:
    """p(y) = (1 − λ_t) softmax ψ_g(y) + λ_t Σ_{j: x_j = y} a_tj, with λ_t = σ(switch).

    CoRe (Cao, Luo, Li, Li 2016, arXiv 1611.09235), whose full text was not available: the form is that of the code
    published by Luo, a co-author, except that the attention to all positions of a repeated word is summed. With an
    empty source, λ_t is 0.
    """
    assert scores.switch is not None
    return _weigh_modes(scores, -at_least_float32(scores.switch))


def pointer_modes(scores: ModeScores) -> Modes:
    """p(C_i) = softmax(u^i) over the source positions and the end symbol, which is all that is generated.

    Pointer Networks (Vinyals et al. 2015, section 2.3): CopyNet's equation, with u^i_j as ψ_c(j), and as ψ_g the end
    symbol's u^i.
    """
    return copynet_modes(scores)


def retrieval_modes(scores: ModeScores) -> Modes:
    """p(y) = (1/Z) ([y ∈ V] e^ψ_pr(y) + Σ_{x_j = y} e^ψ_co(j) + Σ_{o_k = y} e^ψ_re(k)): one normaliser for what is
    predicted, copied from the question x, and retrieved as the object o of a fact.

    CoreQA (He et al. 2017, P17-1019), after its overview figure; the paper's text was not available. `copy_scores`
    holds ψ_co and ψ_re at the source positions that they belong to, so that the equation is CopyNet's.
    """
    return copynet_modes(scores)


def _weigh_modes(scores: ModeScores, generate_logit: Tensor) -> Modes:
    """Weighs the softmax over words by σ(generate_logit), the attention by the rest, in log space."""
    assert scores.attention is not None
    empty = ~scores.source_mask.any(-1, keepdim=True)
    softplus = torch.nn.functional.softplus  # −log σ(−x), without the sigmoid, which onnxruntime rounds
    generate_log_sum = scores.generate_log_sum + softplus(-generate_logit).masked_fill(empty, 0.0)
    return Modes(generate_log_sum, _log_attention(scores.attention), softplus(generate_logit))


MODES: dict[str, Callable[[ModeScores], Modes]] = {
    "copynet": copynet_modes,
    "none": generate_only,
    "pointer_generator": pointer_generator_modes,
    "gated": gated_modes,
    "pointer": pointer_modes,
    "retrieval": retrieval_modes,
}
"""The equation of each `config.copy_mechanism`."""


# ---- the scores of CopyNet's copy mode


def copy_scores(copy_keys: Tensor, readout: Tensor) -> Tensor:
    """ψ_c(j) = tanh(h_j W_c)·r_t, Eq. 8, from keys tanh(h_j W_c) (N, S, H) and r_t (B, …, H): (B, …, S)."""
    scores = group_by_source(readout, copy_keys) @ copy_keys.transpose(1, 2)
    return scores.view(*readout.shape[:-1], copy_keys.shape[1])


def selective_read_weights(previous_copy_scores: Tensor, matches: Tensor) -> Tensor:
    """ρ_t of Eq. 9: the copy mode's probabilities of step t−1 over the positions of y_{t−1}, summing to one.

    Z cancels, so scores are enough. Zero everywhere if y_{t−1} is not in the source.

    Args:
        previous_copy_scores: (B, …, S) ψ_c of step t−1.
        matches: (B, …, S) bool, x_j = y_{t−1} and j is not padding.
    """
    return masked_softmax(previous_copy_scores, matches)


# ---- from the modes to probabilities


def mixture(
    generate_scores: Tensor,
    modes: Modes,
    source_ids: Tensor,
    source_mask: Tensor,
    max_source_oov: int,
    allowed: Tensor | None = None,
) -> Mixture:
    """p(y) of `Modes` over the extended vocabulary.

    Args:
        generate_scores: (B, T, V) ψ_g.
        modes: the mechanism's two modes.
        source_ids: (N, S) extended ids below V + K.
        source_mask: (N, S) bool, false on padding.
        max_source_oov: K.
        allowed: (B, V) bool, the words that may be generated; None: all.
    """
    generated = at_least_float32(generate_scores) - modes.generate_normaliser[..., None]
    if allowed is not None:
        generated = generated.masked_fill(~allowed[:, None, :], IMPOSSIBLE_LOG_PROB)
    if modes.copy_logits is None or modes.copy_normaliser is None:
        return Mixture(torch.nn.functional.pad(generated, (0, max_source_oov), value=IMPOSSIBLE_LOG_PROB), None)
    # Positions that are not the first of their word write to a spare column after the slots.
    table = torch.nn.functional.pad(generated, (0, max_source_oov + 1), value=IMPOSSIBLE_LOG_PROB)
    rows, steps, width = table.shape[0], table.shape[1], table.shape[2] - 1

    # Positions with the same word form a group: log Σ e^copied over each group, at its first position, the leader.
    by_source = (source_ids, source_mask, find_first_positions(source_ids, source_mask, width))
    source_ids, source_mask, first_positions = (expand_to_rows(field, rows) for field in by_source)
    copied, mask = modes.copy_logits - modes.copy_normaliser[..., None], source_mask[:, None, :]
    word_scores = _grouped_logsumexp(copied, first_positions, mask)
    generates = source_ids < generate_scores.shape[-1]
    words = torch.where(generates, source_ids, 0)
    if allowed is not None:
        generates = generates & allowed.gather(1, words)
    words = words[:, None, :].expand(-1, steps, -1)
    both = _log_add_exp(_mask_scores(generated.gather(-1, words), generates[:, None, :]), word_scores)

    is_leader = first_positions == torch.arange(source_ids.shape[1], device=source_ids.device)
    columns = torch.where(is_leader, source_ids, width)[:, None, :].expand(-1, steps, -1)
    log_probs = table.scatter_(-1, columns, both)[..., :width]
    return Mixture(log_probs, torch.exp(_mask_scores(copied, mask)))


def average_log_probs(log_probs: Sequence[Tensor]) -> Tensor:
    """log p(y) of an ensemble, p(y) = (1/M) Σ_m p_m(y), from its members' log p_m(y), all of one shape."""
    return reduce(torch.logaddexp, log_probs) - math.log(len(log_probs))


def log_likelihood(generate_score: Tensor, modes: Modes, in_vocabulary: Tensor, matches: Tensor | None) -> Tensor:
    """log p(y_t) of the target words by `Modes`, without the (B, T, V + K) table.

    Args:
        generate_score: (B, T) ψ_g(y_t), any value where y_t is not in the vocabulary.
        in_vocabulary: (B, T) bool.
        matches: (B, T, S) bool, x_j = y_t; None without a copy mode.

    Returns:
        (B, T) log-probabilities.
    """
    generated = _mask_scores(generate_score - modes.generate_normaliser, in_vocabulary)
    if modes.copy_logits is None or modes.copy_normaliser is None or matches is None:
        return generated
    return _log_add_exp(generated, masked_logsumexp(modes.copy_logits, matches) - modes.copy_normaliser)


# ---- losses in addition to −log p(y_t)


def coverage_loss(attention: Tensor) -> Tensor:
    """Σ_j min(a_tj, cov_tj), cov_t the sum of the attention before step t: (B, T) from (B, T, S).

    See et al. 2017, Eq. 12: at most 1, and 0 if no position is attended to twice.
    """
    attention = at_least_float32(attention)
    return torch.minimum(attention, attention.cumsum(1) - attention).sum(-1)


def gate_loss(switch: Tensor, is_copied: Tensor) -> Tensor:
    """−log λ_t where y_t is copied (in the source and not an end symbol), else −log(1 − λ_t): (B, T). CoRe's.

    The form is that of Luo's code and of the Chainer article; the paper was not available.
    """
    switch = at_least_float32(switch)
    return torch.nn.functional.binary_cross_entropy_with_logits(switch, is_copied.to(switch.dtype), reduction="none")


def summed_likelihood(generate_score: Tensor, scores: ModeScores, in_vocabulary: Tensor, matches: Tensor) -> Tensor:
    """(1 − λ_t) log p_g(y_t) + [y_t ∈ X] λ_t log Σ_{j: x_j = y_t} a_tj: the Chainer article's, instead of log p(y_t).

    A weighted sum of two logarithms, not the logarithm of the mixture; `gate_loss` is added. The article uses the
    attention of y_t's first position only. Arguments as in `log_likelihood`.
    """
    assert scores.switch is not None
    assert scores.attention is not None
    copied = masked_logsumexp(_log_attention(scores.attention), matches)
    weight = torch.sigmoid(at_least_float32(scores.switch))
    generated = (generate_score - scores.generate_log_sum) * in_vocabulary
    return (1 - weight) * generated + weight * torch.where(matches.any(-1), copied, 0.0)


# ---- parts


def vocabulary_terms(generate_scores: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
    """ψ_g(y) (…) and log Σ_v e^ψ_g(v) (…), from ψ_g (…, V) and words y (…)."""
    generate_scores = at_least_float32(generate_scores)
    return generate_scores.gather(-1, words[..., None])[..., 0], torch.logsumexp(generate_scores, dim=-1)


def expand_to_rows(field: Tensor, rows: int) -> Tensor:
    """(N, …) as (B, …): each source's entry for the B / N rows that decode from it, side by side."""
    sources = field.shape[0]
    return field if rows == sources else field[:, None].expand(-1, rows // sources, *field.shape[1:]).flatten(0, 1)


def group_by_source(rows: Tensor, sources: Tensor) -> Tensor:
    """(R, …, X) as (N, R / N · …, X): the rows that decode from each of the N sources side by side."""
    return rows.reshape(sources.shape[0], -1, rows.shape[-1])


def find_matches(words: Tensor, source_ids: Tensor, source_mask: Tensor) -> Tensor:
    """Where x_j = y_t: (B, T, S) bool from words (B, T) and sources (N, S), extended ids; never on padding."""
    by_source = words.reshape(source_ids.shape[0], -1)
    matches = (by_source[:, :, None] == source_ids[:, None, :]) & source_mask[:, None, :]
    return matches.view(*words.shape, -1)


def replace_by_unk(ids: Tensor, limit: int, unk_token_id: int) -> Tensor:
    """Ids from `limit` on become UNK: slots for the embedding (limit V), or ids beyond the last slot (V + K)."""
    return torch.where(ids < limit, ids, unk_token_id)


def replace_unreachable_words(
    words: Tensor, source_ids: Tensor, source_mask: Tensor, can_generate: Tensor, unk_token_id: int
) -> tuple[Tensor, Tensor]:
    """Words that can be neither generated nor copied from the row's own source become UNK: Eq. 5 and 6, last cases.

    Args:
        words: (B, T) extended ids.
        source_ids, source_mask: (N, S) extended ids and bool.
        can_generate: (B, T) bool, the words that can be generated.

    Returns:
        The words (B, T), and where x_j = y_t (B, T, S) bool.
    """
    matches = find_matches(words, source_ids, source_mask)
    is_reachable = can_generate | matches.any(-1)
    words = torch.where(is_reachable, words, unk_token_id)
    # source words beyond the last slot are UNK, too
    unk_matches = expand_to_rows((source_ids == unk_token_id) & source_mask, words.shape[0])
    return words, matches | (~is_reachable[..., None] & unk_matches[:, None, :])


def find_first_positions(source_ids: Tensor, source_mask: Tensor, width: int) -> Tensor:
    """For each position the first one with the same word: (N, S). On padding S, or the position of some word."""
    batch, length = source_ids.shape
    positions = torch.arange(length, device=source_ids.device).expand(batch, -1)
    positions = torch.where(source_mask, positions, length)
    first = positions.new_full((batch, width), length).scatter_reduce(1, source_ids, positions, "amin")
    return first.gather(1, source_ids)


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Softmax over the last axis where `mask` is true; zero elsewhere, and everywhere in a row without any."""
    return torch.softmax(_mask_scores(at_least_float32(scores), mask), dim=-1).to(scores.dtype) * mask


def masked_logsumexp(scores: Tensor, mask: Tensor) -> Tensor:
    """log Σ e^score over the last axis where `mask` is true; finite, and far below any score, where it is false
    everywhere."""
    return torch.logsumexp(_mask_scores(scores, mask), dim=-1)


def _grouped_logsumexp(scores: Tensor, first_positions: Tensor, mask: Tensor) -> Tensor:
    """log Σ e^score over each group of positions, at the group's leader; other positions are undefined.

    Each group is summed relative to its own maximum, so that small probabilities are exact.

    Args:
        scores: (B, T, S).
        first_positions: (B, S) first position of each position's group; S on padding.
        mask: (B, 1, S) bool.
    """
    index = first_positions[:, None, :].expand_as(scores)
    shape = (*scores.shape[:-1], scores.shape[-1] + 1)  # one more position, for padding
    filled = _mask_scores(scores, mask)
    peak = filled.new_full(shape, lowest(scores.dtype)).scatter_reduce(-1, index, filled.detach(), "amax")
    shares = torch.exp(filled - peak.gather(-1, index)) * mask
    sums = scores.new_zeros(shape).scatter_add(-1, index, shares)
    # The sum is 0 except at first_positions; the 1 keeps log and its gradient finite there.
    return (torch.log(torch.where(sums > 0, sums, 1.0)) + peak)[..., :-1]


def _log_add_exp(a: Tensor, b: Tensor) -> Tensor:
    """log(e^a + e^b). torch's `logaddexp` has NaN second-order gradients where one is far below the other."""
    return torch.maximum(a, b) + torch.log1p(torch.exp(-(a - b).abs()))


def _log_attention(attention: Tensor) -> Tensor:
    """log a_tj, renormalised in float32; where a_tj is 0, the logarithm of the smallest positive number. The attention
    of a Transformers decoder may be 0 everywhere, by its dropout: all positions are then alike."""
    attention = at_least_float32(attention).clamp(min=torch.finfo(torch.float32).tiny)
    return torch.log(attention) - torch.log(attention.sum(-1, keepdim=True))


def _mask_scores(scores: Tensor, mask: Tensor) -> Tensor:
    """Scores where `mask` is true, else `lowest`: finite, because −inf has NaN gradients where a whole row is
    masked."""
    return scores.masked_fill(~mask, lowest(scores.dtype))


def lowest(dtype: torch.dtype) -> float:
    """A finite substitute for −∞ that leaves room for sums and differences."""
    return torch.finfo(dtype).min / 4


def at_least_float32(scores: Tensor) -> Tensor:
    return scores.to(torch.promote_types(scores.dtype, torch.float32))


def has_values(tensor: Tensor) -> bool:
    """Whether Python may look at the tensor's values: not while tracing, nor on the meta device."""
    return not (torch.compiler.is_compiling() or torch.jit.is_tracing() or tensor.is_meta)
