"""An exponential moving average of the weights, evaluated and saved in place of the weights that are trained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

TRAINED_WEIGHTS_FILE = "trained_weights.safetensors"  # in a checkpoint, whose model has the averaged ones


class WeightAverage(TrainerCallback):
    """Averages the trained weights of a model over the updates of a training.

    After update n the average is d · average + (1 − d) · weights with d = min(decay, (1 + n) / (10 + n)), which is
    small in the beginning, so that the initial weights are soon forgotten.

    Args:
        model: the model that is trained.
        decay: above 0 and below 1.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model, self.decay = model, decay
        self.weights: dict[str, Tensor] = {}  # those that are trained
        self.average: list[Tensor] = []
        self._trained: list[Tensor] | None = None  # while the model has the averaged weights
        self.checkpoint: Path | None = None  # an earlier one, from whose weights the next training goes on

    def on_train_begin(self, *_: object, **__: object) -> None:
        parameters = self.model.named_parameters()
        self.weights = {name: weight.detach() for name, weight in parameters if weight.requires_grad}
        self.average = [weight.clone() for weight in self.weights.values()]
        file = None if self.checkpoint is None else self.checkpoint / TRAINED_WEIGHTS_FILE
        if file is not None and file.exists():  # else the earlier run had no average
            trained = load_file(file)
            self._set_weights([trained[name] for name in self.weights])

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        decay = min(self.decay, (1 + state.global_step) / (10 + state.global_step))
        torch._foreach_lerp_(self.average, [*self.weights.values()], 1 - decay)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Within it, the model has the averaged weights."""
        self._trained = [weight.clone() for weight in self.weights.values()]
        self._set_weights(self.average)
        try:
            yield
        finally:
            self._set_weights(self._trained)
            self._trained = None

    def save(self, checkpoint: Path) -> None:
        """Writes the weights that are trained to a checkpoint, whose model has the averaged ones."""
        trained = self.weights if self._trained is None else dict(zip(self.weights, self._trained, strict=True))
        save_file(trained, checkpoint / TRAINED_WEIGHTS_FILE)

    def keep(self) -> None:
        """Gives the model the averaged weights for good."""
        self._set_weights(self.average)

    def _set_weights(self, weights: Sequence[Tensor]) -> None:
        torch._foreach_copy_([*self.weights.values()], list(weights))
