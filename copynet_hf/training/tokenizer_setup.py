"""The tokenizer of a training run: loaded, or trained on the training pairs."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from datasets import IterableDataset
from transformers import PreTrainedTokenizerBase

from ..arguments import TokenizerArguments
from ..model.segmentation import CASES, CHAINED, Chains, get_segmenter, is_spelled, list_marks
from ..model.tokenization_copynet import CopyNetTokenizer
from ..saved.loading import load_tokenizer
from .dataset import Pairs

STREAM_SAMPLE_SIZE = 100_000  # pairs of a stream from which vocabulary, slots and alignments are computed


@dataclass(frozen=True)
class TokenizerSettings:
    """How a tokenizer is trained.

    Attributes:
        vocab_size: of which words that occur less than `min_frequency` times are no part.
        generated_count: how often a word counts that no copy can give: with `min_frequency`, it is always frequent
            enough.
        max_source_oov: slots for out-of-vocabulary words; None: as many as the sources need.
    """

    segmenter: str
    vocab_size: int
    min_frequency: int
    generated_count: int = 1
    max_source_oov: int | None = None


def load_given_tokenizer(
    name: str, args: TokenizerArguments | None, *, has_features: bool, trust_remote_code: bool = False
) -> PreTrainedTokenizerBase:
    """The tokenizer that a run starts from.

    Args:
        name: folder or Hub name of a tokenizer, a model or a checkpoint.
        args: those of a new tokenizer, which this one must have; None: they are not compared.
        has_features: whether the pairs have features.

    Raises:
        ValueError: a tokenizer without a padding or end symbol, one with features for pairs without, or arguments of a
            new tokenizer.
    """
    tokenizer = load_tokenizer(name, trust_remote_code=trust_remote_code)
    for field in () if args is None else dataclasses.fields(args):
        value = getattr(args, field.name)
        if field.name != "tokenizer_name" and value not in (field.default, getattr(tokenizer, field.name, None)):
            raise ValueError(
                f"--{field.name} is {value}, but the tokenizer of {name} is used as it is: leave --{field.name} out"
            )
    for token in ("pad_token", "eos_token"):
        if getattr(tokenizer, token) is None:
            raise ValueError(
                f"{token} of the tokenizer {name} is None: set it and save the tokenizer again, for example with "
                f"tokenizer.add_special_tokens({{{token!r}: '<{token.removesuffix('_token')}>'}})"
            )
    if getattr(tokenizer, "feature_vocab_size", 0) and not has_features:
        raise ValueError(f"{name} reads features: name their column with --features_column")
    return tokenizer


def train_tokenizer(
    train_pairs: Pairs, settings: TokenizerSettings, max_source_length: int, encoder_name: str | None = None
) -> CopyNetTokenizer:
    """A `CopyNetTokenizer` of the words in sources, targets and facts and of all features, with slots for the
    out-of-vocabulary words of every source.

    Args:
        encoder_name: folder or Hub name of a Transformers encoder whose pieces the tokenizer returns as well.
    """
    max_source_oov = settings.max_source_oov
    sample = train_pairs.take(STREAM_SAMPLE_SIZE) if isinstance(train_pairs, IterableDataset) else train_pairs
    tokenizer = CopyNetTokenizer.train_from_iterator(
        _list_words(sample, settings.segmenter, settings.generated_count),
        settings.vocab_size,
        segmenter=settings.segmenter,
        min_frequency=settings.min_frequency,
        max_source_oov=max_source_length if max_source_oov is None else max_source_oov,
        is_split_into_words=True,
        features=(row.get("features") for row in sample),
        chains=settings.segmenter in CHAINED,
        model_max_length=max_source_length,
    )
    if max_source_oov is not None and encoder_name is None:
        return tokenizer
    if max_source_oov is None:
        max_source_oov = _count_slots(tokenizer, sample, max_source_length)
    return CopyNetTokenizer(
        tokenizer.get_vocab(),
        segmenter=tokenizer.segmenter,
        max_source_oov=max_source_oov,
        encoder_tokenizer=encoder_name,
        model_max_length=tokenizer.model_max_length,
        feature_vocab=tokenizer.feature_vocab,
    )


def _list_words(pairs: Pairs, segmenter: str, generated_count: int) -> Iterator[list[str]]:
    """The words of each pair, to be counted: those of its target that source and facts cannot give, whole or as
    chains, `generated_count` times; one that the case of a source word gives, not at all."""
    split = get_segmenter(segmenter).split
    for row in pairs:
        source, target = split(row["text"]), split(row["summary"])
        source += [word for fact in row.get("facts") or () for word in fact]
        yield source
        copied = {*source}
        others = [word for word in target if word not in copied]
        if segmenter in CHAINED:
            cased = {change(word) for word in copied for change in CASES.values()}
            others = [word for word in others if word not in cased]
        yield [word for word in target if word in copied] + others
        if generated_count > 1:
            yield _list_generated(others, copied, segmenter) * (generated_count - 1)


def _list_generated(words: list[str], copied: Collection[str], segmenter: str) -> list[str]:
    """The words that would have to be spelled."""
    if segmenter not in CHAINED:
        return words
    chains = Chains(list_marks(Counter(words)))
    found = ((word, chains.find(word, copied)) for word in words)
    return [word for word, chain in found if chain is None or is_spelled(chain)]


def _count_slots(tokenizer: CopyNetTokenizer, sample: Pairs, max_source_length: int) -> int:
    """A quarter more slots than any source of the sample needs, because later sources may need more."""
    most = max(len(tokenizer.oov_words(row["text"], max_source_length, facts=row.get("facts"))) for row in sample)
    return min(max(16, math.ceil(1.25 * most)), max_source_length)
