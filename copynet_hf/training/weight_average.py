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
        self.average: list[Tensor] = []
        self._trained: list[Tensor] | None = None  # while the model has the averaged weights
        self.checkpoint: Path | None = None  # an earlier one, from whose weights the next training goes on

    def on_train_begin(self, *_: object, **__: object) -> None:
        self.average = [weight.clone() for weight in self._weights()]
        file = None if self.checkpoint is None else self.checkpoint / TRAINED_WEIGHTS_FILE
        if file is not None and file.exists():  # else the earlier run had no average
            trained = load_file(file)
            self._set_weights([trained[name] for name, _ in self._named_parameters()])

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        decay = min(self.decay, (1 + state.global_step) / (10 + state.global_step))
        torch._foreach_lerp_(self.average, self._weights(), 1 - decay)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Within it, the model has the averaged weights."""
        self._trained = [weight.clone() for weight in self._weights()]
        self._set_weights(self.average)
        try:
            yield
        finally:
            self._set_weights(self._trained)
            self._trained = None

    def save(self, checkpoint: Path) -> None:
        """Writes the weights that are trained to a checkpoint, whose model has the averaged ones."""
        trained = self._weights() if self._trained is None else self._trained
        names = [name for name, _ in self._named_parameters()]
        save_file(dict(zip(names, trained, strict=True)), checkpoint / TRAINED_WEIGHTS_FILE)

    def keep(self) -> None:
        """Gives the model the averaged weights for good."""
        self._set_weights(self.average)

    def _named_parameters(self) -> list[tuple[str, nn.Parameter]]:
        return [(name, parameter) for name, parameter in self.model.named_parameters() if parameter.requires_grad]

    def _weights(self) -> list[Tensor]:
        return [parameter.detach() for _, parameter in self._named_parameters()]

    def _set_weights(self, weights: Sequence[Tensor]) -> None:
        torch._foreach_copy_(self._weights(), list(weights))
