"""The sizes of a new model: the paper's presets, and the defaults."""

from __future__ import annotations

import dataclasses
from typing import Any

from ..arguments import ModelArguments, Values
from ..model.configuration_copynet import CopyNetConfig

# The paper's settings, class methods of the config, and their segmenters.
PRESET_SEGMENTERS = {"synthetic": "whitespace", "lcsts_char": "char", "lcsts_word": "jieba"}
# Without a preset: sizes for a few thousand pairs, fast on a CPU.
DEFAULT_SIZES: dict[str, float] = {
    "embedding_size": 128,
    "hidden_size": 256,
    "encoder_hidden_size": 128,
    "attention_size": 128,
    "dropout": 0.3,
}


def make_config(preset: str | None, fields: Values) -> CopyNetConfig:
    """The config of a preset, or of `DEFAULT_SIZES`, overridden by `fields`.

    Raises:
        ValueError: no preset has this name.
    """
    if preset is None:
        return CopyNetConfig(**{**DEFAULT_SIZES, **fields})
    if preset not in PRESET_SEGMENTERS:
        raise ValueError(f"--preset is {preset!r}: use one of {', '.join(PRESET_SEGMENTERS)}")
    config: CopyNetConfig = getattr(CopyNetConfig, preset)(**fields)
    return config


def select_config_fields(args: ModelArguments) -> dict[str, Any]:
    """The arguments that are fields of the config and were given."""
    names = {entry.name for entry in dataclasses.fields(CopyNetConfig)}
    given = {entry.name: getattr(args, entry.name) for entry in dataclasses.fields(ModelArguments)}
    return {name: value for name, value in given.items() if name in names and value is not None}
