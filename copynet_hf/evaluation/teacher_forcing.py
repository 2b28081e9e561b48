"""Accuracy under teacher forcing, from the log-probabilities that the evaluation of the loss computes anyway.

A target whose every word is the most probable one, given the words before it, is what greedy search generates: its
accuracy is the exact match of greedy search, without a search. The exception is a text that an output has in other
tokens: for `Dark`, a word of the vocabulary, a model may write a copied `dark` in title case.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from ..model.vocabularies import IGNORED_LABEL

if TYPE_CHECKING:
    from transformers import EvalPrediction, PreTrainedModel

ACCURACIES = ("mean_accuracy", "sequence_accuracy", "token_accuracy")
Logits = Tensor | tuple[Tensor, ...]  # the latter with other outputs behind


def make_argmax(model: PreTrainedModel) -> Callable[[Logits, Tensor], Tensor]:
    """The `preprocess_logits_for_metrics` of a Trainer: the most probable word of each step, (B, T) extended ids.

    `<unk>` is left out where the model's generation config forbids it, as in a search.
    """
    forbidden = model.config.unknown_word_id if getattr(model.generation_config, "forbid_unk", False) else None

    def argmax(logits: Logits, labels: Tensor) -> Tensor:
        log_probs = logits[0] if isinstance(logits, tuple) else logits
        if forbidden is not None:
            log_probs = log_probs.index_fill(-1, labels.new_tensor([forbidden]), float("-inf"))
        return log_probs.argmax(-1)

    return argmax


def make_compute_accuracy(unk_token_id: int | None) -> Callable[[EvalPrediction], dict[str, float]]:
    """The `compute_metrics` of a Trainer with `make_argmax`, in percent.

    `sequence_accuracy` is the share of the targets whose words, the end symbol included, are all right, and
    `token_accuracy` that of right words. `mean_accuracy`, the mean of both, is a measure for choosing a checkpoint: it
    follows the first where whole targets can be right, and the second where they hardly ever are. UNK as a target
    counts as wrong, because no output holds the word that it stands for.
    """

    def compute_accuracy(prediction: EvalPrediction) -> dict[str, float]:
        labels = np.asarray(prediction.label_ids)
        return measure_accuracy(find_right_words(prediction.predictions, labels, unk_token_id), labels)

    return compute_accuracy


def find_right_words(predictions: object, labels: np.ndarray, unk_token_id: int | None) -> np.ndarray:
    """Where predictions (N, T) are the labels (N, T), as bool: true where there is no target, false at UNK."""
    is_right = (np.asarray(predictions) == labels) & (labels != unk_token_id)
    return np.logical_or(is_right, labels == IGNORED_LABEL)


def measure_accuracy(is_right: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """The scores of `make_compute_accuracy`, of what `find_right_words` returns for these labels."""
    is_target = labels != IGNORED_LABEL
    sequences = _percent(np.asarray(is_right[is_target.any(-1)].all(-1)))
    tokens = _percent(is_right[is_target])
    return dict(zip(ACCURACIES, ((sequences + tokens) / 2, sequences, tokens), strict=True))


def _percent(is_right: np.ndarray) -> float:
    return 100 * float(is_right.mean()) if is_right.size else 0.0
