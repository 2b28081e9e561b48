"""Guided attention: steps that generate a word learn from the beginning to attend to the source word it goes with.

Generated words depend on the source through c_t, Eq. 3. Until the attention has found where to look, which takes about
a thousand updates where sources are long, `AV` is as likely for `calle` as `CL` is. Copies are learned long
before, since they have scores of their own, Eq. 8. Which words go together is counted in the training pairs, by the
log-likelihood ratio (Dunning 1993). The attention is trained towards them, as towards the alignments of Mi et al. 2016
and Chen et al. 2016, with a weight that falls to 0, so that in the end it is the model's own.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, pairwise, product
from typing import Any, TypeAlias, TypeVar

import torch
from datasets import Dataset, IterableDataset
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from ..data.files import Row
from ..model.decoder import CopyNetDecoder
from ..model.modeling_copynet import CopyNetForConditionalGeneration
from ..model.segmentation import CHANGES, DIGITS, JOINER, is_spelled_letter
from ..model.tokenization_copynet import CopyNetTokenizer
from .dataset import spread

MAX_PAIRS = 5_000  # in which words are counted, spread over all pairs; with more there is no guide by default
GUIDED_ATTENTION = 0.2  # the weight by default
MIN_TOGETHER = 3  # pairs that have both words
MIN_SHARE = 0.2  # of the pairs with the source word: those that have both
SIGNIFICANCE = 0.01  # the expected number of words that go together by chance alone
GUIDED_UPDATES = 1_000  # in which the weight falls linearly to 0; of short runs the first half

_W = TypeVar("_W")
Word: TypeAlias = tuple[int, ...]
"""The ids of a word: one, several digits, or those of its letters, after the marks that change it."""


class AttentionGuide:
    """Where the steps that generate a word should attend.

    Args:
        tokenizer: of the pairs; words that it splits into letters (`char`) go with none.
        rows: the encoded training pairs, of which `input_ids` and `labels` are read.

    Attributes:
        partners: of each generated word, the source words that it goes with, the closest first.
    """

    def __init__(self, tokenizer: CopyNetTokenizer, rows: Iterable[Row]) -> None:
        words = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
        self.vocab_size = len(words)
        self.marks = {index for index, word in enumerate(words) if word in CHANGES}
        self.letters = {index for index, word in enumerate(words) if is_spelled_letter(word)}
        is_cut = tokenizer.segmenter in DIGITS
        self.digits = {index for index, word in enumerate(words) if is_cut and len(word) == 1 and word.isdecimal()}
        self.others = {index for index, word in enumerate(words) if word == JOINER or word.isspace()}
        self.others.update(tokenizer.all_special_ids)
        pairs = [] if tokenizer.segmenter == "char" else rows
        self.partners = find_partners(self._list_words(row["input_ids"], row["labels"]) for row in pairs)

    def find_places(self, source: Sequence[int], labels: Sequence[int]) -> list[tuple[int, int]]:
        """(t, j) for all steps t that should attend to the position j: to all of those with the closest partner that
        this source has."""
        generated = [
            (range(start, end), self.partners[word])
            for start, end in self._find_generated(source, labels)
            if (word := tuple(labels[start:end])) in self.partners
        ]
        if not generated:
            return []
        places: dict[Word, list[int]] = defaultdict(list)
        for start, end in self._split(source):
            places[tuple(source[start:end])] += range(start, end)
        found: list[tuple[int, int]] = []
        for steps, partners in generated:
            closest = next((places[word] for word in partners if word in places), [])
            found += product(steps, closest)
        return found

    def compute_loss(self, attention: Tensor, input_ids: Tensor, labels: Tensor) -> Tensor:
        """The sum of −log Σ_j a_tj, over the steps that are guided and for each the positions j of `find_places`.

        Args:
            attention: (B, T, S) a_tj. input_ids: (B, S). labels: (B, T), −100 where there is no target.
        """
        places = [
            (row, t, j)
            for row, pair in enumerate(zip(input_ids.tolist(), labels.tolist(), strict=True))
            for t, j in self.find_places(*pair)
        ]
        is_guided = torch.zeros_like(attention, dtype=torch.bool)
        if places:
            is_guided[torch.tensor(places, device=attention.device).unbind(1)] = True
        attended = (attention * is_guided).sum(-1)[is_guided.any(-1)]
        return -attended.float().clamp(min=torch.finfo(torch.float32).tiny).log().sum()

    def _list_words(self, source: Sequence[int], labels: Sequence[int]) -> tuple[set[Word], set[Word]]:
        """The words that a target generates, and those of its source's that are in the vocabulary."""
        generated = {tuple(labels[start:end]) for start, end in self._find_generated(source, labels)}
        words = {tuple(source[start:end]) for start, end in self._split(source)}
        return generated, set(filter(self._is_known, words))

    def _find_generated(self, source: Sequence[int], labels: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Start and end of each word of a target that is generated: in the vocabulary, or made of its digits or
        letters, and not in the source. A single digit has to be a number of its own there: longer ones have it by
        chance."""
        own = {tuple(source[start:end]) for start, end in self._split(source)}
        for start, end in self._split(labels):
            word = labels[start:end]
            content = [index for index in word if index not in self.marks]
            is_copied = tuple(content) in own or (len(content) > 1 and _contains(source, content))
            if content and self._is_known(word) and not is_copied:
                yield start, end

    def _split(self, ids: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Start and end of each word."""
        starts = [t for t in range(len(ids)) if t == 0 or not self._continues(ids[t - 1], ids[t])]
        return pairwise([*starts, len(ids)])

    def _continues(self, before: int, index: int) -> bool:
        """Whether a token belongs to the word of the one before it."""
        return before in self.marks or index in self.letters or (before in self.digits and index in self.digits)

    def _is_known(self, word: Sequence[int]) -> bool:
        """Whether all of a word is in the vocabulary, and none of it is a joiner, whitespace or a special token."""
        return all(0 <= index < self.vocab_size for index in word) and self.others.isdisjoint(word)


def build_guide(
    model: CopyNetForConditionalGeneration, tokenizer: PreTrainedTokenizerBase, rows: Dataset | IterableDataset
) -> AttentionGuide | None:
    """A guide for the model's attention, from its encoded training pairs; None where it is not that of Eq. 3, where no
    words go together, for other tokenizers, and for streams, which can be read only once."""
    decoder = model.model.decoder
    has_attention = isinstance(decoder, CopyNetDecoder) and decoder.attention is not None
    if not has_attention or not isinstance(tokenizer, CopyNetTokenizer) or isinstance(rows, IterableDataset):
        return None
    guide = AttentionGuide(tokenizer, spread(rows.select_columns(["input_ids", "labels"]), MAX_PAIRS))
    return guide if guide.partners else None


def choose_guided_attention(pairs: Dataset | IterableDataset) -> float:
    """The weight by default: on 13,084 pairs of SNIPS the guide cost two points of accuracy."""
    is_guided = not isinstance(pairs, IterableDataset) and len(pairs) <= MAX_PAIRS
    return GUIDED_ATTENTION if is_guided else 0.0


def find_partners(pairs: Iterable[tuple[Collection[_W], Collection[_W]]]) -> dict[_W, list[_W]]:
    """The source words that each word of targets goes with, the closest first: x goes with y if enough pairs that have
    x have y, and more than by chance, by the log-likelihood ratio. Of n ratios, chance makes about n exp(−G² / 2)
    larger than G².

    "Enough" leaves out words that call for one form among several, such as the name of a field before a Turkish case
    ending: which one depends on the word that it ends.

    Args:
        pairs: the words of each target, and those of its source, both without repetition.
    """
    rows_of: dict[_W, list[int]] = defaultdict(list)
    sources: list[Collection[_W]] = []
    for row, (target, source) in enumerate(pairs):
        sources.append(source)
        for word in target:
            rows_of[word].append(row)
    frequency = Counter(chain.from_iterable(sources))
    ratios: list[tuple[float, Any, Any]] = []
    for word, rows in rows_of.items():
        together = Counter(chain.from_iterable(sources[row] for row in rows))
        ratios += (
            (log_likelihood_ratio(count, len(rows), frequency[other], len(sources)), word, other)
            for other, count in together.items()
            if count >= MIN_TOGETHER and count > MIN_SHARE * frequency[other]
        )
    least = 2 * math.log(max(len(ratios), 1) / SIGNIFICANCE)
    partners: dict[_W, list[_W]] = defaultdict(list)
    for _, word, other in sorted((each for each in ratios if each[0] > least), reverse=True):
        partners[word].append(other)
    return dict(partners)


def log_likelihood_ratio(both: int, first: int, second: int, total: int) -> float:
    """G² = 2 Σ O ln(O / E), over the pairs that have both of two words, one, or neither, of how many pairs have both,
    the first, and the second (Dunning 1993); 0 if they are together less often than by chance."""
    if both * total <= first * second:
        return 0.0
    observed = (both, first - both, second - both, total - first - second + both)
    expected = (first * second, first * (total - second), (total - first) * second, (total - first) * (total - second))
    return 2 * sum(
        number * math.log(number * total / by_chance)
        for number, by_chance in zip(observed, expected, strict=True)
        if number
    )


def _contains(words: Sequence[int], part: list[int]) -> bool:
    """Whether the part is in the words, side by side."""
    size = len(part)
    return any(words[start] == part[0] and list(words[start : start + size]) == part for start in range(len(words)))
