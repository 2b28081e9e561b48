"""What the loss needs of the generate scores, without a second tensor of their size."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .copy_distribution import vocabulary_terms

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
    @once_differentiable
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


class FusedCrossEntropy(torch.autograd.Function):
    """Cross-entropy (B, T) of words (B, T), from logits (B, T, W) that are log-probabilities, normalised already.

    So the loss is −log p(y), and its gradient is cross-entropy's, p − [y], computed in pieces of the rows.
    """

    @staticmethod
    def forward(ctx: Any, log_probs: Tensor, words: Tensor) -> Tensor:
        ctx.save_for_backward(log_probs, words)
        return -log_probs.gather(-1, words[..., None])[..., 0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_losses: Tensor) -> tuple[Tensor, None]:
        log_probs, words = ctx.saved_tensors
        d_log_probs = torch.empty_like(log_probs)
        tensors = (d_log_probs, log_probs, words[..., None], d_losses[..., None])
        for d_piece, piece, word, d_loss in zip(*(_pieces(x, log_probs) for x in tensors), strict=True):
            torch.exp(piece, out=d_piece).mul_(d_loss).scatter_add_(-1, word, -d_loss)
        return d_log_probs, None


def _pieces(tensor: Tensor, scores: Tensor) -> tuple[Tensor, ...]:
    """`tensor` (B, T, …), one row for each row of scores (B, T, V), split along those rows."""
    piece = _SCORES_PER_PIECE if scores.is_cpu else 64 * _SCORES_PER_PIECE
    return tensor.flatten(0, 1).split(max(1, piece // scores.shape[-1]))
