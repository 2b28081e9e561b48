"""The decoder's inputs y_0 … y_{T-1} from the labels y_1 … y_T. Shapes: B rows, T target steps."""

from __future__ import annotations

import torch
from torch import Tensor

from .configuration_copynet import CopyNetBaseConfig
from .dispatch import has_values


def shift_right(labels: Tensor, config: CopyNetBaseConfig) -> Tensor:
    """y_0 … y_{T-1} (B, T): the start symbol at each row's first label, which −100 may precede; padding for −100."""
    first = (labels != -100).long().argmax(-1, keepdim=True)
    shifted = torch.nn.functional.pad(labels[:, :-1], (1, 0), value=-100)
    shifted = shifted.scatter(1, first, config.decoder_start_token_id)
    return shifted.masked_fill(shifted == -100, config.pad_token_id)


def mask_left_padding(decoder_input_ids: Tensor, config: CopyNetBaseConfig) -> Tensor | None:
    """(B, T) bool, false on padding before the start symbol, which may be the padding symbol; None: there is none."""
    is_padding = (decoder_input_ids == config.pad_token_id).cumprod(-1).bool()
    if config.decoder_start_token_id == config.pad_token_id:
        is_padding = torch.nn.functional.pad(is_padding[:, 1:], (0, 1))
    return ~is_padding if has_values(is_padding) and bool(is_padding.any()) else None


def check_pointed_at(missing: Tensor, labels: Tensor) -> None:
    """Raises ValueError for a target that is not in the source; not while tracing, which has no values."""
    if not has_values(missing) or not missing.any():
        return
    row, step = missing.nonzero()[0].tolist()
    raise ValueError(
        f"labels[{row}, {step}] is {int(labels[row, step])}, which is neither in the row's source nor the end symbol, "
        "and copy_mechanism='pointer' writes nothing else: leave such pairs out, or use 'copynet'."
    )
