"""The order of the training pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch.utils.data import Sampler
from transformers.trainer_pt_utils import get_length_grouped_indices


class EpochSampler(Sampler[int]):
    """Shuffles by seed and epoch alone, so that a resumed run continues in the order of the interrupted one.

    Transformers' `LengthGroupedSampler` draws from the global generator, whose state at the start of an epoch is not
    part of a checkpoint.

    Args:
        size: number of pairs.
        get_epoch: returns the number of epochs that are finished.
        lengths: groups pairs of about the same length into batches of `batch_size`, if given.
    """

    def __init__(
        self,
        size: int,
        seed: int,
        get_epoch: Callable[[], int],
        lengths: Sequence[int] | None = None,
        batch_size: int = 1,
    ) -> None:
        self.size, self.seed, self.get_epoch = size, seed, get_epoch
        self.lengths, self.batch_size = lengths, batch_size

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self.seed + self.get_epoch())
        if self.lengths is None:
            return iter(torch.randperm(self.size, generator=generator).tolist())
        return iter(get_length_grouped_indices(self.lengths, self.batch_size, generator=generator))
