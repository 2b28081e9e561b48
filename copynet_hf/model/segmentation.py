"""Text to words and words back to text, one pair of pure functions for each segmenter.

What a model copies is a word, so a word must be the same string wherever it stands. `SEGMENTERS` maps a
name to its `Segmenter`:

- `char`: every character is a word, white space too. `join(split(text)) == text`.
- `jieba`: Chinese words as jieba cuts them. No character is lost: `join(split(text)) == text`. Where rjieba is
  installed (`pip install 'copynet-hf[fast]'`) it cuts them sooner.
- `fugashi`: Japanese words as MeCab cuts them by the dictionary unidic-lite (`pip install 'copynet-hf[ja]'`). White
  space, which MeCab drops, is kept, every character a word. `join(split(text)) == text`.
- `whitespace`: what stands between white space. Joining puts one space between two words, so runs of
  white space become one space and the ends are stripped.
- `word_punct`: words and punctuation of English, code and commands. `join(split(text)) == text`.

How `word_punct` gives the text back although words carry no marks. A run of letters, digits and
underscores is a word, and every other character that is not white space is a token of its own. By
default a word has a space on either side, towards another word or towards punctuation, and punctuation
has none towards punctuation. What differs from that is written down:

- punctuation that touches a word carries the joiner `￭` (U+FFED) on the side of that word:
  `3.14` is `3 ￭.￭ 14`, `-flag` is `-￭ flag`, `(a, b)` is `(￭ a ￭, b ￭)`;
- other white space is a token, one for each run of the same character: a line break, a tab, two spaces,
  the space between two punctuation tokens, white space at either end of the text;
- a joiner that the text itself contains is written `[￭]`, with joiners around it as for any punctuation.

So a name keeps its one token whether a space, a quote or a full stop stands next to it, and so does a
flag, a path or a quotation between other punctuation: the tokens of `/usr/bin` are those in `"/usr/bin"`.
"""

import logging
import re
import shlex
import string
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

try:  # only one of the segmenters needs it
    import jieba
    import jieba.finalseg
except ImportError:
    jieba = None

JOINER = "\uffed"
_ESCAPED_JOINER = f"[{JOINER}]"

# A space that joining puts back by itself (first two lines) matches without a group.
_PIECES = re.compile(
    r"""  (?P<word>\w+)
        | (?<=\w)[ ](?=\S)
        | (?<=[^\w\s])[ ](?=\w)
        | (?P<space>(\s)\3*)
        | (?P<left>(?<=\w))? (?P<punctuation>[^\w\s]) (?P<right>(?=\w))?
    """,
    re.VERBOSE,
)
_PUNCTUATION = re.compile(rf"({JOINER}?)(\[{JOINER}\]|[^\w\s{JOINER}])({JOINER}?)")

# The versions whose words were compared; beside others jieba works alone, so that no release can change a word.
_COMPARED = {"jieba": "0.42.1", "rjieba": "0.2.2"}
# What jieba looks up in its dictionary; the rest is punctuation.
_LOOKED_UP = frozenset(map(chr, range(0x4E00, 0x9FD6))) | frozenset(string.ascii_letters + string.digits + "+#&._%-")
# Rarer ideographs, which only rjieba takes for letters, and halves of surrogate pairs, which Rust cannot hold.
_JIEBA_ONLY = re.compile(r"[\u3400-\u4dbf\u9fd6-\u9fff\uf900-\ufaff\ud800-\udfff\U00020000-\U0003ffff]")

# What MeCab is given at a time. It drops white space, stops at NUL, knows no halves of surrogate pairs, takes ever
# longer for each character of a long run of one kind, and crashes at a million characters.
_FOR_MECAB = re.compile(r"(?P<piece>[^\s\0\ud800-\udfff]{1,2000})|.", re.DOTALL)


class Segmenter(NamedTuple):
    """`split` cuts a text into words; `join` makes a text of words, of any words in any order."""

    split: Callable[[str], list[str]]
    join: Callable[[Iterable[str]], str]


@lru_cache(maxsize=1)
def _jieba_tokenizer() -> Any:
    """A jieba tokenizer of our own, with the standard dictionary.

    The global one changes with `jieba.add_word`. The words of a text must not: decoding cuts the source
    again and has to find the same unseen words in the same order.
    """
    if jieba is None:
        raise ImportError("segmenter='jieba' needs the package jieba: pip install jieba")
    jieba.setLogLevel(logging.WARNING)  # it reports the loading of its dictionary on stderr
    return jieba.Tokenizer()


class _FastJieba:
    """jieba's `lcut`, word for word, with rjieba for the slow part of it.

    rjieba's own words are others: it has jieba's hidden Markov model with rounded probabilities, and keeps
    `F-22` whole. So it only searches the most probable words of the dictionary, which is jieba's own. What
    that leaves in single characters jieba's model puts together, as in jieba.
    """

    def __init__(self, tokenizer: Any, search: Any) -> None:
        tokenizer.initialize()
        self.lcut = tokenizer.lcut
        self.dictionary = {word: count for word, count in tokenizer.FREQ.items() if count}
        for word, count in self.dictionary.items():
            search.add_word(word, count, None)
        # jieba's total has a line of its file twice. This character is never looked up and evens it out.
        search.add_word("\0", tokenizer.total - sum(self.dictionary.values()), None)
        self.search = search

    def split(self, text: str) -> list[str]:
        if _JIEBA_ONLY.search(text):
            return self.lcut(text)
        words: list[str] = []
        run = ""  # characters side by side that are no part of a longer word
        for word in self.search.cut(text, hmm=False):
            if word[0] in _LOOKED_UP and (len(word) == 1 or word not in self.dictionary):
                run += word
                continue
            if run:
                words += self._recognised(run)
                run = ""
            words.append(word)
        return words + self._recognised(run)

    def _recognised(self, run: str) -> list[str]:
        if len(run) <= 1 or run in self.dictionary:
            return list(run)
        return list(jieba.finalseg.cut(run))


@lru_cache(maxsize=1)
def _jieba_split() -> Callable[[str], list[str]]:
    """The way to jieba's words that is open here; the words are the same on either."""
    tokenizer = _jieba_tokenizer()
    try:
        import rjieba

        found = {name: version(name) for name in _COMPARED}
    except ImportError:  # also when a package does not say its version
        return tokenizer.lcut
    return _FastJieba(tokenizer, rjieba.Jieba.empty()).split if found == _COMPARED else tokenizer.lcut


def _split_jieba(text: str) -> list[str]:
    return _jieba_split()(text)


@lru_cache(maxsize=1)
def _mecab() -> Any:
    """MeCab with the dictionary unidic-lite, whatever other dictionaries and settings of it are installed."""
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
    for match in _PIECES.finditer(text):
        kind = match.lastgroup
        if kind is None:
            continue
        if kind in ("word", "space"):
            words.append(match.group())
            continue
        token = match["punctuation"]
        if token == JOINER:
            token = _ESCAPED_JOINER
        if match["left"] is not None:
            token = JOINER + token
        if match["right"] is not None:
            token += JOINER
        words.append(token)
    return words


def _join_word_punct(words: Iterable[str]) -> str:
    pieces: list[str] = []
    after_word = False  # the last piece is a word
    glued = True  # nothing may be put between the last piece and a word
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
    """The segmenter called `name`; ValueError, with the known names, for any other."""
    if name not in SEGMENTERS:
        raise ValueError(f"unknown segmenter {name!r}; choose one of {', '.join(SEGMENTERS)}")
    return SEGMENTERS[name]


def check_row(row: Any, name: str, is_split_into_words: bool) -> None:
    """TypeError unless `row` is a text, or a sequence of words if that is what rows are."""
    if not is_split_into_words:
        if not isinstance(row, str):
            raise TypeError(f"{name} is {type(row).__name__}, not a text")
        return
    words = row if isinstance(row, Sequence) and not isinstance(row, str) else [None]
    if not all(isinstance(word, str) for word in words):
        raise TypeError(f"{name} is not a list of words, as is_split_into_words=True says")


def batch_rows(texts: Any, name: str, is_split_into_words: bool) -> tuple[Sequence[Any], bool]:
    """The rows of a batch, and whether `texts` is a single row; TypeError naming the row that is no text."""
    if not isinstance(texts, Sequence):
        raise TypeError(f"{name} is {type(texts).__name__}, not a text or a list of texts")
    if isinstance(texts, str) or (is_split_into_words and (not texts or isinstance(texts[0], str))):
        check_row(texts, name, is_split_into_words)
        return [texts], True
    rows = list(texts)
    for number, row in enumerate(rows):
        check_row(row, f"{name}[{number}]", is_split_into_words)
    return rows, False
