"""The memory that a model takes, compared with that of the machine; full memory as an error of one line."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from contextlib import contextmanager

import psutil  # type: ignore[import-untyped]
import torch

from ..model.configuration_copynet import CopyNetConfig
from ..model.configuration_ensemble import CopyNetEnsembleConfig
from ..model.modeling_copynet import CopyNetForConditionalGeneration

MAX_LAYERS = 1_000  # of the encoder; PyTorch builds more only slowly
_BYTES_PER_VALUE = 4  # float32


def check_memory(config: CopyNetConfig | CopyNetEnsembleConfig, trains: bool = True) -> None:
    """Checks that a model fits into the memory of the machine and its accelerators, without building it.

    Args:
        trains: whether gradients and Adam's moments must fit as well.

    Raises:
        ValueError: it does not, and the message says what it would take; or it has too many layers to be built.
    """
    configs = config.members if isinstance(config, CopyNetEnsembleConfig) else [config]
    for each in configs:
        if each.num_hidden_layers > MAX_LAYERS:
            raise ValueError(f"num_hidden_layers is {each.num_hidden_layers}: use at most {MAX_LAYERS}")
    try:
        num_parameters = sum(map(_count_values, configs))
    except (RuntimeError, TypeError):  # a number of more than 64 bits
        raise ValueError("the model has more than 2**63 parameters: use smaller sizes") from None
    needed = num_parameters * _BYTES_PER_VALUE * (4 if trains else 1)
    available = psutil.virtual_memory().total
    if torch.cuda.is_available():
        available += sum(torch.cuda.get_device_properties(i).total_memory for i in range(torch.cuda.device_count()))
    if needed > available:
        largest = max(configs, key=lambda each: each.hidden_size * (each.hidden_size + each.vocab_size))
        raise ValueError(
            f"{'the training of ' if trains else 'a model of '}{num_parameters:,} parameters takes "
            f"{needed / 1e9:,.0f} GB, but the machine has "
            f"{available / 1e9:,.0f} GB: use smaller sizes (hidden_size is {largest.hidden_size:,}, embedding_size "
            f"{largest.embedding_size:,}, vocab_size {largest.vocab_size:,})"
        )


def _count_values(config: CopyNetConfig) -> int:
    """The number of values in parameters and buffers, without creating them."""
    with torch.device("meta"):
        model = CopyNetForConditionalGeneration(copy.deepcopy(config))
    return sum(values.numel() for values in (*model.parameters(), *model.buffers()))


@contextmanager
def explain_memory_errors() -> Iterator[None]:
    """Turns PyTorch's errors of memory that cannot be allocated into a ValueError."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        message = str(error)
        if not isinstance(error, (torch.OutOfMemoryError, MemoryError)) and "allocate" not in message:
            raise
        amount = re.search(r"allocate ([\d.]+ ?\w+)", message)
        reason = f" ({amount[1]} more were needed)" if amount else ""
        raise ValueError(f"the memory is full{reason}: use smaller sizes, batches or beams") from error
