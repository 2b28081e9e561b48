"""Segmenters: pure functions that split a text into words and join words to a text.

Copying compares words as strings, so a word must be the same string wherever it occurs. `SEGMENTERS` maps names to
segmenters:

- `char`: every character is a word, whitespace included. `join(split(text)) == text`.
- `jieba`: Chinese words, cut by jieba. No character is lost: `join(split(text)) == text`.
- `fugashi`: Japanese words, cut by MeCab with the dictionary unidic-lite (the extra `ja`). Whitespace,
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

Nothing here needs Transformers, so that tokenizers with and without it share this file.
"""

import logging
import re
import shlex
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple
from unicodedata import category

try:  # needed by one segmenter only
    import jieba
except ImportError:
    jieba = None

JOINER = "\uffed"
_ESCAPED_JOINER = f"[{JOINER}]"

_PUNCTUATION = re.compile(rf"({JOINER}?)(\[{JOINER}\]|[^\w\s{JOINER}])({JOINER}?)")

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


def _split_jieba(text: str) -> list[str]:
    return _jieba_tokenizer().lcut(text)


@lru_cache(maxsize=1)
def _mecab() -> Any:
    """MeCab with the dictionary unidic-lite, independent of other installed dictionaries and settings."""
    try:
        import fugashi
        import unidic_lite
    except ImportError as error:
        raise ImportError(
            "segmenter='fugashi' needs the packages fugashi and unidic-lite: pip install fugashi unidic-lite"
        ) from error
    folder = unidic_lite.DICDIR
    return fugashi.GenericTagger(shlex.join(["-r", str(Path(folder, "mecabrc")), "-d", folder, "-Owakati"]))


def _split_fugashi(text: str) -> list[str]:
    parse = _mecab().parse
    words: list[str] = []
    for match in _FOR_MECAB.finditer(text):
        words += parse(match.group()).split(" ") if match["piece"] else [match.group()]
    return words


@lru_cache(maxsize=1)
def _compile_pieces() -> re.Pattern[str]:
    """The pieces of a text for `word_punct`. Spaces without a group are those that joining restores."""
    # Combining marks, of which \w has none: the vowel signs of Devanagari, the points of Hebrew, accents on their own.
    # All are in these ranges.
    characters = map(chr, (*range(0x300, 0x20000), *range(0xE0100, 0xE01F0)))
    marks = "".join(character for character in characters if category(character)[0] == "M")
    # A zero-width joiner or non-joiner belongs to the word that it is in, as in Persian and Sinhala.
    word = rf"\w+ (?: (?: [{marks}] | [\u200c\u200d](?=[\w{marks}]) ) \w* )*"
    return re.compile(
        rf"""  (?P<word>{word}) (?:[ ](?=\S))?
            | (?P<space>(\s)\3*)
            | (?P<punctuation>[^\w\s]) (?: (?P<right>(?=\w)) | [ ](?=\w) )?
        """,
        re.VERBOSE,
    )


def _split_word_punct(text: str) -> list[str]:
    words = []
    end_of_word = -1
    for match in _compile_pieces().finditer(text):
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
