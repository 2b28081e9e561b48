"""A source: a text as the model reads it, and the way back from the ids of an output to words.

A source word outside the vocabulary gets, within its row, the extended id `len(tokenizer) + k`, where k counts such
words in order of first appearance: the word owns slot k. `ExtendedVocabulary.encode_sources` gives each text its
`Source`, which tokenizers only pad and batch; `Source.spell` looks up the words of ids. Nothing here needs torch or
Transformers, so `CopyNetTokenizer` and the server's tokenizer share it. web/tokenizer.js is a port.

Shapes: S positions of a source, F features, P pieces.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate, repeat
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, cast

from .chains import Chains
from .neighbours import Neighbours
from .segmentation import CHAINED, MARKS, SECOND, SEGMENTERS, Span, find_spans, space_words
from .vocabularies import (
    BOUNDARY,
    MAX_LETTERS_OF_WORD,
    NUM_SPECIAL_FEATURES,
    NUM_SPECIAL_LETTERS,
    UNKNOWN_LETTER,
    Text,
    check_text,
    find_feature_ids,
    fold_unknown_whitespace,
)

_T = TypeVar("_T")
UNK = "<unk>"  # where the tokenizer has no unknown word

Fact = Sequence[str]
"""Subject, property and object, a word each."""


class Speller(Protocol):
    """What is used of a tokenizer, of this package or of Transformers, to spell ids."""

    @property
    def all_special_ids(self) -> list[int]: ...
    @property
    def pad_token_id(self) -> int | None: ...
    @property
    def bos_token_id(self) -> int | None: ...
    @property
    def eos_token_id(self) -> int | None: ...
    @property
    def unk_token_id(self) -> int | None: ...

    def __hash__(self) -> int: ...
    def __len__(self) -> int: ...
    def convert_ids_to_tokens(self, index: int, /) -> Any: ...
    def convert_tokens_to_string(self, tokens: list[str], /) -> str: ...


class Pieces(NamedTuple):
    """A source in pieces: P ids, and for each the position of its word among S, −1 for special pieces."""

    ids: list[int]
    word_index: list[int]


@dataclass(slots=True)
class Source:
    """A text as the model reads it: its words after truncation, then those of its facts.

    tokenizer: whose ids these are.
    text: as it was passed to the tokenizer.
    words: S words as the vocabulary has them; of a tokenizer without segmenter as they are in the text, "" for special
        tokens.
    ids: S ids.
    slots: the extended id of each word that owns a slot, in the order of the slots.
    token_type_ids: S times 0 for a word of the text, 1, 2, 3 for the parts of each fact; None: encoded without facts.
    feature_ids: F ids; None: encoded without features.
    letter_ids: of the words that own slots (`vocabularies.py`); None: encoded without letters.
    pieces: for a Transformers encoder.
    is_truncated: whether the text has more words, or text and facts have more pieces than the encoder reads.
    found: where a fast tokenizer of Transformers found each word; None: of another tokenizer.
    """

    tokenizer: Speller
    text: Text
    words: list[str]
    ids: list[int]
    slots: dict[str, int] = field(default_factory=dict)
    token_type_ids: list[int] | None = None
    feature_ids: list[int] | None = None
    letter_ids: list[int] | None = None
    pieces: Pieces | None = None
    is_truncated: bool = False
    found: Sequence[Span] | None = None

    @classmethod
    def of_ids(cls, tokenizer: Speller, text: str, ids: list[int], found: Sequence[Span] | None = None) -> Source:
        """The source that another tokenizer encoded, with its `offset_mapping` if it has one."""
        source, skipped = cls(tokenizer, text, [], ids, found=found), skipped_ids(tokenizer)
        words = iter(add_spaces(tokenizer, source.spell(ids, skipped)))
        source.words = ["" if index in skipped else next(words).strip() for index in ids]
        return source

    @property
    def oov_words(self) -> list[str]:
        """The words that own slots: word k has the id `len(tokenizer) + k`."""
        return list(self.slots)

    @property
    def text_length(self) -> int:
        """The number of words of the text; those of the facts follow."""
        return len(self.words) if self.token_type_ids is None else self.token_type_ids.count(0)

    @property
    def is_blank(self) -> bool:
        """Whether the text has no word, or only spaces."""
        return not any(map(str.strip, self.words[: self.text_length]))

    @property
    def surfaces(self) -> list[str]:
        """Each of the S words as it is in the text, without the segmenter's marks."""
        if getattr(self.tokenizer, "segmenter", None) is None:
            return self.words
        join = self.tokenizer.convert_tokens_to_string
        return [word if word.isspace() else join([word]).strip() for word in self.words]

    @property
    def offsets(self) -> list[Span | None]:
        """Start and end of each of the S words in the text, in characters, without the spaces before a word.

        None for the words of facts, for marks and special tokens, and where the tokenizer got the text as a list of
        words or, if it is not a fast one, changed the word.
        """
        if not isinstance(self.text, str):
            return [None] * len(self.words)
        if self.found is not None:
            skipped = skipped_ids(self.tokenizer)
            return _trim_spans(self.text, self.words, self.found, [index in skipped for index in self.ids])
        words = self.surfaces[: self.text_length]
        if not (self.is_truncated and getattr(self.tokenizer, "truncation_side", "right") == "left"):
            spans = find_spans(self.text, words)
        else:  # the words of the end are found from the end
            length = len(self.text)
            backwards = find_spans(self.text[::-1], [word[::-1] for word in reversed(words)])
            spans = [span and (length - span[1], length - span[0]) for span in reversed(backwards)]
        return [*spans, *[None] * (len(self.words) - len(words))]

    def ids_of(self, words: Iterable[str]) -> list[list[int]]:
        """The ids of each word or text, as the outputs of this source can hold it: for `bad_words_ids`, or for the ids
        that a `prefix_allowed_tokens_fn` returns. A slot holds another word in another source.

        What neither vocabulary nor source have is left out.
        """
        assert isinstance(self.tokenizer, ExtendedVocabulary)
        found = (self.tokenizer.encode_target(word, self) for word in words)
        return [ids for ids in found if ids and self.tokenizer.unk_token_id not in ids]

    def spell(self, ids: Iterable[int], skipped: Collection[int] = ()) -> list[str]:
        """The word of each id that is not skipped; the unknown word for an id that has none in this source."""
        first, unk, find_word = len(self.tokenizer), self.tokenizer.unk_token_id, self.tokenizer.convert_ids_to_tokens
        if isinstance(self.tokenizer, ExtendedVocabulary):
            find_word = self.tokenizer._words.__getitem__  # the same, in less time
        unknown = UNK if unk is None else find_word(unk)
        owned = {index: word for word, index in self.slots.items()}
        return [
            find_word(index) if 0 <= index < first else owned.get(index, unknown)
            for index in ids
            if index not in skipped
        ]


def stack_sources(sources: Sequence[Source]) -> dict[str, list[list[int]]]:
    """The model's inputs, not padded: `input_ids`, and what else the sources were encoded with."""
    fields: dict[str, list[list[int]]] = {"input_ids": [source.ids for source in sources]}
    if not sources:
        return fields
    for name in ("token_type_ids", "feature_ids", "letter_ids"):
        if getattr(sources[0], name) is not None:
            fields[name] = [getattr(source, name) for source in sources]
    if sources[0].pieces is not None:
        pieces = [source.pieces for source in sources if source.pieces is not None]
        fields["encoder_input_ids"] = [each.ids for each in pieces]
        fields["encoder_attention_mask"] = [[1] * len(each.ids) for each in pieces]
        fields["word_index"] = [each.word_index for each in pieces]
    return fields


def pad_rows(rows: Sequence[Sequence[_T]], value: _T, width: int = 0, side: str = "right") -> list[list[_T]]:
    """The rows filled up to the longest, or to `width` if that is more."""
    width = max([width, *map(len, rows)])
    fills = ([value] * (width - len(row)) for row in rows)
    return [[*fill, *row] if side == "left" else [*row, *fill] for row, fill in zip(rows, fills, strict=True)]


class ExtendedVocabulary:
    """A vocabulary of words and `max_source_oov` slots: the base class of tokenizers with extended ids.

    A subclass sets the attributes below, of which `_ids` and `_words` are the id of each word and the word of each id,
    and defines `len()`, the number of words and the first slot.
    """

    segmenter: str
    max_source_oov: int
    truncation_side: str
    split_special_tokens: bool
    unk_token_id: int
    all_special_tokens: list[str]
    feature_vocab: dict[str, int]
    letter_vocab: dict[str, int]
    fold_whitespace: bool
    _case_variants: dict[str, int]  # of `find_case_variants`; empty: words are not read in another case
    _ids: dict[str, int]
    _words: dict[int, str]

    if TYPE_CHECKING:

        def __len__(self) -> int: ...

    @property
    def feature_vocab_size(self) -> int:
        """The number of feature ids, with those of padding and the unknown feature; 0 without features."""
        return len(self.feature_vocab) + NUM_SPECIAL_FEATURES if self.feature_vocab else 0

    @property
    def letter_vocab_size(self) -> int:
        """The number of letter ids, with those of boundaries and the unknown letter; 0 without letters."""
        return len(self.letter_vocab) + NUM_SPECIAL_LETTERS if self.letter_vocab else 0

    def encode_source(
        self,
        text: Text,
        facts: Sequence[Fact] | None = None,
        features: Sequence[str] | None = None,
        max_length: int | None = None,
        is_split_into_words: bool = False,
    ) -> Source:
        """One source; see `encode_sources`."""
        all_facts, all_features = None if facts is None else [facts], None if features is None else [features]
        return self.encode_sources([text], all_facts, all_features, max_length, is_split_into_words)[0]

    def encode_sources(
        self,
        texts: Sequence[Text],
        facts: Sequence[Sequence[Fact] | None] | None = None,
        features: Sequence[Sequence[str] | None] | None = None,
        max_length: int | None = None,
        is_split_into_words: bool = False,
    ) -> list[Source]:
        """The sources of texts with their facts and features, not padded.

        Args:
            texts: texts, or with `is_split_into_words` lists of words.
            facts: for each text its triples of words or None, which follow the words of the text in `ids`, but get
                their slots first; None: encoded without facts.
            features: for each text its features or None; None: encoded without features.
            max_length: the number of words to which a text is truncated, with its facts, which are not truncated.

        Raises:
            TypeError: a text is not a string, or not a list of words.
            ValueError: `max_length` is less than 1 or leaves no word of a text, the numbers of texts, facts and
                features differ, a fact or feature is something else, or there are features and the tokenizer has none.
        """
        check_length("max_length", max_length)
        if features is not None and not self.feature_vocab:
            raise ValueError(
                "features are given, but the tokenizer has none: leave them out, or train a new model with them "
                "(--features_column)"
            )
        for name, column in (("facts", facts), ("features", features)):
            if column is not None and len(column) != len(texts):
                raise ValueError(f"{name} has {len(column)} rows, text {len(texts)}: they must match")
        special = self._special_words()
        sources: list[Source] = []
        for row, text in enumerate(texts):
            check_text(text, f"text[{row}]", is_split_into_words)
            fact_words = [] if facts is None else flatten_facts(facts[row], f"facts[{row}]")
            all_words = self._split(self._fold(text))
            words = self._truncate(all_words, max_length, len(fact_words))
            slots: dict[str, int] = {}
            # Facts get the first slots, which then do not depend on the truncation of the words.
            fact_ids = self._find_ids(fact_words, special, slots, self.max_source_oov) if fact_words else []
            source = Source(
                self,  # type: ignore[arg-type]  # the subclasses spell
                text,
                words + fact_words if fact_words else words,
                self._find_ids(words, special, slots, self.max_source_oov) + fact_ids,
                slots,
                is_truncated=len(words) < len(all_words),
            )
            if facts is not None:
                source.token_type_ids = [0] * len(words) + [1, 2, 3] * (len(fact_words) // 3)
            if features is not None:
                source.feature_ids = find_feature_ids(features[row], f"features[{row}]", self.feature_vocab)
            if self.letter_vocab:
                source.letter_ids = self.find_letter_ids(slots)
            sources.append(source)
        return sources

    def find_letter_ids(self, words: Iterable[str]) -> list[int]:
        """The `letter_ids` of these words (`vocabularies.py`), with at most `MAX_LETTERS_OF_WORD` letters of each. One
        of the vocabulary is no variant of itself."""
        ids, first, half = list[int](), self.letter_vocab_size, MAX_LETTERS_OF_WORD // 2
        for word in words:
            letters = word if len(word) <= 2 * half else word[:half] + word[-half:]
            variant = self._case_variants.get(word.lower())
            ids.append(BOUNDARY)
            if variant is not None and variant != self._ids.get(word):
                ids.append(first + variant)
            ids += [self.letter_vocab.get(letter, UNKNOWN_LETTER) for letter in letters]
        return ids

    def encode_target(self, text: Text, source: Source | None = None, max_length: int | None = None) -> list[int]:
        """The ids of a target: its words, or the chains of tokens that are joined to them (`Chains`); UNK for a word
        that neither the vocabulary nor its source, nor a chain of them, can give.

        Args:
            source: whose words can be copied; None: UNK for every out-of-vocabulary word.
            max_length: of the ids; what is beyond is cut off.
        """
        special, slots = self._special_words(), {} if source is None else source.slots
        words = self._split(text)
        ids = self._find_ids(words, special, slots, 0)
        unk, chains = self.unk_token_id, self.chains
        if source is not None and chains.is_possible:
            reachable = [word for word in source.words if word in slots or (word in self._ids and word not in special)]
            neighbours = Neighbours(reachable, words)
            found: list[int] = []
            for place, (word, index) in enumerate(zip(words, ids, strict=True)):
                is_letter = len(word) == 1 and word.isalpha()
                if is_letter and chains.has_second and (second := neighbours.find_second(place)):
                    found += self._find_ids([SECOND, second], frozenset(), slots, 0)
                    continue
                near = neighbours.find(place) if chains.has_initials and (index == unk or is_letter) else []
                chain = None
                if index == unk or near:
                    chain = chains.find(word, reachable, near)
                elif index >= len(self):
                    chain = chains.find_whole(word)
                elif len(word) > 1 and word[0] == "0":
                    chain = chains.find_padded(word, neighbours.find_around(place))
                found += [index] if chain is None else self._find_ids(chain, frozenset(), slots, 0)
            ids = found
        return ids[:max_length]

    @property
    def chains(self) -> Chains:
        """How words are made of others; see `encode_target`."""
        return Chains(self._ids if self.segmenter in CHAINED else ())

    def oov_words(
        self, text: Text, max_length: int | None = None, *, facts: Sequence[Fact] | None = None
    ) -> list[str]:
        """The words of a source and its facts that own slots: word k has the id `len(tokenizer) + k`."""
        return self.encode_source(text, facts, None, max_length).oov_words

    def convert_tokens_to_string(self, tokens: list[str]) -> str:
        """Joins the words with the segmenter."""
        return SEGMENTERS[self.segmenter].join(tokens)

    def _split(self, text: Text) -> list[str]:
        return SEGMENTERS[self.segmenter].split(text) if isinstance(text, str) else list(text)

    def _fold(self, text: Text) -> Text:
        if not self.fold_whitespace or not isinstance(text, str):
            return text
        return fold_unknown_whitespace(text, self._ids, self._split)

    def _truncate(self, words: list[str], max_length: int | None, fact_words: int) -> list[str]:
        """The words that fit into `max_length` together with those of the facts."""
        room = len(words) if max_length is None else max_length - fact_words
        if room < 0 or (room == 0 and words):
            raise ValueError(
                f"max_length={max_length} is too small for a source with {fact_words} fact words: use a larger one"
            )
        if len(words) <= room:
            return words
        return words[-room:] if self.truncation_side == "left" else words[:room]

    def _special_words(self) -> frozenset[str]:
        """Words that count as out-of-vocabulary although the vocabulary has them: spelled-out special tokens."""
        return frozenset(self.all_special_tokens if self.split_special_tokens else ())

    def _find_ids(
        self, words: Sequence[str], special: frozenset[str], slots: dict[str, int], max_slots: int
    ) -> list[int]:
        """The ids of words; those outside the vocabulary are added to `slots` while it has fewer than `max_slots`."""
        ids = list(map(self._ids.get, words, repeat(-1)))  # in less time than a comprehension
        if -1 in ids or not special.isdisjoint(words):
            first, unk = len(self), self.unk_token_id
            for position, word in enumerate(words):
                if ids[position] < 0 or word in special:
                    if word not in slots and len(slots) < max_slots:
                        slots[word] = first + len(slots)
                    ids[position] = slots.get(word, unk)
        return ids


# ---- facts


def flatten_facts(facts: Sequence[Fact] | None, name: str) -> list[str]:
    """The words of facts in one list.

    Raises:
        ValueError: a fact is not a triple of strings.
    """
    for fact in facts or ():
        if isinstance(fact, str) or len(fact) != 3 or not all(isinstance(word, str) for word in fact):
            raise ValueError(f"{name} contains {fact!r}: pass (subject, property, object), three strings")
    return [word for fact in facts or () for word in fact]


# ---- the rows of a batch


def check_length(name: str, length: int | None) -> None:
    """Raises ValueError if a length is less than 1; None is accepted."""
    if length is not None and length < 1:
        raise ValueError(f"{name} is {length}: use a number of tokens, 1 or more")


def batch_rows(texts: Text | Sequence[Text], name: str, is_split_into_words: bool) -> tuple[list[Text], bool]:
    """The rows of a batch, and whether `texts` is a single row."""
    if not isinstance(texts, Sequence):
        raise TypeError(f"{name} is {type(texts).__name__}: pass a text or a list of texts")
    if isinstance(texts, str) or (is_split_into_words and (not texts or isinstance(texts[0], str))):
        check_text(texts, name, is_split_into_words)
        return [cast(Text, texts)], True
    rows = list(texts)
    for number, row in enumerate(rows):
        check_text(row, f"{name}[{number}]", is_split_into_words)
    return rows, False


def batch_targets(
    targets: Text | Sequence[Text], rows: Sequence[Text], single: bool, is_split_into_words: bool
) -> list[Text]:
    """The rows of the targets, as many as the sources have."""
    target_rows, single_target = batch_rows(targets, "text_target", is_split_into_words)
    if len(target_rows) != len(rows) or single_target != single:
        counts = [
            "one text" if is_single else f"{len(batch)} rows"
            for batch, is_single in ((rows, single), (target_rows, single_target))
        ]
        words = "; with is_split_into_words, a target is a list of words as well" if is_split_into_words else ""
        raise ValueError(f"text has {counts[0]}, text_target {counts[1]}: they must match{words}")
    return target_rows


# ---- words to texts, for any tokenizer


def find_matching_ids(tokenizer: Speller, pattern: str) -> Sequence[int]:
    """The ids of the words of a vocabulary in which a regular expression finds something, as they are in a text.

    Of a tokenizer of pieces, the pieces. Neither marks nor special tokens match, except for the unknown word.

    Raises:
        ValueError: it is no regular expression.
    """
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"copied_only is {pattern!r}, no regular expression ({error}): correct it") from None
    return _find_matching_ids(tokenizer, expression, len(tokenizer)) if pattern else ()


@lru_cache(maxsize=4)
def _find_matching_ids(tokenizer: Speller, expression: re.Pattern[str], size: int) -> tuple[int, ...]:
    """`size` is that of the vocabulary, which may grow."""
    skipped = skipped_ids(tokenizer)
    words = ((index, str(tokenizer.convert_ids_to_tokens(index))) for index in range(size) if index not in skipped)
    shown = ((index, tokenizer.convert_tokens_to_string([word])) for index, word in words)
    return tuple(index for index, word in shown if word and expression.search(word))


def skipped_ids(tokenizer: Speller) -> frozenset[int]:
    """The special tokens that are left out of outputs: all but the unknown word.

    If that is the end symbol too, as in GPT-2's tokenizer, it is left out.
    """
    others = {tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id}
    return frozenset(tokenizer.all_special_ids) - ({tokenizer.unk_token_id} - others)


def count_tokens(ids: Sequence[int], end_ids: Collection[int], pad_token_id: int) -> int:
    """The tokens of an output, up to the first end symbol that only end symbols and padding follow; without one, up to
    the last token that is neither.

    What follows is what `generate` filled it up with: padding, or in beam search an end symbol. Before other tokens
    both are words: a pretrained model may generate padding, and the end symbol need not have been the call's. Of an
    output that a stop string has ended, beam search's first end symbol is taken for its end.
    """
    filling = {pad_token_id, *end_ids}
    length = max((place for place, index in enumerate(ids, 1) if index not in filling), default=0)
    return next((place for place, index in enumerate(ids[length:], length + 1) if index in end_ids), length)


def find_marks(tokenizer: Speller) -> frozenset[str]:
    """The words that are not shown as such, because joining applies them to others."""
    return MARKS if getattr(tokenizer, "segmenter", None) in CHAINED else frozenset()


def add_spaces(tokenizer: Speller, words: Sequence[str]) -> list[str]:
    """Each word with the space that precedes it in the text; concatenated, they are the text without outer spaces."""
    segmenter = getattr(tokenizer, "segmenter", None)
    if segmenter is None:
        pieces = space_words(words, tokenizer.convert_tokens_to_string)
    else:
        pieces = SEGMENTERS[segmenter].space(words)
    text = "".join(pieces)
    before = len(text) - len(text.lstrip())
    after = max(before, len(text.rstrip()))
    ends = [min(max(end, before), after) for end in accumulate(map(len, pieces))]
    return [text[start:end] for start, end in zip([before, *ends], ends, strict=False)]


def _trim_spans(
    text: str, words: Sequence[str], found: Sequence[Span], is_special: Sequence[bool]
) -> list[Span | None]:
    """The span of each word without the spaces that precede it; None for a word that is "".

    The character whose last byte is in a word begins where the words with its first bytes do, which are "".
    """
    spans: list[Span | None] = []
    first = None
    for word, (start, end), special in zip(words, found, is_special, strict=True):
        is_part = not (word or special) and bool(text[start:end].strip())
        start = start if first is None else min(first, start)
        first = start if is_part else None
        start = start if text[start:end].isspace() else end - len(text[start:end].lstrip())
        spans.append((start, end) if word else None)
    return spans
