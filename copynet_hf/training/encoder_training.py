"""How the Transformers encoder below a model is trained: frozen, with its own learning rate, with cached states."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from transformers import TrainingArguments

from ..arguments import RunArguments
from ..model.modeling_copynet import CopyNetForConditionalGeneration

ENCODER_LEARNING_RATE = 2e-5
# Of all other weights. With the 0.002 of models with a GRU encoder, the decoder learns to do without the states of a
# Transformers encoder, which are not yet fit for it (docs/encoders.md).
DECODER_LEARNING_RATE = 5e-4

Encode = Callable[[Tensor, Tensor], tuple[Tensor, Any]]


def set_up_encoder(
    model: CopyNetForConditionalGeneration,
    run_args: RunArguments,
    training_args: TrainingArguments,
    *,
    has_learning_rate: bool,
) -> float | None:
    """Freezes the model's Transformers encoder if the arguments say so; returns its learning rate, None without it.

    Args:
        training_args: whose learning rate becomes `DECODER_LEARNING_RATE` if there is such an encoder.
        has_learning_rate: whether the learning rate was given, and stays.

    Raises:
        ValueError: arguments for an encoder that the model does not have, or that contradict each other.
    """
    rate = run_args.encoder_learning_rate
    given = {
        "freeze_encoder": run_args.freeze_encoder,
        "encoder_learning_rate": rate is not None,
        "cache_encoder_states": run_args.cache_encoder_states,
    }
    if model.config.encoder is None:
        for name, is_given in given.items():
            if is_given:
                raise ValueError(
                    f"--{name} is for a Transformers encoder: give --encoder_name_or_path, or leave it out"
                )
        return None
    if run_args.cache_encoder_states and not run_args.freeze_encoder:
        raise ValueError(
            "--cache_encoder_states keeps states that training would change: give --freeze_encoder as well"
        )
    if rate is not None and (run_args.freeze_encoder or rate <= 0):
        reason = "--freeze_encoder trains no encoder: leave one out" if run_args.freeze_encoder else "give more than 0"
        raise ValueError(f"--encoder_learning_rate is {rate:g}: {reason}")
    if not has_learning_rate:
        training_args.learning_rate = DECODER_LEARNING_RATE
    if run_args.freeze_encoder:
        model.freeze_encoder()
        return None
    return ENCODER_LEARNING_RATE if rate is None else rate


def split_parameter_groups(optimizer: Optimizer, names: dict[int, str], learning_rate: float) -> None:
    """Gives the weights of a Transformers encoder groups of their own, with their own learning rate.

    Args:
        names: the name of each weight, by its `id`.
    """
    for group in list(optimizer.param_groups):
        inside: list[Tensor] = []
        outside: list[Tensor] = []
        for weight in group["params"]:
            (inside if ".text_encoder." in names[id(weight)] else outside).append(weight)
        if inside:
            group["params"] = outside
            optimizer.add_param_group({**group, "params": inside, "lr": learning_rate})
    optimizer.param_groups[:] = [group for group in optimizer.param_groups if group["params"]]


class CachedStates:
    """Encodes each row of pieces once, and keeps its states in a file, which the system holds in memory if it can.

    Args:
        encode: `CopyNetTransformerEncoder.encode_pieces`, of a frozen encoder.
        file: is written and read, and holds nothing else.
        width, dtype: of the states. Under autocast an encoder may return another dtype; this one is kept.
    """

    def __init__(self, encode: Encode, file: IO[bytes], width: int, dtype: torch.dtype) -> None:
        self.encode, self.file, self.width, self.dtype = encode, file, width, dtype
        self._places: dict[bytes, int] = {}  # where the states of a row begin

    def __call__(self, pieces: Tensor, mask: Tensor, output_hidden_states: bool = False) -> tuple[Tensor, None]:
        """States (B, P, W) of pieces (B, P) with the mask (B, P) bool; zero where the mask is false."""
        rows = [(own[kept], kept) for own, kept in zip(pieces.cpu(), mask.cpu(), strict=True)]
        keys = [own.numpy().tobytes() + kept.nonzero().numpy().tobytes() for own, kept in rows]
        new = {key: row for row, key in enumerate(keys) if key not in self._places}
        if new:
            chosen = torch.tensor(list(new.values()), device=pieces.device)
            with torch.no_grad():
                encoded, _ = self.encode(pieces[chosen], mask[chosen])
            for (key, row), states in zip(new.items(), encoded.to("cpu", self.dtype), strict=True):
                self._places[key] = self.file.seek(0, 2)
                self.file.write(states[rows[row][1]].contiguous().view(torch.uint8).numpy().tobytes())
        states = torch.zeros(*pieces.shape, self.width, dtype=self.dtype)
        for row, key in enumerate(keys):
            kept = rows[row][1]
            self.file.seek(self._places[key])
            data = bytearray(self.file.read(int(kept.sum()) * self.width * self.dtype.itemsize))
            if data:
                states[row, kept] = torch.frombuffer(data, dtype=self.dtype).view(-1, self.width)
        return states.to(pieces.device), None


@contextmanager
def cached_encoder_states(model: CopyNetForConditionalGeneration, folder: Path) -> Iterator[None]:
    """Within it, the model's frozen Transformers encoder computes the states of each text once.

    Args:
        folder: where the file of states is, which is deleted in the end.
    """
    encoder = model.get_encoder()
    width, dtype = encoder.states_proj.in_features, encoder.text_encoder.dtype
    with tempfile.TemporaryFile(dir=folder) as file:
        encoder.encode_pieces = CachedStates(encoder.encode_pieces, file, width, dtype)
        try:
            yield
        finally:
            del encoder.encode_pieces
