"""The tokenizer of a training run: loaded, or trained on the run's own texts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import islice

from datasets import IterableDataset
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from ..arguments import DataArguments, ModelArguments, TokenizerArguments
from ..evaluation.metrics import mostly_cjk
from ..model.tokenization_copynet import CopyNetTokenizer
from .dataset import Pairs
from .presets import find_preset

STREAM_SAMPLE = 100_000  # pairs of a stream that make the vocabulary


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
        make, of_preset = find_preset(preset)
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
