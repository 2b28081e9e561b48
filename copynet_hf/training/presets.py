"""The sizes of a new model: the paper's presets, and the defaults."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from ..arguments import ModelArguments, Values
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


def find_preset(name: str) -> tuple[Callable[..., CopyNetConfig], str]:
    """The config class method and the segmenter of a preset.

    Raises:
        ValueError: no preset has this name.
    """
    if name not in PRESETS:
        raise ValueError(f"--preset is {name!r}: use one of {', '.join(PRESETS)}")
    return PRESETS[name]


def make_config(preset: str | None, fields: Values) -> CopyNetConfig:
    """The config of a preset, or of `DEFAULT_SIZES`, overridden by `fields`."""
    return CopyNetConfig(**{**DEFAULT_SIZES, **fields}) if preset is None else find_preset(preset)[0](**fields)


def select_config_fields(args: ModelArguments) -> dict[str, Any]:
    """The arguments that are fields of the config and were given."""
    names = {entry.name for entry in dataclasses.fields(CopyNetConfig)}
    given = {entry.name: getattr(args, entry.name) for entry in dataclasses.fields(args)}
    return {name: value for name, value in given.items() if name in names and value is not None}
