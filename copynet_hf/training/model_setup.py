"""The model of a training run: new for the run's tokenizer, or loaded and checked against it."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from transformers import PreTrainedTokenizerBase

from ..arguments import ModelArguments, Values
from ..model.configuration_copynet import ENCODER_FIELDS, CopyNetConfig
from ..model.modeling_copynet import CopyNetForConditionalGeneration
from ..model.modeling_ensemble import CopyNetEnsemble
from ..model.text_models import load_encoder_config
from ..saved.loading import load_copynet
from ..saved.model_size import check_memory
from .alignment import align_vocabulary
from .dataset import Pairs, count_sources, spread
from .presets import make_config, select_config_fields
from .tokenizer_setup import STREAM_SAMPLE_SIZE
from .word_vectors import find_embedding_size, initialize_embeddings

# Config fields that may change when the training of a model continues. The weights of a coverage that is added are
# initialised to zero (See et al. 2017 train with coverage in a second stage).
CHANGEABLE_FIELDS = ("dropout", "use_fused", "use_coverage", "coverage_loss_weight", "gate_loss_weight", "gated_loss")

# Words that fewer than this share of the sources have are tied to their other mentions; as counted in so many.
RARE_SHARE, RARE_SAMPLE_SIZE = 0.05, 10_000

# Config fields of the copy head that is added to a pretrained encoder-decoder.
COPY_HEAD_FIELDS = {"copy_mechanism", "copy_layer", "copy_head", "gate_loss_weight", "gated_loss", "use_fused"}


def load_given_model(name: str, args: ModelArguments, *, is_checkpoint: bool) -> CopyNetForConditionalGeneration:
    """The model that a run starts from.

    Args:
        name: folder or Hub name of a model, or the checkpoint that the run resumes from.
        args: those that are fields of the config must agree with the model, but for `CHANGEABLE_FIELDS`.
    """
    gives = {
        "encoder_name_or_path": "the whole model",
        "seq2seq_name_or_path": "the whole model",
        "preset": "the sizes",
        "embedding_file": "the embeddings",
        "embeddings_from_encoder": "the embeddings",
    }
    for option, what in gives.items():
        if (value := getattr(args, option)) and not is_checkpoint:
            raise ValueError(f"--{option} is {value}, but --model_name_or_path gives {what} already: leave one out")
    fields = select_config_fields(args)
    changes = {field: value for field, value in fields.items() if field in CHANGEABLE_FIELDS}
    # Half-precision weights would lose the small updates: mixed precision keeps them in float32.
    model = load_copynet(name, trust_remote_code=args.trust_remote_code, dtype=torch.float32, **changes)
    if isinstance(model, CopyNetEnsemble):
        raise ValueError(f"{name} is an ensemble: train each model by itself, and join them with copynet-hf ensemble")
    for weight in model.parameters():  # views of the file, unaligned: products with them round differently
        weight.data = weight.data.clone()
    if "dropout" in changes and model.config.decoder is not None:
        raise ValueError(
            f"--dropout is {args.dropout}, but the layers of the Transformers decoder in {name} keep theirs: leave "
            "--dropout out, or train a new model"
        )
    for field, value in fields.items():
        loaded = getattr(model.config, field, None)
        if field == "decoder":
            loaded = "gru" if loaded is None else "transformer"
        if loaded != value and not (isinstance(loaded, list) and set(loaded) == set(value)):
            raise ValueError(
                f"--{field} is {value}, but {loaded} in the model {name}: leave --{field} out, or train a new model"
            )
    return model


def build_model(tokenizer: PreTrainedTokenizerBase, args: ModelArguments) -> CopyNetForConditionalGeneration:
    """A new model for the tokenizer; if the arguments say so, over a pretrained encoder and with given embeddings."""
    encoder, fields = args.encoder_name_or_path, select_config_fields(args)
    if args.seq2seq_name_or_path is not None:
        return add_copy_head(tokenizer, args, fields)
    if encoder is not None:
        config = load_encoder_config(encoder, {})
        width = -(-config.hidden_size // 2)
        own = {"encoder": config, "encoder_hidden_size": width, "encoder_residual": False, "tie_repetitions": False}
        fields = own | fields
    elif unused := set(ENCODER_FIELDS) & fields.keys():
        raise ValueError(
            f"--{min(unused)} is for a Transformers encoder: pass --encoder_name_or_path, or leave it out"
        )
    width = find_embedding_size(args)
    if width is not None and fields.setdefault("embedding_size", width) != width:
        raise ValueError(
            f"--embedding_size is {fields['embedding_size']}, but the given embeddings have {width} numbers: leave "
            "--embedding_size out"
        )
    model = CopyNetForConditionalGeneration(build_config(tokenizer, args.preset, fields))
    initialize_capitals(model, getattr(tokenizer, "letter_vocab", {}))
    if encoder is not None:
        model.load_encoder(encoder, tokenizer)
    if width is not None:
        initialize_embeddings(model, tokenizer, args)
    return model


def initialize_capitals(model: CopyNetForConditionalGeneration, letters: Mapping[str, int]) -> None:
    """Initialises the embedding of each capital as that of its small letter plus one vector, the same for all: a few
    words then show what capitals mean, and `KRAHN` is read much like `krahn`.

    Args:
        letters: the id of each letter that words outside the vocabulary are embedded by; empty: they are not.
    """
    encoder = model.get_encoder().letter_encoder
    if encoder is None:
        return
    embeddings = encoder.embed_letters.weight.data
    difference = embeddings.std() * torch.randn(embeddings.shape[1])
    for letter, index in letters.items():
        if letter.lower() != letter and letter.lower() in letters:
            embeddings[index] = embeddings[letters[letter.lower()]] + difference


def add_copy_head(
    tokenizer: PreTrainedTokenizerBase, args: ModelArguments, fields: Values
) -> CopyNetForConditionalGeneration:
    """The encoder-decoder of `--seq2seq_name_or_path` with a copy head."""
    name = str(args.seq2seq_name_or_path)
    options = ("encoder_name_or_path", "preset", "embedding_file", "embeddings_from_encoder")
    others = fields.keys() - COPY_HEAD_FIELDS | {option for option in options if getattr(args, option)}
    if others:
        raise ValueError(f"--{min(others)} is for a new model, and {name} has all but the copy head: leave it out")
    return CopyNetForConditionalGeneration.from_seq2seq_pretrained(name, tokenizer=tokenizer, **fields)


def build_config(
    tokenizer: PreTrainedTokenizerBase, preset: str | None = None, fields: Values | None = None
) -> CopyNetConfig:
    """The config of a new model: the preset or `DEFAULT_SIZES`, overridden by `fields`, then by the tokenizer."""
    config = make_config(preset, {**(fields or {}), **CopyNetConfig.tokenizer_fields(tokenizer)})
    check_memory(config)
    return config


def set_alignments(model: CopyNetForConditionalGeneration, encoded: Pairs) -> None:
    """Computes the words that each source word allows (CoRe) from encoded training pairs, if the model has such."""
    config = model.config
    if model.alignments is None:
        return
    special_ids = [config.pad_token_id, config.decoder_start_token_id, *config.end_token_ids, config.unk_token_id]
    table = align_vocabulary(
        [(row["input_ids"], row["labels"]) for row in spread(encoded, STREAM_SAMPLE_SIZE)],
        config.vocab_size,
        config.aligned_words,
        special_ids,
    )
    model.alignments.table.copy_(table)


def mark_rare_words(
    model: CopyNetForConditionalGeneration, tokenizer: PreTrainedTokenizerBase, encoded: Pairs
) -> None:
    """Marks the words of the vocabulary that few sources of encoded training pairs have, in `TiedRepetitions.is_rare`,
    if the model has it, and the tokenizer is one that splits texts into words. Words without letters are left out, as
    are characters: that two of a source are equal is mostly chance."""
    ties, segmenter = getattr(model.get_encoder(), "tied_repetitions", None), getattr(tokenizer, "segmenter", "char")
    if ties is None or segmenter == "char":
        return
    counts, num_sources = count_sources(encoded, RARE_SAMPLE_SIZE)
    words = tokenizer.convert_ids_to_tokens(list(range(len(ties.is_rare))))
    least = RARE_SHARE * num_sources
    is_rare = [counts[index] < least and any(map(str.isalpha, word)) for index, word in enumerate(words)]
    ties.is_rare.copy_(torch.tensor(is_rare))
    ties.is_rare[tokenizer.all_special_ids] = False  # unknown words are not one word
