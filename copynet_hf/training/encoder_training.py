"""The Transformers encoder below a model in training: its own learning rate, cached states where it is frozen."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..model.modeling_copynet import CopyNetForConditionalGeneration

Encode = Callable[[Tensor, Tensor], tuple[Tensor, object]]


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
