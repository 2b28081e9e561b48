"""Segmenters: pure functions that split a text into words and join words to a text.

Copying compares words as strings, so a word must be the same string wherever it occurs. `SEGMENTERS` maps names to
segmenters:

- `char`: every character is a word, whitespace included. `join(split(text)) == text`.
- `jieba`: Chinese words, cut by jieba. No character is lost: `join(split(text)) == text`. If rjieba is installed
  (`pip install 'copynet-hf[fast]'`), the same words are found faster.
- `fugashi`: Japanese words, cut by MeCab with the dictionary unidic-lite (`pip install 'copynet-hf[ja]'`). Whitespace,
  which MeCab drops, is kept as words of one character. `join(split(text)) == text`.
- `whitespace`: splits at whitespace and joins with single spaces, so runs of whitespace become one space and the ends
  are stripped.
- `word_punct`: words and punctuation of English, code and commands. `join(split(text)) == text`.

`word_punct` restores the text although words carry no marks of their own. A word is a run of letters, digits and
underscores, with the combining marks and zero-width joiners of scripts such as Devanagari; every other character that
is not whitespace is a token. By default, a word has a space on either side, and punctuation has none towards
punctuation. Exceptions are marked:

- Punctuation that touches a word carries the joiner `￭` (U+FFED) on that side: `3.14` is `3 ￭.￭ 14`, `-flag` is
  `-￭ flag`, `(a, b)` is `(￭ a ￭, b ￭)`.
- Other whitespace is a token, one for each run of the same character: a line break, a tab, two spaces, the space
  between two punctuation tokens, whitespace at either end of the text.
- A joiner in the text itself is written `[￭]`, with joiners around it like other punctuation.

So a name is the same token next to a space, a quotation mark or a full stop, and so is a flag, a path or a quotation
between other punctuation: the tokens of `/usr/bin` are also those in `"/usr/bin"`.

`ExtendedVocabulary` gives the words of a source their extended ids. Nothing here needs Transformers, so that
tokenizers with and without it share this file.
"""

import logging
import re
import shlex
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unicodedata import category

try:  # needed by one segmenter only
    import jieba
    import jieba.finalseg
except ImportError:
    jieba = None

JOINER = "\uffed"
_ESCAPED_JOINER = f"[{JOINER}]"

# Combining marks, of which \w has none: the vowel signs of Devanagari, the points of Hebrew, accents on their own. All
# are in these ranges.
_MARKS = "".join(c for c in map(chr, (*range(0x300, 0x20000), *range(0xE0100, 0xE01F0))) if category(c)[0] == "M")
# A zero-width joiner or non-joiner belongs to a word within it, as in Persian and Sinhala.
_WORD = rf"\w+ (?: (?: [{_MARKS}] | [\u200c\u200d](?=[\w{_MARKS}]) ) \w* )*"
# Spaces without a group are those that joining restores.
_PIECES = re.compile(
    rf"""  (?P<word>{_WORD}) (?:[ ](?=\S))?
        | (?P<space>(\s)\3*)
        | (?P<punctuation>[^\w\s]) (?: (?P<right>(?=\w)) | [ ](?=\w) )?
    """,
    re.VERBOSE,
)
_PUNCTUATION = re.compile(rf"({JOINER}?)(\[{JOINER}\]|[^\w\s{JOINER}])({JOINER}?)")

# The versions that were verified to find the same words. With others rjieba is not used.
_VERIFIED_VERSIONS = {"jieba": "0.42.1", "rjieba": "0.2.2"}
# The characters that jieba looks up in its dictionary; all others are punctuation to it.
_LOOKED_UP = frozenset(map(chr, range(0x4E00, 0x9FD6))) | frozenset(string.ascii_letters + string.digits + "+#&._%-")
# Rare ideographs, which rjieba looks up and jieba does not, and lone surrogates, which Rust strings cannot contain.
_JIEBA_ONLY = re.compile(r"[\u3400-\u4dbf\u9fd6-\u9fff\uf900-\ufaff\ud800-\udfff\U00020000-\U0003ffff]")

# The pieces of a text for MeCab. It drops whitespace, stops at NUL, rejects lone surrogates, takes superlinear time
# for long runs of one kind of character, and crashes at a million characters.
_FOR_MECAB = re.compile(r"(?P<piece>[^\s\0\ud800-\udfff]{1,2000})|.", re.DOTALL)


class Segmenter(NamedTuple):
    """`split` splits a text into words; `join` joins words, any words in any order, to a text."""

    split: Callable[[str], list[str]]
    join: Callable[[Iterable[str]], str]


@lru_cache(maxsize=1)
def _jieba_tokenizer() -> Any:
    """A private jieba tokenizer with the standard dictionary.

    `jieba.add_word` changes the global one. Decoding splits the source again and must find the same words.
    """
    if jieba is None:
        raise ImportError("segmenter='jieba' needs the package jieba: pip install jieba")
    jieba.setLogLevel(logging.WARNING)  # else it reports on stderr that it loads its dictionary
    return jieba.Tokenizer()


class _FastJieba:
    """jieba's `lcut` with rjieba for the slow part: the same words, faster.

    rjieba's own words differ: its hidden Markov model has rounded probabilities, and it does not split `F-22`. So
    rjieba only searches the likeliest path through jieba's dictionary, and runs of single characters go to jieba's
    model.
    """

    def __init__(self, tokenizer: Any, search: Any) -> None:
        tokenizer.initialize()
        self.lcut = tokenizer.lcut
        self.dictionary = {word: count for word, count in tokenizer.FREQ.items() if count}
        for word, count in self.dictionary.items():
            search.add_word(word, count, None)
        # jieba's total counts a repeated line of its file twice. This word, which no text contains, makes up for it.
        search.add_word("\0", tokenizer.total - sum(self.dictionary.values()), None)
        self.search = search

    def split(self, text: str) -> list[str]:
        if _JIEBA_ONLY.search(text):
            return self.lcut(text)
        words: list[str] = []
        run = ""  # adjacent characters that belong to no longer word
        for word in self.search.cut(text, hmm=False):
            if word[0] in _LOOKED_UP and (len(word) == 1 or word not in self.dictionary):
                run += word
                continue
            if run:
                words += self._split_run(run)
                run = ""
            words.append(word)
        return words + self._split_run(run)

    def _split_run(self, run: str) -> list[str]:
        if len(run) <= 1 or run in self.dictionary:
            return list(run)
        return list(jieba.finalseg.cut(run))


@lru_cache(maxsize=1)
def _jieba_split() -> Callable[[str], list[str]]:
    """The fastest available function that finds jieba's words."""
    tokenizer = _jieba_tokenizer()
    try:
        import rjieba

        versions = {name: version(name) for name in _VERIFIED_VERSIONS}
    except ImportError:  # rjieba is missing, or a package has no version metadata
        return tokenizer.lcut
    return _FastJieba(tokenizer, rjieba.Jieba.empty()).split if versions == _VERIFIED_VERSIONS else tokenizer.lcut


def _split_jieba(text: str) -> list[str]:
    return _jieba_split()(text)


@lru_cache(maxsize=1)
def _mecab() -> Any:
    """MeCab with the dictionary unidic-lite, independent of other installed dictionaries and settings."""
    try:
        import fugashi
        import unidic_lite
    except ImportError as error:
        raise ImportError(
            "segmenter='fugashi' needs the packages fugashi and unidic-lite: pip install 'copynet-hf[ja]'"
        ) from error
    folder = unidic_lite.DICDIR
    return fugashi.GenericTagger(shlex.join(["-r", str(Path(folder, "mecabrc")), "-d", folder, "-Owakati"]))


def _split_fugashi(text: str) -> list[str]:
    parse = _mecab().parse
    words: list[str] = []
    for match in _FOR_MECAB.finditer(text):
        words += parse(match.group()).split(" ") if match["piece"] else [match.group()]
    return words


def _split_word_punct(text: str) -> list[str]:
    words = []
    end_of_word = -1
    for match in _PIECES.finditer(text):
        kind = match.lastgroup
        if kind == "word":
            words.append(match["word"])
            end_of_word = match.end("word")
            continue
        if kind == "space":
            words.append(match["space"])
            continue
        token = match["punctuation"]
        if token == JOINER:
            token = _ESCAPED_JOINER
        if match.start() == end_of_word:
            token = JOINER + token
        if match["right"] is not None:
            token += JOINER
        words.append(token)
    return words


def _join_word_punct(words: Iterable[str]) -> str:
    pieces: list[str] = []
    after_word = False  # the last piece is a word
    glued = True  # a word follows the last piece without a space
    for word in words:
        if word.isspace():
            pieces.append(word)
            after_word, glued = False, True
        elif match := _PUNCTUATION.fullmatch(word):
            left, token, right = match.groups()
            if after_word and not left:
                pieces.append(" ")
            pieces.append(JOINER if token == _ESCAPED_JOINER else token)
            after_word, glued = False, bool(right)
        else:
            if not glued:
                pieces.append(" ")
            pieces.append(word)
            after_word, glued = True, False
    return "".join(pieces)


SEGMENTERS: dict[str, Segmenter] = {
    "char": Segmenter(list, "".join),
    "whitespace": Segmenter(str.split, " ".join),
    "jieba": Segmenter(_split_jieba, "".join),
    "fugashi": Segmenter(_split_fugashi, "".join),
    "word_punct": Segmenter(_split_word_punct, _join_word_punct),
}


def get_segmenter(name: str) -> Segmenter:
    """Returns the segmenter of this name.

    Raises:
        ValueError: there is none.
    """
    if name not in SEGMENTERS:
        raise ValueError(f"segmenter is {name!r}: choose one of {', '.join(SEGMENTERS)}")
    return SEGMENTERS[name]


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
        slots: dict[str, int] = {}
        words = self.source_words(text, max_length, facts=facts, is_split_into_words=is_split_into_words)
        first = len(words) - 3 * len(facts or ())
        self._source_ids(words[:first], words[first:], self._special_words(), slots)
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

    def _source_ids(
        self, words: Sequence[str], fact_words: Sequence[str], special: frozenset[str], slots: dict[str, int]
    ) -> list[int]:
        """The ids of a source and its facts, whose out-of-vocabulary words are added to `slots`."""
        # Facts get the first slots, which then do not depend on the truncation of the words.
        fact_ids = self._to_ids(fact_words, special, slots, is_source=True)
        return self._to_ids(words, special, slots, is_source=True) + fact_ids


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
