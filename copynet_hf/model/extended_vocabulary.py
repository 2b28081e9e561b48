"""Extended ids: a vocabulary, and slots for the words of a source that it lacks.

Nothing here needs Transformers: `CopyNetTokenizer` and the server's tokenizer share it.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from .segmentation import SEGMENTERS


class EncodedSource(NamedTuple):
    """A source and its facts: its words after truncation, the ids of these and of the facts, and their types, 0 for
    words and 1, 2, 3 for the three parts of each fact."""

    words: list[str]
    ids: list[int]
    token_types: list[int]


class ExtendedVocabulary:
    """A vocabulary and `max_source_oov` slots: the base class of tokenizers with extended ids.

    A subclass sets the attributes below, of which `_ids` and `_words` are the id of each word and the word of each id,
    and defines `len()`, the number of words and the first slot.
    """

    segmenter: str
    max_source_oov: int
    truncation_side: str
    split_special_tokens: bool
    unk_token_id: Any
    all_special_tokens: list[str]
    _ids: dict[str, int]
    _words: dict[int, str]

    if TYPE_CHECKING:

        def __len__(self) -> int: ...

    def convert_tokens_to_string(self, tokens: list[str]) -> str:
        """Joins the words with the segmenter."""
        return SEGMENTERS[self.segmenter].join(tokens)

    def source_words(
        self,
        text: str | Sequence[str],
        max_length: int | None = None,
        *,
        facts: Sequence[Sequence[str]] | None = None,
        is_split_into_words: bool = False,
    ) -> list[str]:
        """The word at each position of the source's `input_ids` when truncated to `max_length`."""
        check_row(text, "text", is_split_into_words)
        (fact_words,) = flatten_facts([facts], 1)
        return self._truncate_source(self._split(text), max_length, len(fact_words)) + fact_words

    def oov_words(
        self,
        text: str | Sequence[str],
        max_length: int | None = None,
        *,
        facts: Sequence[Sequence[str]] | None = None,
        is_split_into_words: bool = False,
    ) -> list[str]:
        """The words of a source and its facts that own slots: word k has the id `len(tokenizer) + k`."""
        check_row(text, "text", is_split_into_words)
        (fact_words,) = flatten_facts([facts], 1)
        slots: dict[str, int] = {}
        self._encode_source(text, fact_words, max_length, self._special_words(), slots)
        return list(slots)[: self.max_source_oov]

    def _split(self, row: str | Sequence[str]) -> list[str]:
        return SEGMENTERS[self.segmenter].split(row) if isinstance(row, str) else list(row)

    def _truncate_source(self, words: list[str], max_length: int | None, fact_words: int = 0) -> list[str]:
        """Truncates a source so that it fits into `max_length` together with the words of its facts."""
        check_length("max_length", max_length)
        room = len(words) if max_length is None else max_length - fact_words
        if room < 0 or (room == 0 and words):
            raise ValueError(
                f"max_length={max_length} is too small for a source with {fact_words} fact words: give more"
            )
        if len(words) <= room:
            return words
        return words[-room:] if self.truncation_side == "left" else words[:room]

    def _special_words(self) -> frozenset[str]:
        """Words that count as out-of-vocabulary although the vocabulary has them: spelled-out special tokens."""
        return frozenset(self.all_special_tokens if self.split_special_tokens else ())

    def _to_ids(
        self, words: Sequence[str], special: frozenset[str], slots: dict[str, int], *, is_source: bool
    ) -> list[int]:
        """The ids of `words`. A source adds its out-of-vocabulary words to `slots`; a target looks them up there."""
        ids: list[Any] = list(map(self._ids.get, words))
        if None in ids or not special.isdisjoint(words):
            first, count, unk = len(self), self.max_source_oov, self.unk_token_id
            for position, word in enumerate(words):
                if ids[position] is None or word in special:
                    if is_source and word not in slots:
                        slots[word] = first + len(slots) if len(slots) < count else unk
                    ids[position] = slots.get(word, unk)
        return ids

    def _encode_source(
        self,
        row: str | Sequence[str],
        fact_words: Sequence[str],
        max_length: int | None,
        special: frozenset[str],
        slots: dict[str, int],
    ) -> EncodedSource:
        """Encodes a source, truncated to `max_length` with its facts; adds its out-of-vocabulary words to `slots`."""
        words = self._truncate_source(self._split(row), max_length, len(fact_words))
        # Facts get the first slots, which then do not depend on the truncation of the words.
        fact_ids = self._to_ids(fact_words, special, slots, is_source=True)
        ids = self._to_ids(words, special, slots, is_source=True) + fact_ids
        return EncodedSource(words, ids, [0] * len(words) + [1, 2, 3] * (len(fact_words) // 3))


# ---- checks


def check_row(row: Any, name: str, is_split_into_words: bool) -> None:
    """Checks that a row is a text, or with `is_split_into_words` a sequence of words.

    Raises:
        TypeError: it is not.
    """
    if not is_split_into_words:
        if not isinstance(row, str):
            raise TypeError(f"{name} is {type(row).__name__}: give a text")
        return
    words = row if isinstance(row, Sequence) and not isinstance(row, str) else [None]
    if not all(isinstance(word, str) for word in words):
        raise TypeError(f"{name} is not a list of words: give one, or leave out is_split_into_words=True")


def batch_rows(texts: Any, name: str, is_split_into_words: bool) -> tuple[Sequence[Any], bool]:
    """Returns the rows of a batch, and whether `texts` is a single row.

    Raises:
        TypeError: a row is not a text, or with `is_split_into_words` not a sequence of words.
    """
    if not isinstance(texts, Sequence):
        raise TypeError(f"{name} is {type(texts).__name__}: give a text or a list of texts")
    if isinstance(texts, str) or (is_split_into_words and (not texts or isinstance(texts[0], str))):
        check_row(texts, name, is_split_into_words)
        return [texts], True
    rows = list(texts)
    for number, row in enumerate(rows):
        check_row(row, f"{name}[{number}]", is_split_into_words)
    return rows, False


def batch_targets(targets: Any, rows: Sequence[Any], single: bool, is_split_into_words: bool) -> Sequence[Any]:
    """The rows of the targets, as many as the sources have.

    Raises:
        ValueError: they have more or fewer.
    """
    target_rows, single_target = batch_rows(targets, "text_target", is_split_into_words)
    if len(target_rows) != len(rows) or single_target != single:
        counts = [
            "one text" if is_single else f"{len(batch)} rows"
            for batch, is_single in ((rows, single), (target_rows, single_target))
        ]
        raise ValueError(f"text has {counts[0]}, text_target {counts[1]}: they must match")
    return target_rows


def check_vocab(vocab: Any, special_tokens: list[Any], added: set[str]) -> dict[str, int]:
    """Returns `vocab` in the order of its ids.

    Raises:
        ValueError: it is not a mapping, its ids have gaps, or a special token is missing.
    """
    if not isinstance(vocab, Mapping):
        raise ValueError(f"vocab is {type(vocab).__name__}: give a mapping from words to ids")
    ordered = dict(sorted(vocab.items(), key=lambda item: item[1]))
    if list(ordered.values()) != list(range(len(ordered))):
        raise ValueError("the ids of vocab have a gap: number the words 0, 1, 2, ..., since the slots come next")
    if missing := {str(token) for token in special_tokens} - added - ordered.keys():
        raise ValueError(f"vocab lacks the special tokens {', '.join(sorted(missing))}: add them")
    return ordered


def flatten_facts(facts: Sequence[Any], rows: int) -> list[list[str]]:
    """For each source the words of its facts in one list.

    Raises:
        ValueError: there are more or fewer rows than sources, or a fact is not a triple of strings.
    """
    if len(facts) != rows:
        raise ValueError(f"facts has {len(facts)} rows, text {rows}: they must match")
    for row, triples in enumerate(facts):
        for triple in triples or ():
            if isinstance(triple, str) or len(triple) != 3 or not all(isinstance(word, str) for word in triple):
                raise ValueError(f"facts[{row}] contains {triple!r}: give (subject, property, object), three strings")
    return [[word for triple in triples or () for word in triple] for triples in facts]


def check_length(name: str, length: int | None) -> None:
    """Raises ValueError if a length is less than 1; None is accepted."""
    if length is not None and length < 1:
        raise ValueError(f"{name} is {length}: give a number of tokens, 1 or more")
