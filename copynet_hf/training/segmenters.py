"""The segmenter and the rare words that suit the training pairs."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import islice

from datasets import IterableDataset

from ..arguments import TrainArguments
from ..evaluation.metrics import mostly_cjk
from ..model.segmentation import get_segmenter
from .dataset import Pairs
from .presets import PRESET_SEGMENTERS

logger = logging.getLogger(__name__)

MIN_WORD_FREQUENCY, MIN_WORD_FREQUENCY_OF_FEW, FEW_PAIRS = 5, 3, 500
# The share of the targets' words that have to be respelled for words to be spelled (0.37 in pig Latin, 0.05 where a
# third of the words has a typo, 0.002 in NL2Bash), and the characters that a source may then have on average.
RESPELLED_SHARE, MAX_SPELLED_LENGTH = 0.03, 200
# The share of unreachable words that is enough if they need not be alike, as in another script. In few pairs the words
# of the task itself are rare, so that there it says nothing.
UNREACHABLE_SHARE = 0.5


def choose_segmenter(args: TrainArguments, pairs: Pairs) -> str:
    """The segmenter of a new tokenizer: the given one, else that of the preset, else one that suits the pairs."""
    if args.segmenter != "auto":
        return args.segmenter
    if args.preset is not None:
        return PRESET_SEGMENTERS[args.preset]
    segmenter = guess_segmenter(list(islice(pairs, 10_000)))
    logger.info("segmenter is %s, as guessed from the pairs (--segmenter selects another)", segmenter)
    return segmenter


def choose_min_frequency(pairs: Pairs | Sequence[Mapping[str, str]], *, spelled: bool) -> int:
    """A rare letter is worth an embedding, a rare word is better copied. In few pairs the words of the task are rare
    as well; 3 because a word that is copied in one pair occurs twice."""
    if spelled:
        return 1
    return MIN_WORD_FREQUENCY_OF_FEW if are_few(pairs) else MIN_WORD_FREQUENCY


def are_few(pairs: Pairs | Sequence[Mapping[str, str]]) -> bool:
    return not isinstance(pairs, IterableDataset) and len(pairs) < FEW_PAIRS


def first_sources(pairs: Pairs) -> list[str]:
    """The first 1,000 sources, which show what the others are like."""
    return [row["text"] for row in islice(pairs, 1000)]


def guess_segmenter(pairs: Sequence[Mapping[str, str]]) -> str:
    """`char` if at least a third of the sources' letters are Chinese or Japanese, if most sources are single words, as
    in inflection, or if the targets respell words; else `word_punct`."""
    sources = [pair["text"] for pair in pairs]
    single_words = sum(len(source.split()) == 1 for source in sources)
    spelled = mostly_cjk(sources[:1000]) or 2 * single_words > len(sources) or respells_words(pairs)
    return "char" if spelled else "word_punct"


def respells_words(pairs: Sequence[Mapping[str, str]]) -> bool:
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
    min_frequency = choose_min_frequency(pairs, spelled=False)
    num_words = num_rare = num_respelled = 0
    for source, target in words[:: math.ceil(len(words) / 1000) or 1]:
        rare = [word for word in target if frequencies[word] < min_frequency and word not in source]
        num_words += len(target)
        num_rare += len(rare)
        num_respelled += sum(_resembles_any(word, source) for word in rare)
    if not are_few(pairs) and num_rare > UNREACHABLE_SHARE * num_words:
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
