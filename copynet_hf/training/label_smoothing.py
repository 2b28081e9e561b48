"""Label smoothing over the vocabulary, as Transformers' Trainer calls it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers.trainer_pt_utils import LabelSmoother

from ..model.copy_distribution import IMPOSSIBLE_LOG_PROB
from ..model.loss import average_losses


@dataclass(kw_only=True)
class VocabularyLabelSmoother(LabelSmoother):
    """(1 − ε) · −log p(y_t) + ε · −(1/V) Σ_v log p(v) over the V words (Szegedy et al. 2016, section 7).

    The base class also sums over the slots, of which those that a source does not own add a constant to the loss. As a
    target such a slot is UNK, as in the model's own loss: a model that does not copy owns none.
    In training, `CopyNetTrainer.compute_loss` lets ε fall to 0, with the updates and the share of wrong outputs.
    """

    vocab_size: int
    unk_token_id: int

    def __call__(
        self,
        model_output: dict[str, Tensor] | Sequence[Tensor],
        labels: Tensor,
        shift_labels: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Tensor:
        """The loss from log p (B, T, V + K), the model's `logits`, and labels (B, T), −100 where there is no target.

        Args:
            shift_labels: ignored: for models that are no seq2seq.
            num_items_in_batch: what the summed loss is divided by; None: the number of targets.
        """
        log_probs = model_output["logits"] if isinstance(model_output, dict) else model_output[0]
        is_target = labels != self.ignore_index
        found = log_probs.gather(-1, labels.masked_fill(~is_target, 0)[..., None])[..., 0]
        is_unowned = (labels >= self.vocab_size) & (found == IMPOSSIBLE_LOG_PROB)
        losses = -torch.where(is_unowned, log_probs[..., self.unk_token_id], found)
        uniform = -log_probs[..., : self.vocab_size].mean(-1)
        losses = (1 - self.epsilon) * losses + self.epsilon * uniform
        return average_losses(losses, is_target, num_items_in_batch)
