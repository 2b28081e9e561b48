"""The model of a training run: new for the run's tokenizer, or loaded and checked against it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from datasets import IterableDataset
from transformers import PreTrainedTokenizerBase
from transformers.tokenization_utils_base import VERY_LARGE_INTEGER

from ..arguments import ModelArguments
from ..model.configuration_copynet import CopyNetConfig
from ..model.modeling_copynet import CopyNetForConditionalGeneration
from ..model.modeling_ensemble import CopyNetEnsemble
from ..model.text_encoder import load_encoder_config
from ..saved.loading import check_tokenizer, load_copynet
from ..saved.model_size import check_memory
from .alignment import align_vocabulary
from .dataset import Pairs
from .presets import DEFAULT_SIZES, find_preset
from .tokenizer_setup import STREAM_SAMPLE_SIZE
from .word_vectors import find_embedding_size, initialize_embeddings

# Config fields that may change when the training of a model continues. The weights of a coverage that is added are
# initialised to zero (See et al. 2017 train with coverage in a second stage).
CHANGEABLE_FIELDS = ("dropout", "use_fused", "use_coverage", "coverage_loss_weight", "gate_loss_weight", "gated_loss")


def build_model(
    tokenizer: PreTrainedTokenizerBase,
    model_args: ModelArguments,
    arguments: Mapping[str, Any],
    checkpoint: str | None = None,
) -> CopyNetForConditionalGeneration:
    """The model of `checkpoint`, the arguments' model, or a new one for the tokenizer.

    Args:
        arguments: the arguments that were given; those that are fields of the config must agree with a loaded model.

    Raises:
        ValueError: a field that contradicts the loaded model, or a tokenizer that does not belong to it.
    """
    fields = select_config_fields(arguments)
    name = checkpoint or model_args.model_name_or_path
    if name is None:
        return _build_new_model(tokenizer, model_args, fields)
    if model_args.encoder_name_or_path is not None and checkpoint is None:
        raise ValueError(
            f"--encoder_name_or_path is {model_args.encoder_name_or_path}, but --model_name_or_path gives the whole "
            "model already: leave one out"
        )
    if model_args.preset is not None and checkpoint is None:
        raise ValueError(
            f"--preset is {model_args.preset}, but --model_name_or_path gives the sizes already: leave one out"
        )
    for option in ("embedding_file", "embeddings_from_encoder"):
        if getattr(model_args, option) and checkpoint is None:
            raise ValueError(
                f"--{option} is {getattr(model_args, option)}, but --model_name_or_path gives the embeddings already: "
                "leave one out"
            )
    changes = {field: value for field, value in fields.items() if field in CHANGEABLE_FIELDS}
    # Half-precision weights would lose the small updates: mixed precision keeps them in float32.
    model = load_copynet(name, trust_remote_code=model_args.trust_remote_code, dtype=torch.float32, **changes)
    if isinstance(model, CopyNetEnsemble):
        raise ValueError(f"{name} is an ensemble: train each model by itself, and join them with copynet-hf ensemble")
    for field, value in fields.items():
        loaded = getattr(model.config, field, None)
        if loaded != value and not (isinstance(loaded, list) and set(loaded) == set(value)):
            raise ValueError(
                f"--{field} is {value}, but {loaded} in the model {name}: leave --{field} out, or train a new model"
            )
    check_tokenizer(model.config, tokenizer)
    return model


def _build_new_model(
    tokenizer: PreTrainedTokenizerBase, model_args: ModelArguments, fields: dict[str, Any]
) -> CopyNetForConditionalGeneration:
    """A new model for the tokenizer; if the arguments say so, over a pretrained encoder and with given embeddings."""
    encoder = model_args.encoder_name_or_path
    if encoder is not None:
        config = load_encoder_config(encoder, {})
        fields = {"encoder": config, "encoder_hidden_size": -(-config.hidden_size // 2)} | fields
    elif unused := {"encoder_pooling", "initial_state"} & fields.keys():
        raise ValueError(
            f"--{min(unused)} is for a Transformers encoder: give --encoder_name_or_path, or leave it out"
        )
    width = find_embedding_size(model_args)
    if width is not None and fields.setdefault("embedding_size", width) != width:
        raise ValueError(
            f"--embedding_size is {fields['embedding_size']}, but the given embeddings have {width} numbers: leave "
            "--embedding_size out"
        )
    model = CopyNetForConditionalGeneration(build_config(tokenizer, model_args.preset, fields))
    if encoder is not None:
        model.load_encoder(encoder, tokenizer)
    initialize_embeddings(model, tokenizer, model_args)
    return model


def build_config(
    tokenizer: PreTrainedTokenizerBase, preset: str | None = None, fields: Mapping[str, Any] | None = None
) -> CopyNetConfig:
    """The config of a new model: the preset or `DEFAULT_SIZES`, overridden by `fields`, then by the tokenizer.

    Raises:
        ValueError: a model that is too large for the memory.
    """
    make_config, sizes = (CopyNetConfig, DEFAULT_SIZES) if preset is None else (find_preset(preset)[0], {})
    config = make_config(**sizes | dict(fields or {}) | CopyNetConfig.tokenizer_fields(tokenizer))
    check_memory(config)
    return config


def select_config_fields(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that are fields of the config, without those that follow from the tokenizer."""
    argument_names = {entry.name for entry in dataclasses.fields(ModelArguments)}
    names = argument_names & {entry.name for entry in dataclasses.fields(CopyNetConfig)}
    return {name: value for name, value in arguments.items() if name in names and value is not None}


def set_alignments(model: CopyNetForConditionalGeneration, encoded: Pairs) -> None:
    """Computes the words that each source word allows (CoRe) from encoded training pairs, if the model has such."""
    config = model.config
    if model.alignments is None:
        return
    size = STREAM_SAMPLE_SIZE if isinstance(encoded, IterableDataset) else min(STREAM_SAMPLE_SIZE, len(encoded))
    special_ids = [config.pad_token_id, config.decoder_start_token_id, *config.end_token_ids, config.unk_token_id]
    table = align_vocabulary(
        [(row["input_ids"], row["labels"]) for row in encoded.take(size)],
        config.vocab_size,
        config.aligned_words,
        special_ids,
    )
    model.alignments.table.copy_(table)


def set_decoding(
    model: CopyNetForConditionalGeneration,
    num_beams: int,
    forbid_unk: bool,
    max_new_tokens: int,
) -> None:
    """Sets the defaults of `generate()`, which are saved with the model."""
    model.generation_config.num_beams = num_beams
    model.generation_config.forbid_unk = forbid_unk  # type: ignore[attr-defined]
    model.generation_config.max_new_tokens = max_new_tokens


def read_settings(model: CopyNetForConditionalGeneration, tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """The lengths and the decoding of a trained model, by the names of the arguments that set them."""
    settings = {
        "max_source_length": tokenizer.model_max_length if tokenizer.model_max_length < VERY_LARGE_INTEGER else None,
        "max_target_length": model.generation_config.max_new_tokens,
        "num_beams": model.generation_config.num_beams,
        "forbid_unk": getattr(model.generation_config, "forbid_unk", None),
    }
    return {name: value for name, value in settings.items() if value is not None}
