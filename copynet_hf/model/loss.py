"""The decoder's inputs from the labels, and the loss of the target words: −log p(y_t), Eq. 10, and the mechanisms'
additional losses.

Shapes: B rows, S source positions, T target steps, V words, K slots.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from .configuration_copynet import CopyNetBaseConfig, CopyNetConfig
from .copy_distribution import (
    MODES,
    ModeScores,
    at_least_float32,
    coverage_loss,
    expand_to_rows,
    find_matches,
    gate_loss,
    has_values,
    log_likelihood,
    replace_by_unk,
    replace_unreachable_words,
    summed_likelihood,
    vocabulary_terms,
)
from .fast import find_fast_form_obstacles
from .gru import first_order_only
from .outputs import CopyNetModelOutput, check_not_negative
from .vocabularies import IGNORED_LABEL


def shift_right(labels: Tensor, config: CopyNetBaseConfig) -> Tensor:
    """y_0 … y_{T-1} (B, T): the start symbol at each row's first label, which −100 may precede; padding for −100."""
    first = (labels != IGNORED_LABEL).long().argmax(-1, keepdim=True)
    shifted = torch.nn.functional.pad(labels[:, :-1], (1, 0), value=IGNORED_LABEL)
    shifted = shifted.scatter(1, first, config.decoder_start_token_id)
    return shifted.masked_fill(shifted == IGNORED_LABEL, config.pad_token_id)


def mask_left_padding(decoder_input_ids: Tensor, config: CopyNetBaseConfig) -> Tensor | None:
    """(B, T) bool, false on padding before the start symbol, which may be the padding symbol; None: there is none."""
    is_padding = (decoder_input_ids == config.pad_token_id).cumprod(-1).bool()
    if config.decoder_start_token_id == config.pad_token_id:
        is_padding = torch.nn.functional.pad(is_padding[:, 1:], (0, 1))
    return ~is_padding if has_values(is_padding) and bool(is_padding.any()) else None


def collect_mode_scores(config: CopyNetConfig, generate_log_sum: Tensor, output: CopyNetModelOutput) -> ModeScores:
    """What the mechanism's equation reads, from log Σ_v e^ψ_g(v) (B, T) and the decoder's output.

    The copy scores of a pretrained encoder-decoder, whose ψ_g may be of any size, are relative to this sum.
    """
    attention = output.cross_attentions[0][:, 0] if output.cross_attentions else None
    mask = expand_to_rows(output.source_mask.bool(), generate_log_sum.shape[0])
    copy_scores = output.copy_scores
    if config.seq2seq and copy_scores is not None:
        copy_scores = copy_scores + generate_log_sum[..., None]
    return ModeScores(generate_log_sum, mask, copy_scores, attention, output.switch)


def check_labels(labels: Tensor, decoder_input_ids: Tensor | None = None, embeddings: Tensor | None = None) -> None:
    """Raises ValueError unless labels are ids or −100, one for each of the decoder's ids (B, T), or embeddings
    (B, T, E), where these are given."""
    check_not_negative("labels", labels.masked_fill(labels == IGNORED_LABEL, 0))
    for name, inputs in (("decoder_input_ids", decoder_input_ids), ("decoder_inputs_embeds", embeddings)):
        if inputs is not None and inputs.shape[:2] != labels.shape:
            raise ValueError(
                f"labels has shape {tuple(labels.shape)}, {name} {tuple(inputs.shape)}: pass a label for each of the "
                "decoder's inputs, or labels alone."
            )


def check_loss_of_logits(config: CopyNetConfig) -> None:
    """Raises ValueError for a model whose loss the logits do not give, where the Trainer takes the labels away."""
    if fields := list_other_losses(config):
        values = " and ".join(f"{name} is {getattr(config, name)!r}" for name in fields)
        raise ValueError(
            f"{values}, but with label_smoothing_factor or compute_loss_func the Trainer computes another loss, of "
            "the logits alone: use neither, or another config"
        )


def check_written_words(
    config: CopyNetConfig, decoder_input_ids: Tensor, output: CopyNetModelOutput, allowed: Tensor | None
) -> None:
    """Raises ValueError for words (B, T) that the model cannot write, where the Trainer takes the labels away: their
    log-probabilities are those of an impossible word, where the model's own loss has those of UNK. The last label is
    no decoder input, and not seen here; it should be an end symbol."""
    can_write = _can_generate(decoder_input_ids, config, allowed)
    if config.copies:
        can_write |= find_matches(decoder_input_ids, output.source_ids, output.source_mask.bool()).any(-1)
    special = torch.tensor([config.pad_token_id, config.decoder_start_token_id], device=can_write.device)
    missing = ~(can_write | torch.isin(decoder_input_ids, special))
    if has_values(missing) and missing.any():
        row, step = missing.nonzero()[0].tolist()
        raise ValueError(
            f"decoder_input_ids[{row}, {step}] is {int(decoder_input_ids[row, step])}, which this model cannot write "
            f"(copy_mechanism={config.copy_mechanism!r}), and with label_smoothing_factor or compute_loss_func the "
            "Trainer takes the labels as they are: use neither, or `copynet-hf train`, whose smoothing reads such "
            "words as UNK"
        )


def list_other_losses(config: CopyNetConfig) -> list[str]:
    """The fields of a model whose loss is not −log p(y_t) of its log-probabilities alone."""
    is_gated = config.copy_mechanism == "gated"
    fields = {
        "coverage_loss_weight": config.coverage_loss_weight > 0,
        "gate_loss_weight": is_gated and config.gate_loss_weight > 0,
        "gated_loss": is_gated and config.gated_loss == "summed",
    }
    return [name for name, is_used in fields.items() if is_used]


def compute_loss(
    config: CopyNetConfig,
    generate_scores: Tensor | None,
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
        generate_scores: (B, T, V) ψ_g; None where only an end symbol is generated.
        log_probs: (B, T, V + K) log p(y), from which the loss is computed; None: it is computed from
            `generate_scores`, which is faster and needs no table of this size.
        output: the decoder's, with attentions where the loss reads them.
        labels: (B, T) extended ids, −100 where there is no target.
        num_items_in_batch: what the summed loss is divided by; None: the number of targets.
        allowed: (B, V) bool, the words that may be generated; None: all.
        keep: (B, T) bool, false on padding among the decoder's inputs; None: there is none.
        reuse_scores: whether the backward may overwrite `generate_scores`.

    Raises:
        ValueError: a Pointer Network's target is neither in the source nor the end symbol.
    """
    is_target = labels != IGNORED_LABEL
    targets = labels.masked_fill(~is_target, config.pad_token_id)
    source = (output.source_ids, output.source_mask.bool())
    targets, matches = replace_unreachable_targets(
        config, targets, *source, allowed if config.mechanism.generates else None
    )
    can_generate = _can_generate(targets, config, allowed)
    if not config.mechanism.generates and matches is not None:
        _check_pointed_at(is_target & ~can_generate & ~matches.any(-1), labels)
    if log_probs is None or config.gated_loss == "summed":  # the latter is no function of p(y)
        losses = _score_targets(config, generate_scores, output, targets, can_generate, matches, reuse_scores)
    else:
        losses = cross_entropy(log_probs.flatten(0, 1), targets.flatten(), reduction="none").view(targets.shape)
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
    generate_scores: Tensor | None,
    output: CopyNetModelOutput,
    targets: Tensor,
    can_generate: Tensor,
    matches: Tensor | None,
    reuse_scores: bool,
) -> Tensor:
    """−log p(y_t) (B, T), or the negative `summed_likelihood`, without the table of log p(y)."""
    words = torch.where(can_generate, targets, 0)
    if generate_scores is None:  # a Pointer Network's end symbol is all that is generated
        assert output.end_scores is not None
        word_scores = log_sum = at_least_float32(output.end_scores)
    elif find_fast_form_obstacles(config):
        word_scores, log_sum = vocabulary_terms(generate_scores, words)
    else:
        word_scores, log_sum = FusedVocabularyTerms.apply(generate_scores, words, reuse_scores)
    scores = collect_mode_scores(config, log_sum, output)
    if config.gated_loss == "summed" and matches is not None:
        return -summed_likelihood(word_scores, scores, can_generate, matches)
    return -log_likelihood(word_scores, MODES[config.copy_mechanism](scores), can_generate, matches)


def _can_generate(words: Tensor, config: CopyNetBaseConfig, allowed: Tensor | None) -> Tensor:
    """(B, T) bool: whether each word can be generated; `allowed` (B, V) bool, None: all words can."""
    in_vocabulary = words < config.vocab_size
    if allowed is None:
        return in_vocabulary
    return in_vocabulary & allowed.gather(1, torch.where(in_vocabulary, words, 0))


def _check_pointed_at(missing: Tensor, labels: Tensor) -> None:
    """Raises ValueError for a target that is not in the source; not while tracing, which has no values."""
    if not has_values(missing) or not missing.any():
        return
    row, step = missing.nonzero()[0].tolist()
    raise ValueError(
        f"labels[{row}, {step}] is {int(labels[row, step])}, which is neither in the row's source nor the end symbol, "
        "and copy_mechanism='pointer' writes nothing else: leave such pairs out, or use 'copynet'."
    )


# ---- the sums over the vocabulary in their fast form, without a second tensor of the scores' size

_SCORES_PER_PIECE = 2**18
"""Scores in a piece on a CPU, so that it and what is computed from it stay in a core's cache; 64 times as many
elsewhere."""


class FusedVocabularyTerms(torch.autograd.Function):
    """`vocabulary_terms` with its gradient by hand: sums and gradients are computed in pieces of the rows.

    Scores (B, T, V) and words (B, T). With `reuse_scores` the gradient overwrites scores that nothing else reads.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, words: Tensor, reuse_scores: bool) -> tuple[Tensor, Tensor]:
        scores = scores.contiguous()
        pieces = zip(_pieces(scores, scores), _pieces(words, scores), strict=True)
        terms = zip(*(vocabulary_terms(*piece) for piece in pieces), strict=True)
        word_score, log_sum = (torch.cat(term).view(words.shape) for term in terms)
        ctx.save_for_backward(scores, words, log_sum)
        ctx.reuse_scores, ctx.scores_are_gone = reuse_scores, False
        return word_score, log_sum

    @staticmethod
    @first_order_only
    def backward(ctx: Any, d_word_score: Tensor, d_log_sum: Tensor) -> tuple[Tensor, None, None]:
        if ctx.scores_are_gone:
            raise RuntimeError(
                "the first backward overwrote the scores with their gradient: pass skip_logits=False to the model to "
                "call backward twice."
            )
        scores, words, log_sum = ctx.saved_tensors
        ctx.scores_are_gone = ctx.reuse_scores
        d_scores = scores if ctx.reuse_scores else torch.empty_like(scores)
        tensors = (d_scores, scores, words, log_sum, d_word_score, d_log_sum)
        for d_piece, piece, word, log_z, d_word, d_log_z in zip(*(_pieces(x, scores) for x in tensors), strict=True):
            # ∂ log Σ e^ψ / ∂ψ = softmax ψ, and ∂ψ(y)/∂ψ is one at y
            softmax = torch.sub(piece.to(log_z.dtype), log_z[:, None]).exp_()
            d_piece.copy_(softmax.mul_(d_log_z[:, None]).scatter_add_(-1, word[:, None], d_word[:, None]))
        return d_scores, None, None


def _pieces(tensor: Tensor, scores: Tensor) -> tuple[Tensor, ...]:
    """`tensor` (B, T, …), one row for each row of scores (B, T, V), split along those rows."""
    piece = _SCORES_PER_PIECE if scores.is_cpu else 64 * _SCORES_PER_PIECE
    return tensor.flatten(0, 1).split(max(1, piece // scores.shape[-1]))
