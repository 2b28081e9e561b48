"""The loss of the target words: −log p(y_t), Eq. 10, and the mechanisms' additional losses.

Shapes: B rows, S source positions, T target steps, V words, K slots.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from .configuration_copynet import CopyNetBaseConfig, CopyNetConfig
from .copy_distribution import (
    MODES,
    ModeScores,
    coverage_loss,
    gate_loss,
    log_likelihood,
    replace_by_unk,
    replace_unreachable_words,
    summed_likelihood,
    vocabulary_terms,
)
from .dispatch import find_fast_form_obstacles
from .fused_likelihood import FusedCrossEntropy, FusedVocabularyTerms
from .outputs import CopyNetModelOutput
from .target_words import check_pointed_at


def collect_mode_scores(generate_log_sum: Tensor, output: CopyNetModelOutput) -> ModeScores:
    """What the mechanism's equation reads, from log Σ_v e^ψ_g(v) (B, T) and the decoder's output."""
    attention = output.cross_attentions[0][:, 0] if output.cross_attentions else None
    return ModeScores(generate_log_sum, output.source_mask, output.copy_scores, attention, output.switch)


def compute_loss(
    config: CopyNetConfig,
    generate_scores: Tensor,
    log_probs: Tensor | None,
    output: CopyNetModelOutput,
    labels: Tensor,
    num_items_in_batch: Tensor | int | None,
    allowed: Tensor | None = None,
    keep: Tensor | None = None,
    *,
    reuse_scores: bool = False,
) -> Tensor:
    """−log p(y_t), Eq. 10, with the mechanism's additional losses: summed over targets, divided by their number.

    Args:
        generate_scores: (B, T, V) ψ_g.
        log_probs: (B, T, V + K) log p(y), from which the loss is computed; None: it is computed from
            `generate_scores`, which is faster and needs no table of this size.
        output: the decoder's, with a bool `source_mask` and, where the loss reads them, attentions.
        labels: (B, T) extended ids, −100 where there is no target.
        num_items_in_batch: what the summed loss is divided by; None: the number of targets.
        allowed: (B, V) bool, the words that may be generated; None: all.
        keep: (B, T) bool, false on padding among the decoder's inputs; None: there is none.
        reuse_scores: whether the backward may overwrite `generate_scores`.

    Raises:
        ValueError: a Pointer Network's target is neither in the source nor the end symbol.
    """
    is_target = labels != -100
    targets = labels.masked_fill(~is_target, config.pad_token_id)
    source = (output.source_ids, output.source_mask)
    targets, matches = replace_unreachable_targets(
        config, targets, *source, allowed if config.mechanism.generates else None
    )
    can_generate = _can_generate(targets, config, allowed)
    if not config.mechanism.generates and matches is not None:
        check_pointed_at(is_target & ~can_generate & ~matches.any(-1), labels)
    if log_probs is None or config.gated_loss == "summed":  # the latter is no function of p(y)
        losses = _score_targets(config, generate_scores, output, targets, can_generate, matches, reuse_scores)
    elif find_fast_form_obstacles(config):
        losses = cross_entropy(log_probs.flatten(0, 1), targets.flatten(), reduction="none").view(targets.shape)
    else:
        losses = FusedCrossEntropy.apply(log_probs, targets)
    if config.coverage_loss_weight and output.cross_attentions:
        attention = output.cross_attentions[0][:, 0]
        attention = attention if keep is None else attention * keep[..., None]
        losses = losses + config.coverage_loss_weight * coverage_loss(attention)
    if config.copy_mechanism == "gated" and output.switch is not None and matches is not None:
        # an end symbol is generated, even if the source has one
        is_end = torch.isin(targets, torch.tensor(config.end_token_ids, device=targets.device))
        losses = losses + config.gate_loss_weight * gate_loss(output.switch, matches.any(-1) & ~is_end)
    return average_losses(losses, is_target, num_items_in_batch)


def replace_unreachable_targets(
    config: CopyNetBaseConfig, targets: Tensor, source_ids: Tensor, source_mask: Tensor, allowed: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Targets (B, T) that can be neither generated nor copied become UNK; and where x_j = y_t (B, T, S) bool, None
    without a copy mode. `allowed` (B, V) bool: the words that may be generated; None: all."""
    if not config.copies:
        return replace_by_unk(targets, config.vocab_size, config.unk_token_id), None
    is_known = _can_generate(targets, config, allowed)
    return replace_unreachable_words(targets, source_ids, source_mask, is_known, config.unk_token_id)


def average_losses(losses: Tensor, is_target: Tensor, num_items_in_batch: Tensor | int | None) -> Tensor:
    """The sum of the losses (B, T) where there is a target, divided by the number of targets or the given number."""
    total = (losses * is_target).sum()
    return total / (is_target.sum().clamp(min=1) if num_items_in_batch is None else num_items_in_batch)


def _score_targets(
    config: CopyNetConfig,
    generate_scores: Tensor,
    output: CopyNetModelOutput,
    targets: Tensor,
    can_generate: Tensor,
    matches: Tensor | None,
    reuse_scores: bool,
) -> Tensor:
    """−log p(y_t) (B, T), or the negative `summed_likelihood`, without the table of log p(y)."""
    words = torch.where(can_generate, targets, 0)
    if find_fast_form_obstacles(config):
        word_scores, log_sum = vocabulary_terms(generate_scores, words)
    else:
        word_scores, log_sum = FusedVocabularyTerms.apply(generate_scores, words, reuse_scores)
    scores = collect_mode_scores(log_sum, output)
    if config.gated_loss == "summed" and matches is not None:
        return -summed_likelihood(word_scores, scores, can_generate, matches)
    return -log_likelihood(word_scores, MODES[config.copy_mechanism](scores), can_generate, matches)


def _can_generate(words: Tensor, config: CopyNetBaseConfig, allowed: Tensor | None) -> Tensor:
    """(B, T) bool: whether each word can be generated; `allowed` (B, V) bool, None: all words can."""
    in_vocabulary = words < config.vocab_size
    if allowed is None:
        return in_vocabulary
    return in_vocabulary & allowed.gather(1, torch.where(in_vocabulary, words, 0))
