"""The Transformers models inside a CopyNet: the encoder, new from its config or loaded, and the decoder, whose layers
attend to the source and are of BERT's, BART's or T5's kind."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import Seq2SeqLMOutput
from transformers.models.auto.modeling_auto import MODEL_FOR_TEXT_ENCODING_MAPPING, MODEL_MAPPING

# The library's name of the cache, in arguments and outputs: `cache` from 5.24 on, `past_key_values` before.
CACHE_NAME = "cache" if "cache" in Seq2SeqLMOutput.__dataclass_fields__ else "past_key_values"
# Names of position embeddings.
POSITIONS = ("position_embeddings", "position_embedding", "embed_positions", "positions_embed", "wpe")
# What a decoder must take: embeddings of its words, and the source that its layers attend to.
_INPUTS = {"inputs_embeds", "encoder_hidden_states", "encoder_attention_mask", CACHE_NAME}
# Their attention keeps or returns its tensors in forms of their own.
_UNFIT = ("big_bird", "prophetnet")


# ---- the encoder


def build_text_encoder(config: PreTrainedConfig) -> PreTrainedModel:
    """A new encoder, in the default dtype.

    Raises:
        ValueError: Transformers has no encoder for the config.
    """
    encoder_class, options = _find_class(config)
    return _encoder_of(encoder_class._from_config(config, dtype=torch.get_default_dtype(), **options))


def load_encoder_config(name: str, options: Mapping[str, object]) -> PreTrainedConfig:
    """The config of the encoder of a folder or Hub name; `options` as for `load_text_encoder`."""
    names = ("revision", "token", "cache_dir", "subfolder", "trust_remote_code", "local_files_only")
    hub = {key: options[key] for key in names if key in options}
    return AutoConfig.from_pretrained(name, **hub)


def load_text_encoder(name: str, **options: Any) -> PreTrainedModel:
    """The encoder of a folder or Hub name, in float32 unless `options` has another dtype.

    Args:
        options: arguments of `from_pretrained`, such as `revision` and `token`.

    Raises:
        ValueError: Transformers has no encoder for it.
    """
    encoder_class, class_options = _find_class(load_encoder_config(name, options))
    model = encoder_class.from_pretrained(name, **{"dtype": torch.float32, **class_options, **options})
    encoder = _encoder_of(model)
    if Path(name).exists():
        encoder.config.name_or_path = Path(name).name  # it is saved, and the rest of the path is this machine's
    return encoder


def _find_class(config: PreTrainedConfig) -> tuple[type[PreTrainedModel], dict[str, bool]]:
    """The model's class, and the arguments that leave out its pooler, whose weights would get no gradients."""
    is_text = None not in (getattr(config, name, None) for name in ("hidden_size", "vocab_size"))
    for mapping in (MODEL_FOR_TEXT_ENCODING_MAPPING, MODEL_MAPPING):
        if type(config) in mapping and is_text:
            encoder_class: Any = mapping[type(config)]
            if isinstance(encoder_class, tuple):  # Funnel's first one returns a state for each piece
                encoder_class = encoder_class[0]
            takes_pooler = "add_pooling_layer" in inspect.signature(encoder_class).parameters
            return encoder_class, {"add_pooling_layer": False} if takes_pooler else {}
    raise ValueError(_refuse_encoder(config))


def _refuse_encoder(config: PreTrainedConfig) -> str:
    return (
        f"encoder has model_type {config.model_type!r}, for which Transformers has no encoder of texts: use another, "
        "such as bert, modernbert or t5"
    )


def _encoder_of(model: PreTrainedModel) -> PreTrainedModel:
    """The encoder of an encoder-decoder model such as BART; other models are encoders themselves, also UMT5's, whose
    config says otherwise.

    BigBird's has full attention. By blocks, what a text attends to depends on the padding of its batch, and the first
    short batch would switch the encoder to full attention for good.
    """
    is_whole = model.config.is_encoder_decoder and type(model.config) not in MODEL_FOR_TEXT_ENCODING_MAPPING
    encoder: Any = model.get_encoder() if is_whole else model
    if not hasattr(encoder, "config"):  # FSMT's
        raise ValueError(_refuse_encoder(model.config))
    if getattr(encoder, "attention_type", None) == "block_sparse":
        encoder.set_attention_type("original_full")
    return encoder


# ---- the decoder


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
        raise ValueError(_refuse_decoder(config))
    model_class: Any = MODEL_MAPPING[type(config)]
    options: dict[str, object] = {"attn_implementation": "eager"} if returns_attention else {}
    if "add_pooling_layer" in inspect.signature(model_class).parameters:
        options["add_pooling_layer"] = False
    model = model_class._from_config(config, dtype=torch.get_default_dtype(), **options)
    decoder: PreTrainedModel = model.get_decoder() if config.is_encoder_decoder else model
    if not inspect.signature(decoder.forward).parameters.keys() >= _INPUTS:
        raise ValueError(_refuse_decoder(config))
    return decoder


def _refuse_decoder(config: PreTrainedConfig) -> str:
    return (
        f"decoder has model_type {config.model_type!r}, for which Transformers has no decoder with attention to a "
        "source: use another, such as bert, bart or t5"
    )


# ---- both: embeddings, positions, masks


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


def find_max_positions(model: PreTrainedModel) -> int | None:
    """The number of positions for which an encoder or decoder has embeddings; None: no limit."""
    embeddings = _find_position_embeddings(model)
    if embeddings is None:
        return None
    # positions begin after an offset in BART, and after the padding index in RoBERTa
    limit = int(embeddings.num_embeddings - getattr(embeddings, "offset", _first_after_padding(embeddings)))
    return min(limit, getattr(model.config, "max_position_embeddings", limit))  # fewer in YOSO


def _find_position_embeddings(model: PreTrainedModel) -> nn.Embedding | None:
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding) and name.rpartition(".")[2] in POSITIONS:
            return module
    return None


def _first_after_padding(embeddings: nn.Embedding) -> int:
    return 0 if embeddings.padding_idx is None else embeddings.padding_idx + 1


def load_max_pieces(name: str) -> int | None:
    """The number of pieces that the encoder of a folder or Hub name reads, as far as its config says."""
    config = load_encoder_config(name, {})
    with torch.device("meta"):  # without weights
        positions = find_max_positions(build_text_encoder(config))
    return getattr(config, "max_position_embeddings", None) if positions is None else positions


def find_position_offset(model: PreTrainedModel) -> int | None:
    """The id of the first word's position: after that of padding in RoBERTa. None: `position_ids` are not taken."""
    if "position_ids" not in inspect.signature(model.forward).parameters:
        return None
    embeddings = _find_position_embeddings(model)
    return 0 if embeddings is None else _first_after_padding(embeddings)


def number_positions(first: int | None, words: Tensor, steps: int) -> dict[str, Tensor]:
    """`position_ids` (R or 1, steps) of the last steps out of words (R or 1, t + steps), bool and false on padding:
    their numbers among those that are no padding. Models that do not take them (`find_position_offset`) count padding.
    """
    return {} if first is None else {"position_ids": (words.cumsum(-1) - 1).clamp(min=0)[:, -steps:] + first}


def roll_rows(values: Tensor, shifts: Tensor) -> Tensor:
    """Values (B, S, …), each row moved to the left by its number of shifts (B,), from −S to S, around its ends, as by
    torch.roll."""
    rows, size = values.shape[:2]
    places = torch.arange(size, device=values.device) + shifts[:, None]
    places = places + size * ((places < 0).long() - (places >= size).long())  # ONNX has no remainder of a dynamic size
    return values[torch.arange(rows, device=values.device)[:, None], places]


def attend_to_some(mask: Tensor) -> Tensor:
    """The mask (B, S) bool, true at the first position of rows without any: softmax over nothing is not a number."""
    is_first = torch.arange(mask.shape[1], device=mask.device) == 0
    return mask | (is_first & ~mask.any(-1, keepdim=True))
