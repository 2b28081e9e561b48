"""The tokenizer of a training run: loaded, or trained on the training pairs."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import islice
from typing import Any

from datasets import IterableDataset
from transformers import PreTrainedTokenizerBase

from ..arguments import DataArguments, ModelArguments, TokenizerArguments
from ..evaluation.compute_metrics import spells_words
from ..evaluation.metrics import mostly_cjk
from ..model.segmentation import get_segmenter
from ..model.tokenization_copynet import CopyNetTokenizer
from ..saved.loading import load_tokenizer
from .dataset import Pairs
from .presets import find_preset

logger = logging.getLogger(__name__)

STREAM_SAMPLE_SIZE = 100_000  # pairs of a stream from which vocabulary, slots and alignments are computed
MIN_WORD_FREQUENCY, MIN_WORD_FREQUENCY_OF_FEW, FEW_PAIRS = 5, 3, 500
# The share of the targets' words that have to be respelled for words to be spelled (0.37 in pig Latin, 0.05 where a
# third of the words has a typo, 0.002 in NL2Bash), and the characters that a source may then have on average.
RESPELLED_SHARE, MAX_SPELLED_LENGTH = 0.03, 200
# The share of unreachable words that is enough if they need not be alike, as in another script. In few pairs the words
# of the task itself are rare, so that there it says nothing.
UNREACHABLE_SHARE = 0.5
COMPUTED_TOKENIZER_DEFAULTS: dict[str, Any] = {  # as `copynet-hf train --help` shows them
    "vocab_size": "3000 characters or 10000 words",
    "min_frequency": "5, 3 or 1",
    "max_source_oov": "computed from the sources",
}


def build_tokenizer(
    pairs: Mapping[str, Pairs],
    tokenizer_args: TokenizerArguments,
    model_args: ModelArguments,
    data_args: DataArguments,
    checkpoint: str | None = None,
) -> PreTrainedTokenizerBase:
    """The tokenizer of `checkpoint`, of the arguments' tokenizer or model, else one trained on `pairs["train"]`.

    Raises:
        ValueError: a tokenizer without a padding or end symbol, one with features for pairs without, or arguments of a
            new tokenizer.
    """
    name = checkpoint or tokenizer_args.tokenizer_name or model_args.model_name_or_path
    if name is None:
        return train_tokenizer(
            pairs["train"],
            tokenizer_args,
            model_args.preset,
            data_args.max_source_length,
            model_args.encoder_name_or_path,
        )
    tokenizer = load_tokenizer(name, trust_remote_code=model_args.trust_remote_code)
    if checkpoint is None:
        _check_not_trained(tokenizer, tokenizer_args, name)
    for token in ("pad_token", "eos_token"):
        if getattr(tokenizer, token) is None:
            raise ValueError(
                f"{token} of the tokenizer {name} is None: set it and save the tokenizer again, for example with "
                f"tokenizer.add_special_tokens({{{token!r}: '<{token.removesuffix('_token')}>'}})"
            )
    if getattr(tokenizer, "feature_vocab_size", 0) and data_args.features_column is None:
        raise ValueError(f"{name} reads features: name their column with --features_column")
    return tokenizer


def _check_not_trained(tokenizer: PreTrainedTokenizerBase, tokenizer_args: TokenizerArguments, name: str) -> None:
    """Raises ValueError if there are arguments of a new tokenizer that the loaded one does not have anyway."""
    for field in dataclasses.fields(tokenizer_args):
        value = getattr(tokenizer_args, field.name)
        if field.name != "tokenizer_name" and value not in (field.default, getattr(tokenizer, field.name, None)):
            raise ValueError(
                f"--{field.name} is {value}, but the tokenizer of {name} is used as it is: leave --{field.name} out"
            )


def train_tokenizer(
    train_pairs: Pairs,
    tokenizer_args: TokenizerArguments,
    preset: str | None,
    max_source_length: int,
    encoder_name: str | None = None,
) -> CopyNetTokenizer:
    """A `CopyNetTokenizer` of the words in sources, targets and facts and of all features, with slots for the
    out-of-vocabulary words of every source. Arguments that are None or "auto" follow from the preset, else from the
    pairs.

    Args:
        encoder_name: folder or Hub name of a Transformers encoder whose pieces the tokenizer returns as well.
    """
    segmenter, vocab_size = tokenizer_args.segmenter, tokenizer_args.vocab_size
    max_source_oov = tokenizer_args.max_source_oov
    if preset is not None:
        make_config, preset_segmenter = find_preset(preset)
        preset_config = make_config()
        segmenter = preset_segmenter if segmenter == "auto" else segmenter
        vocab_size = preset_config.vocab_size if vocab_size is None else vocab_size
        max_source_oov = preset_config.max_source_oov if max_source_oov is None else max_source_oov
    texts = first_sources(train_pairs)
    if segmenter == "auto":
        segmenter = guess_segmenter(list(islice(train_pairs, 10_000)))
        logger.info("segmenter is %s, as guessed from the pairs (--segmenter selects another)", segmenter)
    if vocab_size is None:
        vocab_size = 3_000 if segmenter == "char" else 10_000
    min_frequency, weight = tokenizer_args.min_frequency, 1
    if min_frequency is None:
        min_frequency = _choose_min_frequency(train_pairs, spelled=spells_words(segmenter, texts))
        weight = min_frequency if _are_few(train_pairs) else 1  # what has to be generated is always frequent enough
    sample = train_pairs.take(STREAM_SAMPLE_SIZE) if isinstance(train_pairs, IterableDataset) else train_pairs
    tokenizer = CopyNetTokenizer.train_from_iterator(
        _list_words(sample, segmenter, weight),
        vocab_size,
        segmenter=segmenter,
        min_frequency=min_frequency,
        max_source_oov=max_source_length if max_source_oov is None else max_source_oov,
        is_split_into_words=True,
        features=(row.get("features") for row in sample),
        model_max_length=max_source_length,
    )
    if max_source_oov is not None and encoder_name is None:
        return tokenizer
    return CopyNetTokenizer(
        tokenizer.get_vocab(),
        segmenter=tokenizer.segmenter,
        max_source_oov=_count_slots(tokenizer, sample, max_source_length)
        if max_source_oov is None
        else max_source_oov,
        encoder_tokenizer=encoder_name,
        model_max_length=tokenizer.model_max_length,
        feature_vocab=tokenizer.feature_vocab,
    )


def _list_words(pairs: Pairs, segmenter: str, weight: int) -> Iterator[list[str]]:
    """The words of each pair, to be counted: those of its target that neither source nor facts have `weight` times."""
    split = get_segmenter(segmenter).split
    for row in pairs:
        source, target = split(row["text"]), split(row["summary"])
        facts = [word for fact in row.get("facts") or () for word in fact]
        yield source + facts + target
        can_be_copied = {*source, *facts}
        yield [word for word in target if word not in can_be_copied] * (weight - 1)


def _choose_min_frequency(pairs: Pairs | Sequence[Any], *, spelled: bool) -> int:
    """A rare letter is worth an embedding, a rare word is better copied. In few pairs the words of the task are rare
    as well; 3 because a word that is copied in one pair occurs twice."""
    if spelled:
        return 1
    return MIN_WORD_FREQUENCY_OF_FEW if _are_few(pairs) else MIN_WORD_FREQUENCY


def _are_few(pairs: Pairs | Sequence[Any]) -> bool:
    return not isinstance(pairs, IterableDataset) and len(pairs) < FEW_PAIRS


def first_sources(pairs: Pairs) -> list[str]:
    """The first 1,000 sources, which show what the others are like."""
    return [row["text"] for row in islice(pairs, 1000)]


def guess_segmenter(pairs: Sequence[Mapping[str, Any]]) -> str:
    """`char` if at least a third of the sources' letters are Chinese or Japanese, if most sources are single words, as
    in inflection, or if the targets respell words; else `word_punct`."""
    sources = [pair["text"] for pair in pairs]
    single_words = sum(len(source.split()) == 1 for source in sources)
    spelled = mostly_cjk(sources[:1000]) or 2 * single_words > len(sources) or respells_words(pairs)
    return "char" if spelled else "word_punct"


def respells_words(pairs: Sequence[Mapping[str, Any]]) -> bool:
    """Whether targets write words of their sources in another way, as in transliteration or the correction of typos:
    a model of words could neither copy nor generate them.

    Such a word is too rare for the vocabulary and not in its source. Most of them have to be much like a word there,
    or most words of the targets have to be such words. Of rare words in other texts, a tenth is like another by
    chance. Long texts are no candidates: a model of characters would read them slowly.
    """
    if sum(len(pair["text"]) for pair in pairs) > MAX_SPELLED_LENGTH * len(pairs):
        return False
    split = get_segmenter("word_punct").split
    words = [(split(pair["text"]), split(pair["summary"])) for pair in pairs]
    frequencies = Counter(word for pair in words for text in pair for word in text)
    min_frequency = _choose_min_frequency(pairs, spelled=False)
    num_words = num_rare = num_respelled = 0
    for source, target in words[:: math.ceil(len(words) / 1000) or 1]:
        rare = [word for word in target if frequencies[word] < min_frequency and word not in source]
        num_words += len(target)
        num_rare += len(rare)
        num_respelled += sum(_resembles_any(word, source) for word in rare)
    if not _are_few(pairs) and num_rare > UNREACHABLE_SHARE * num_words:
        return True
    return num_respelled > max(RESPELLED_SHARE * num_words, num_rare / 2)


def _resembles_any(word: str, others: Collection[str]) -> bool:
    """Whether most of the word's letters are in the same order in one of the others, in either case."""
    matcher = SequenceMatcher(b=word.casefold(), autojunk=False)
    for other in others:
        matcher.set_seq1(other.casefold())
        if min(map(len, (word, other))) > 1 and matcher.quick_ratio() >= 0.6 and matcher.ratio() >= 0.6:
            return True
    return False


def _count_slots(tokenizer: CopyNetTokenizer, sample: Pairs, max_source_length: int) -> int:
    """A quarter more slots than any source of the sample needs, because later sources may need more."""
    most = max(len(tokenizer.oov_words(row["text"], max_source_length, facts=row.get("facts"))) for row in sample)
    return min(max(16, math.ceil(1.25 * most)), max_source_length)
