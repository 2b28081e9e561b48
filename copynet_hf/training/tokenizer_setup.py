"""The tokenizer of a training run: loaded, or trained on the training pairs."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from itertools import islice

from datasets import IterableDataset
from transformers import PreTrainedTokenizerBase

from ..arguments import TokenizerArguments
from ..model.segmentation import CHAINED
from ..model.tokenization_copynet import CopyNetTokenizer
from ..saved.loading import load_tokenizer
from .dataset import Pairs
from .reach import has_initials
from .vocabulary import list_words

REACH_SAMPLE_SIZE = 1000  # pairs that show what targets are made of
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

    def train(*, initials: bool) -> CopyNetTokenizer:
        return CopyNetTokenizer.train_from_iterator(
            list_words(sample, settings.segmenter, settings.generated_count),
            settings.vocab_size,
            segmenter=settings.segmenter,
            min_frequency=settings.min_frequency,
            max_source_oov=max_source_length if max_source_oov is None else max_source_oov,
            is_split_into_words=True,
            features=(row.get("features") for row in sample),
            chains=settings.segmenter in CHAINED,
            initials=initials,
            model_max_length=max_source_length,
        )

    tokenizer = train(initials=False)
    if settings.segmenter in CHAINED and has_initials(tokenizer, list(islice(sample, REACH_SAMPLE_SIZE))):
        tokenizer = train(initials=True)
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


def _count_slots(tokenizer: CopyNetTokenizer, sample: Pairs, max_source_length: int) -> int:
    """A quarter more slots than any source of the sample needs, because later sources may need more."""
    most = max(len(tokenizer.oov_words(row["text"], max_source_length, facts=row.get("facts"))) for row in sample)
    return min(max(16, math.ceil(1.25 * most)), max_source_length)
