"""The sizes of a new model: the paper's presets, and the defaults."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from ..arguments import ModelArguments
from ..model.configuration_copynet import CopyNetConfig

# The paper's settings: the config and the segmenter.
PRESETS: dict[str, tuple[Callable[..., CopyNetConfig], str]] = {
    "synthetic": (CopyNetConfig.synthetic, "whitespace"),
    "lcsts_char": (CopyNetConfig.lcsts_char, "char"),
    "lcsts_word": (CopyNetConfig.lcsts_word, "jieba"),
}
# Without a preset: sizes for a few thousand pairs, fast on a CPU.
DEFAULT_SIZES: dict[str, Any] = {
    "embedding_size": 128,
    "hidden_size": 256,
    "encoder_hidden_size": 128,
    "attention_size": 128,
    "dropout": 0.3,
}
# The defaults that `copynet-hf train --help` shows for the fields of the config.
MODEL_DEFAULTS: dict[str, Any] = {
    entry.name: entry.default
    for entry in dataclasses.fields(CopyNetConfig)
    if entry.name in {argument.name for argument in dataclasses.fields(ModelArguments)}
    and entry.default is not dataclasses.MISSING
} | {
    **DEFAULT_SIZES,
    "selective_read": "True for copynet",
    "readout": "those of the mechanism",
    "copies_from": "question facts",
}


def find_preset(name: str) -> tuple[Callable[..., CopyNetConfig], str]:
    """The config class method and the segmenter of a preset.

    Raises:
        ValueError: no preset has this name.
    """
    if name not in PRESETS:
        raise ValueError(f"--preset is {name!r}: use one of {', '.join(PRESETS)}")
    return PRESETS[name]
