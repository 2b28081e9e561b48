"""The Transformers decoder inside a CopyNet: the layers of BERT's, BART's or T5's kind, which attend to the source."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_MAPPING

from .text_encoder import POSITIONS

# What a decoder must take: embeddings of its words, and the source that its layers attend to.
_INPUTS = {"inputs_embeds", "encoder_hidden_states", "encoder_attention_mask", "past_key_values"}

# Their attention keeps or returns its tensors in forms of their own.
_UNFIT = ("big_bird", "prophetnet")


def build_text_decoder(config: PreTrainedConfig, returns_attention: bool = False) -> PreTrainedModel:
    """A new decoder, in the default dtype.

    Args:
        config: of an encoder-decoder such as BART or T5, whose decoder is taken, or of a model such as BERT that is a
            decoder with cross-attention.
        returns_attention: whether its attentions are read, which only the implementation "eager" returns.

    Raises:
        ValueError: Transformers has no decoder with cross-attention for the config.
    """
    if type(config) not in MODEL_MAPPING or config.model_type in _UNFIT:
        raise ValueError(_refusal(config))
    model_class: Any = MODEL_MAPPING[type(config)]
    options: dict[str, object] = {"attn_implementation": "eager"} if returns_attention else {}
    if "add_pooling_layer" in inspect.signature(model_class).parameters:
        options["add_pooling_layer"] = False
    model = model_class._from_config(config, dtype=torch.get_default_dtype(), **options)
    decoder: PreTrainedModel = model.get_decoder() if config.is_encoder_decoder else model
    if not inspect.signature(decoder.forward).parameters.keys() >= _INPUTS:
        raise ValueError(_refusal(config))
    return decoder


def detach_embeddings(model: PreTrainedModel) -> int:
    """Takes the embeddings of words away from an encoder or decoder that is given embeddings; returns their width."""
    embeddings = model.get_input_embeddings()
    assert isinstance(embeddings, nn.Embedding)
    model.set_input_embeddings(nn.Identity())
    model._tied_weights_keys, model.all_tied_weights_keys = {}, {}  # T5's encoder ties two names of them
    return embeddings.embedding_dim


def build_projection(size: int, width: int) -> nn.Module:
    """A linear layer where two widths differ, else nothing."""
    return nn.Identity() if size == width else nn.Linear(size, width)


def find_first_position(model: PreTrainedModel) -> int | None:
    """The id of the first word's position: after that of padding in RoBERTa. None: `position_ids` are not taken."""
    if "position_ids" not in inspect.signature(model.forward).parameters:
        return None
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding) and name.rpartition(".")[2] in POSITIONS:
            return 0 if module.padding_idx is None else module.padding_idx + 1
    return 0


def number_positions(first: int | None, words: Tensor, steps: int) -> dict[str, Tensor]:
    """`position_ids` (R or 1, steps) of the last steps out of words (R or 1, t + steps), bool and false on padding:
    their numbers among those that are no padding. Models that do not take them (`find_first_position`) count padding.
    """
    return {} if first is None else {"position_ids": (words.cumsum(-1) - 1).clamp(min=0)[:, -steps:] + first}


def _refusal(config: PreTrainedConfig) -> str:
    return (
        f"decoder has model_type {config.model_type!r}, for which Transformers has no decoder with attention to a "
        "source: use another, such as bert, bart or t5"
    )
