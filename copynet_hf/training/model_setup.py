"""Tokenizer and model of a run: trained or loaded, from what the arguments say, and made for each other."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from datasets import IterableDataset
from transformers import (
    PreTrainedTokenizerBase,
)

from ..arguments import ModelArguments
from ..inference.loading import check_tokenizer, load_copynet
from ..model.configuration_copynet import CopyNetConfig
from ..model.modeling_copynet import CopyNetForConditionalGeneration
from .alignment import align_vocabulary
from .dataset import Pairs
from .presets import DEFAULT_SIZES, find_preset
from .tokenizer_setup import STREAM_SAMPLE

# Config fields that a trained model may change: coverage comes second (See et al. 2017), its weights begin at zero.
CHANGEABLE = ("dropout", "use_fused", "use_coverage", "coverage_loss_weight", "gate_loss_weight", "gated_loss")


def build_model(
    tokenizer: PreTrainedTokenizerBase,
    sizes: ModelArguments,
    said: Mapping[str, Any],
    resumed: str | None = None,
) -> CopyNetForConditionalGeneration:
    """The model of the checkpoint `resumed`, the one that is named, or a new one for this tokenizer.

    Raises:
        ValueError: sizes that make no sense or that contradict the model, or a tokenizer of another model.
    """
    fields, name = config_fields(said), resumed or sizes.model_name_or_path
    if name is None:
        return CopyNetForConditionalGeneration(build_config(tokenizer, sizes.preset, fields))
    if sizes.preset is not None and resumed is None:
        raise ValueError("--preset is for a new model: leave it out, or --model_name_or_path")
    changed = {field: value for field, value in fields.items() if field in CHANGEABLE}
    model = load_copynet(name, **changed)
    for field, value in fields.items():
        held = getattr(model.config, field, None)
        if held != value and not (isinstance(held, list) and set(held) == set(value)):
            raise ValueError(
                f"--{field} {value}, but the model {name} has {held}: leave --{field} out, or train a new model"
            )
    check_tokenizer(model.config, tokenizer)
    return model


def set_alignments(model: CopyNetForConditionalGeneration, encoded: Pairs) -> None:
    """Which words each source word allows, learned from the training pairs, where the model wants it (CoRe)."""
    config = model.config
    if model.alignments is None:
        return
    sample = encoded.take(STREAM_SAMPLE if isinstance(encoded, IterableDataset) else min(STREAM_SAMPLE, len(encoded)))
    special = [config.pad_token_id, config.decoder_start_token_id, *config.end_token_ids]
    table = align_vocabulary(
        [(row["input_ids"], row["labels"]) for row in sample],
        config.vocab_size,
        config.aligned_words,
        [*special, config.unk_token_id],
    )
    model.alignments.table.copy_(table)


def set_decoding(
    model: CopyNetForConditionalGeneration, num_beams: int, forbid_unk: bool, max_new_tokens: int
) -> None:
    """How `generate()` searches from now on, and wherever the model is loaded."""
    model.generation_config.num_beams = num_beams
    model.generation_config.forbid_unk = forbid_unk  # type: ignore[attr-defined]
    model.generation_config.max_new_tokens = max_new_tokens


def build_config(
    tokenizer: PreTrainedTokenizerBase, preset: str | None = None, fields: Mapping[str, Any] | None = None
) -> CopyNetConfig:
    """The config of a new model: the preset's sizes or our own, `fields` over them, the rest from the tokenizer."""
    make, sizes = (CopyNetConfig, DEFAULT_SIZES) if preset is None else (find_preset(preset)[0], {})
    return make(**sizes | dict(fields or {}) | CopyNetConfig.tokenizer_fields(tokenizer))


def config_fields(said: Mapping[str, Any]) -> dict[str, Any]:
    """Those arguments that are fields of the config, but for what the tokenizer decides."""
    own = {entry.name for entry in dataclasses.fields(ModelArguments)}
    known = {entry.name for entry in dataclasses.fields(CopyNetConfig)}
    return {name: value for name, value in said.items() if name in own & known and value is not None}
