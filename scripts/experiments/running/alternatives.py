"""Ways to train that the defaults were compared with, and that `copynet-hf train` does not offer."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from copynet_hf import CopyNetForConditionalGeneration

NUM_SPECIAL_WORDS = 4  # of a trained tokenizer: padding, start, end, UNK


def _copy(weights: Sequence[Tensor], model: CopyNetForConditionalGeneration) -> None:
    with torch.no_grad():
        for parameter, weight in zip(model.parameters(), weights, strict=True):
            parameter.copy_(weight)


class DecayAtPlateau(TrainerCallback):
    """Keeps the learning rate until the accuracy has not risen for some evaluations; then loads the best weights,
    lowers the learning rate linearly to 0, and ends the training.

    Args:
        patience: evaluations without a rise.
        decay: the length of the decay, as a share of the updates before it.
    """

    WARMUP = 100  # updates

    def __init__(self, patience: int, decay: float) -> None:
        self.patience, self.decay = patience, decay
        self.best, self.num_worse = -1.0, 0
        self.best_weights: list[Tensor] = []
        self.decay_start: int | None = None

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self.decay_start is not None:
            return
        accuracy = kwargs["metrics"]["eval_accuracy"]
        self.num_worse += 1
        if accuracy > self.best:
            self.best, self.num_worse = accuracy, 0
            self.best_weights = [parameter.detach().clone() for parameter in kwargs["model"].parameters()]
        if self.num_worse == self.patience or state.global_step * (1 + self.decay) >= state.max_steps:
            _copy(self.best_weights, kwargs["model"])
            self.decay_start = state.global_step

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        for group in kwargs["optimizer"].param_groups:
            group["lr"] = args.learning_rate * self._factor(state.global_step)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self._factor(state.global_step) <= 0:
            control.should_training_stop = control.should_evaluate = control.should_save = True

    def _factor(self, step: int) -> float:
        if self.decay_start is None:
            return min(1.0, (step + 1) / self.WARMUP)
        return 1 - (step - self.decay_start) / max(1, self.decay * self.decay_start)


def drop_source_words(model: CopyNetForConditionalGeneration, probability: float) -> None:
    """Makes the encoder read words as UNK with this probability in training; they can still be copied."""
    encoder: Any = model.model.encoder
    forward, embed = encoder.forward, encoder.embed

    def embed_with_dropout(ids: Tensor) -> Tensor:
        is_dropped = torch.rand(ids.shape, device=ids.device) < probability
        return embed(ids.masked_fill(is_dropped, encoder.config.unk_token_id))

    def forward_with_dropout(*args: Any, **kwargs: Any) -> Any:
        encoder.embed = embed_with_dropout if encoder.training else embed  # the decoder calls `embed` as well
        try:
            return forward(*args, **kwargs)
        finally:
            encoder.embed = embed

    encoder.forward = forward_with_dropout


class CopiedWordAugmentation:
    """A data collator that replaces some of the words that a target has from its source, in both of them.

    Args:
        collate: collates the rows, changed while the model is in training mode.
        rows: the training rows, from which other words are drawn, as often as they are copied there.
        probability: that of a word to be replaced.
    """

    def __init__(
        self,
        collate: Callable[..., Any],
        model: CopyNetForConditionalGeneration,
        rows: Sequence[Mapping[str, Any]],
        probability: float,
    ) -> None:
        self.collate, self.model, self.probability = collate, model, probability
        self.random = random.Random(0)
        counts = Counter(word for row in rows for word in self._copied_words(row))
        self.words, self.counts = list(counts), list(counts.values())

    def _copied_words(self, row: Mapping[str, Any]) -> list[int]:
        shared = set(row["input_ids"]) & set(row["labels"])
        return sorted(word for word in shared if NUM_SPECIAL_WORDS <= word < self.model.config.vocab_size)

    def __call__(self, rows: Sequence[dict[str, Any]], *args: Any, **kwargs: Any) -> Any:
        return self.collate([self._change(row) if self.model.training else row for row in rows], *args, **kwargs)

    def _change(self, row: dict[str, Any]) -> dict[str, Any]:
        changes: dict[int, int] = {}
        for word in self._copied_words(row):
            if self.random.random() < self.probability:
                changes[word] = self.random.choices(self.words, self.counts)[0]
        changed = {name: [changes.get(index, index) for index in row[name]] for name in ("input_ids", "labels")}
        return {**row, **changed}
