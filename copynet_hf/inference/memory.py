"""The memory that a training takes, compared with that of the machine."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from contextlib import contextmanager

import psutil  # type: ignore[import-untyped]
import torch

from ..model.configuration_copynet import CopyNetConfig
from ..model.modeling_copynet import CopyNetForConditionalGeneration


def check_memory(config: CopyNetConfig) -> None:
    """Checks that weights, gradients and Adam's moments fit into the memory of the machine and its accelerators.

    Raises:
        ValueError: they do not; the message says what they would take.
    """
    try:
        num_parameters = _count_values(config)
    except (RuntimeError, TypeError):  # a number of more than 64 bits
        raise ValueError("the model has more than 2**63 parameters: give smaller sizes") from None
    needed, available = 16 * num_parameters, psutil.virtual_memory().total  # four float32 values per parameter
    if torch.cuda.is_available():
        available += sum(torch.cuda.get_device_properties(i).total_memory for i in range(torch.cuda.device_count()))
    if needed > available:
        raise ValueError(
            f"the training of {num_parameters:,} parameters takes {needed / 1e9:,.0f} GB, but the machine has "
            f"{available / 1e9:,.0f} GB: give smaller sizes (hidden_size is {config.hidden_size:,}, embedding_size "
            f"{config.embedding_size:,}, vocab_size {config.vocab_size:,})"
        )


def _count_values(config: CopyNetConfig) -> int:
    """The number of values in parameters and buffers, without creating them; all layers above the second are alike."""
    small, counts = copy.deepcopy(config), {}
    for small.num_hidden_layers in {min(config.num_hidden_layers, limit) for limit in (2, 3)}:
        with torch.device("meta"):
            model = CopyNetForConditionalGeneration(small)
        counts[small.num_hidden_layers] = sum(values.numel() for values in (*model.parameters(), *model.buffers()))
    most = max(counts)
    return counts[most] + (config.num_hidden_layers - most) * (counts[most] - min(counts.values()))


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
        raise ValueError(f"the memory is full{reason}: give smaller sizes, batches or beams") from error
