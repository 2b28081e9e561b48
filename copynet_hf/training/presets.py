"""The sizes of a new model: the paper's, and our own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..model.configuration_copynet import CopyNetConfig

# The paper's settings: the sizes and how its texts are cut into words.
PRESETS: dict[str, tuple[Callable[..., CopyNetConfig], str]] = {
    "synthetic": (CopyNetConfig.synthetic, "whitespace"),
    "lcsts_char": (CopyNetConfig.lcsts_char, "char"),
    "lcsts_word": (CopyNetConfig.lcsts_word, "jieba"),
}
# Without a preset: enough for a few thousand pairs, and quick on a CPU.
DEFAULT_SIZES: dict[str, Any] = {
    "embedding_size": 128,
    "hidden_size": 256,
    "encoder_hidden_size": 128,
    "attention_size": 128,
    "dropout": 0.2,
}


def find_preset(name: str) -> tuple[Callable[..., CopyNetConfig], str]:
    if name not in PRESETS:
        raise ValueError(f"unknown preset {name!r}: choose one of {', '.join(PRESETS)}")
    return PRESETS[name]
