"""The sizes of a new model: the paper's presets, and the defaults."""

from __future__ import annotations

from typing import Any

from transformers import M2M100Config

from ..arguments import ModelArguments, Values, select_fields
from ..model.configuration_copynet import COPY_MECHANISMS, CopyNetConfig

# The paper's settings, class methods of the config, and their segmenters.
PRESET_SEGMENTERS = {"synthetic": "whitespace", "lcsts_char": "char", "lcsts_word": "jieba"}
# Without a preset: sizes for a few thousand pairs, fast on a CPU.
DEFAULT_SIZES: dict[str, Any] = {
    "embedding_size": 128,
    "hidden_size": 256,
    "encoder_hidden_size": 128,
    "attention_size": 128,
    "encoder_residual": True,
    "tie_repetitions": True,
    "use_coverage": True,
    "dropout": 0.3,
}

# Of `--decoder transformer`: nearly as many weights as the GRU's. Embeddings are initialised as large as the sinusoids
# that are added to them; with a GRU's, a twelfth of that, the layers see where words are, but hardly which.
TRANSFORMER_INITIALIZER_RANGE = 1.0
TRANSFORMER_SIZES: dict[str, Any] = {"hidden_size": 128, "num_hidden_layers": 3, "dropout": 0.1}
HEADS, FEED_FORWARD_FACTOR = 4, 4


def make_config(preset: str | None, fields: Values) -> CopyNetConfig:
    """The config of a preset, or of `DEFAULT_SIZES`, overridden by `fields`, of which `decoder` may be a name."""
    if preset is not None and fields.get("decoder", "gru") != "gru":
        raise ValueError(f"--preset {preset} has the sizes of GRUs: leave out --preset, or --decoder")
    fields = name_decoder(fields)
    if preset is None:
        defaults = DEFAULT_SIZES if _can_cover(fields) else {**DEFAULT_SIZES, "use_coverage": False}
        return CopyNetConfig(**{**defaults, **fields})
    if preset not in PRESET_SEGMENTERS:
        raise ValueError(f"--preset is {preset!r}: use one of {', '.join(PRESET_SEGMENTERS)}")
    config: CopyNetConfig = getattr(CopyNetConfig, preset)(**fields)
    return config


def _can_cover(fields: Values) -> bool:
    """Whether the attention of a model with these fields can have coverage."""
    mechanism = COPY_MECHANISMS.get(str(fields.get("copy_mechanism", "copynet")))
    return mechanism is not None and "use_coverage" in mechanism.options and bool(fields.get("attention", True))


def name_decoder(fields: Values) -> Values:
    """The fields with the config of a Transformers decoder where `decoder` is "transformer", and of an encoder of its
    kind over words unless there is one already. M2M100's layers: they norm their inputs, and positions are sinusoids,
    of any length. With relative positions, as T5's, copying the word at a given place takes longer to learn.
    """
    name = fields.get("decoder")
    if not isinstance(name, str):
        return fields
    rest = {field: value for field, value in fields.items() if field != "decoder"}
    if name == "gru":
        return rest
    if name != "transformer":
        raise ValueError(f"--decoder is {name!r}: use gru or transformer")
    sizes = {field: rest.get(field, size) for field, size in TRANSFORMER_SIZES.items()}
    width, layers, dropout = sizes.values()
    if width % HEADS:
        raise ValueError(f"--hidden_size is {width}: use a multiple of {HEADS}, the number of heads")
    layer_config = M2M100Config(
        vocab_size=2,  # it is given embeddings
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=None,
        decoder_start_token_id=None,
        d_model=width,
        encoder_layers=layers,
        decoder_layers=layers,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        encoder_ffn_dim=FEED_FORWARD_FACTOR * width,
        decoder_ffn_dim=FEED_FORWARD_FACTOR * width,
        dropout=dropout,
        attention_dropout=dropout,
        encoder_layerdrop=0.0,
        decoder_layerdrop=0.0,
    )
    encoder = {"encoder": layer_config, "encoder_reads": "words", "encoder_hidden_size": width // 2}
    encoder |= dict.fromkeys(("encoder_residual", "tie_repetitions"), False)  # its layers do both themselves
    own = {
        "embedding_size": width,
        "decoder": layer_config,
        "initializer_range": TRANSFORMER_INITIALIZER_RANGE,
        "use_coverage": False,
    }
    return {**sizes, **own, **({} if "encoder" in rest else encoder), **rest}


def select_config_fields(args: ModelArguments) -> dict[str, Any]:
    """The arguments that are fields of the config and were given."""
    given = select_fields(CopyNetConfig, select_fields(ModelArguments, vars(args)))
    return {name: value for name, value in given.items() if value is not None}
