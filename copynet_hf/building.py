"""Tokenizer and model of a run: trained or loaded, from what the arguments say, and made for each other."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, TypeAlias

from datasets import Dataset, IterableDataset
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedTokenizerBase,
)

from .alignment import align_vocabulary
from .arguments import DataArguments, ModelArguments, TokenizerArguments
from .configuration_copynet import CopyNetConfig
from .metrics import mostly_cjk
from .modeling_copynet import CopyNetForConditionalGeneration
from .tokenization_copynet import CopyNetTokenizer

Pairs: TypeAlias = Dataset | IterableDataset

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

STREAM_SAMPLE = 100_000  # pairs of a stream that make the vocabulary
# Config fields that a trained model may change: coverage comes second (See et al. 2017), its weights begin at zero.
CHANGEABLE = ("dropout", "use_fused", "use_coverage", "coverage_loss_weight", "gate_loss_weight", "gated_loss")


# ---- tokenizer


def build_tokenizer(
    pairs: Mapping[str, Pairs],
    words: TokenizerArguments,
    sizes: ModelArguments,
    data: DataArguments,
    resumed: str | None = None,
) -> PreTrainedTokenizerBase:
    """The tokenizer that is named, that comes with the model, or one trained on the training pairs' texts."""
    name = resumed or words.tokenizer_name or sizes.model_name_or_path
    if name is None:
        return train_tokenizer(pairs["train"], words, sizes.preset, data.max_source_length)
    tokenizer = AutoTokenizer.from_pretrained(name)
    for token in ("pad_token", "eos_token"):
        if getattr(tokenizer, token) is None:
            raise ValueError(
                f"the tokenizer {name} has no {token}: set it and save the tokenizer again, for example "
                f"tokenizer.add_special_tokens({{{token!r}: '<{token.removesuffix('_token')}>'}})"
            )
    tokenizer.model_max_length = data.max_source_length
    return tokenizer


def train_tokenizer(
    train: Pairs, words: TokenizerArguments, preset: str | None, max_source_length: int
) -> CopyNetTokenizer:
    """A `CopyNetTokenizer` of the words in sources and targets, with slots for the unseen ones of every source."""
    segmenter, vocab_size, slots = words.segmenter, words.vocab_size, words.max_source_oov
    if preset is not None:
        make, of_preset = _preset(preset)
        segmenter = of_preset if segmenter == "auto" else segmenter
        vocab_size = make().vocab_size if vocab_size is None else vocab_size
        slots = make().max_source_oov if slots is None else slots
    if segmenter == "auto":
        segmenter = guess_segmenter(row["text"] for row in islice(train, 1000))
    if vocab_size is None:
        vocab_size = 3_000 if segmenter == "char" else 10_000
    sample = train.take(STREAM_SAMPLE) if isinstance(train, IterableDataset) else train
    tokenizer = CopyNetTokenizer.train_from_iterator(
        (text for row in sample for text in (row["text"], row["summary"])),
        vocab_size,
        segmenter=segmenter,
        min_frequency=words.min_frequency,
        max_source_oov=max_source_length if slots is None else slots,
        more_words=(word for row in sample for fact in row.get("facts") or () for word in fact),
        model_max_length=max_source_length,
    )
    if slots is None:
        tokenizer = _with_slots(tokenizer, _slots_needed(tokenizer, sample, max_source_length))
    return tokenizer


def guess_segmenter(texts: Iterable[str]) -> str:
    """char when a third of the letters are Chinese or Japanese, else word_punct."""
    return "char" if mostly_cjk(texts) else "word_punct"


def _slots_needed(tokenizer: CopyNetTokenizer, sample: Pairs, max_source_length: int) -> int:
    """A quarter more than the source with most unseen words has: later texts hold more of them."""
    most = max(len(tokenizer.oov_words(row["text"], max_source_length, facts=row.get("facts"))) for row in sample)
    return min(max(16, math.ceil(1.25 * most)), max_source_length)


def _with_slots(tokenizer: CopyNetTokenizer, slots: int) -> CopyNetTokenizer:
    return CopyNetTokenizer(
        tokenizer.get_vocab(),
        segmenter=tokenizer.segmenter,
        max_source_oov=slots,
        model_max_length=tokenizer.model_max_length,
    )


def check_tokenizer(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase) -> None:
    """Raises ValueError unless model and tokenizer count words, slots and special symbols alike."""
    mend = "load the tokenizer that was saved with the model"
    if len(tokenizer) != config.vocab_size:
        raise ValueError(
            f"the tokenizer has {len(tokenizer)} words, the model vocab_size={config.vocab_size}: {mend}, or call "
            "model.resize_token_embeddings(len(tokenizer)) and train again"
        )
    slots = getattr(tokenizer, "max_source_oov", 0)
    if slots != getattr(config, "max_source_oov", 0):
        raise ValueError(
            f"the tokenizer has {slots} slots for unseen words, the model max_source_oov={config.max_source_oov}: "
            f"{mend}, or give both the same max_source_oov"
        )
    for name in ("pad_token_id", "bos_token_id", "eos_token_id", "unk_token_id"):
        own, of_model = getattr(tokenizer, name, None), getattr(config, name, None)
        accepted = of_model if isinstance(of_model, list) else [of_model]
        if own is not None and own not in accepted:
            raise ValueError(f"{name} is {own} for the tokenizer and {of_model} for the model: {mend}")


# ---- model


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


def load_copynet(name: str, **kwargs: Any) -> CopyNetForConditionalGeneration:
    """A saved CopyNet; ValueError for a model of another kind."""
    model = AutoModelForSeq2SeqLM.from_pretrained(name, **kwargs)
    if not isinstance(model, CopyNetForConditionalGeneration):
        raise ValueError(f"the model {name} is a {type(model).__name__}: give a CopyNet")
    return model


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
    make, sizes = (CopyNetConfig, DEFAULT_SIZES) if preset is None else (_preset(preset)[0], {})
    return make(**sizes | dict(fields or {}) | CopyNetConfig.tokenizer_fields(tokenizer))


def config_fields(said: Mapping[str, Any]) -> dict[str, Any]:
    """Those arguments that are fields of the config, but for what the tokenizer decides."""
    own = {entry.name for entry in dataclasses.fields(ModelArguments)}
    known = {entry.name for entry in dataclasses.fields(CopyNetConfig)}
    return {name: value for name, value in said.items() if name in own & known and value is not None}


def _preset(name: str) -> tuple[Callable[..., CopyNetConfig], str]:
    if name not in PRESETS:
        raise ValueError(f"unknown preset {name!r}: choose one of {', '.join(PRESETS)}")
    return PRESETS[name]
