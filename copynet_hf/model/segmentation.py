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

- `word_parts`: as `word_punct`, but words are cut where the case changes, between letters with and without case, and
  at digits and underscores. Parts that touch have a joiner between them: `WexError2` is `Wex ￭ Error ￭ 2`, and
  `max_size` is `max ￭_￭ size`.
- `word_digits`: as `word_parts`, and every digit is a word, the same one everywhere: digits touch digits without a
  joiner, and a space between two of them is a token. `B48,906` is `B ￭ 4 8 ￭,￭ 9 0 6`.
- `code_parts` and `code_digits`: as these two, but hexadecimal codes of six or more characters, such as the hashes of
  commits, are whole.

Outputs of these five may hold more marks, which no text is split into (`chains.py`): a joiner on its own between any
words, `￭x` for a letter that touches what precedes it, `[lower]`, `[upper]` and `[title]` for the case of the next
word, `[lower_tr]`, `[upper_tr]` and `[title_tr]` for that of Turkish, `[plain]` and `[digraphs]` for its letters
without accents (`Muller` and `Mueller` of `Müller`), `[lower_plain]` and `[lower_digraphs]` for these in lower case,
also of words that have no accents, `[initial]` and `[second]` for its first letter and the one after it, `[first_3]`
to `[first_12]` for as many letters, and `[drop_first]` and `[drop_last]` for what is left without the first or the
last letter.

Nothing here needs Transformers, so that tokenizers with and without it share this file.
"""

import logging
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple
from unicodedata import category, normalize

Span = tuple[int, int]
"""Start and end, in characters of a text."""

JOINER = "\uffed"
_ESCAPED_JOINER = f"[{JOINER}]"
ZERO_WIDTH = "\u200c\u200d"  # a non-joiner and a joiner, within words
_UNDERSCORES = (f"_{JOINER}", f"{JOINER}_{JOINER}")


# Letters whose strokes and ligatures are no accents in Unicode, and how names in German, Danish, Norwegian and Swedish
# are written where there are no umlauts.
_PLAIN = {"ł": "l", "đ": "d", "ð": "d", "ø": "o", "ı": "i", "ħ": "h", "ß": "ss", "æ": "ae", "œ": "oe", "þ": "th"}
_DIGRAPHS = {**_PLAIN, "ä": "ae", "ö": "oe", "ü": "ue", "å": "aa", "ø": "oe"}


def _replace_letters(word: str, letters: Mapping[str, str]) -> str:
    """The word with these letters replaced, capitals too, and without accents and other marks."""
    if word.isascii():
        return word
    plain = (letter for letter in normalize("NFD", _map_letters(word, letters)) if category(letter) != "Mn")
    return _map_letters("".join(plain), letters)


def _map_letters(word: str, letters: Mapping[str, str]) -> str:
    return "".join(
        letters.get(letter) or (letters[letter.lower()].capitalize() if letter.lower() in letters else letter)
        for letter in normalize("NFC", word)
    )


def strip_accents(word: str) -> str:
    """The word without accents and other marks that change its letters: `Jose` of `José`, `Muller` of `Müller`."""
    return _replace_letters(word, _PLAIN)


def write_digraphs(word: str) -> str:
    """The word without accents, with two letters for an umlaut and its like: `Mueller` of `Müller`, `Joergensen` of
    `Jørgensen`."""
    return _replace_letters(word, _DIGRAPHS)


def _lower_turkish(word: str) -> str:
    return word.replace("I\u0307", "i").replace("I", "ı").replace("İ", "i").lower()


def _upper_turkish(word: str) -> str:
    return word.replace("i", "İ").upper()


def _capitalize_turkish(word: str) -> str:
    return _upper_turkish(word[:1]) + _lower_turkish(word[1:])


def fold_case(word: str) -> str:
    """The word for comparisons in any case, that of Turkish included: `isparta` of `ISPARTA`, `Isparta`, `ısparta`."""
    folded = word.casefold()
    return folded if folded.isascii() else folded.replace("i\u0307", "i").replace("ı", "i")


CASES: dict[str, Callable[[str], str]] = {"[lower]": str.lower, "[upper]": str.upper, "[title]": str.capitalize}
"""Marks for the case of the word that follows."""
TURKISH = {"[lower_tr]": _lower_turkish, "[upper_tr]": _upper_turkish, "[title_tr]": _capitalize_turkish}
"""In Turkish and Azerbaijani, where I is the capital of ı, and İ that of i."""
INITIAL, SECOND, DROP_FIRST, DROP_LAST = "[initial]", "[second]", "[drop_first]", "[drop_last]"
FIRST = {f"[first_{number}]": number for number in range(3, 13)}
"""Marks for the first letters of the word that follows, with their number."""
ENDING_CUTS = {DROP_LAST, *FIRST}
"""Marks after which another ending can be written, as where names are inflected."""
CUTS = {
    INITIAL: slice(1),
    SECOND: slice(1, 2),
    **{mark: slice(number) for mark, number in FIRST.items()},
    DROP_FIRST: slice(1, None),
    DROP_LAST: slice(-1),
}
"""Marks for the part of the word that follows, in characters."""
PLAIN, DIGRAPHS = "[plain]", "[digraphs]"
LOWERED = {PLAIN: "[lower_plain]", DIGRAPHS: "[lower_digraphs]"}
"""Marks for lower case without accents, in which words that have none are written, too."""
CHANGES: dict[str, Callable[[str], str]] = {
    **CASES,
    **TURKISH,
    PLAIN: strip_accents,
    DIGRAPHS: write_digraphs,
    LOWERED[PLAIN]: lambda word: strip_accents(word).lower(),
    LOWERED[DIGRAPHS]: lambda word: write_digraphs(word).lower(),
    **{mark: itemgetter(part) for mark, part in CUTS.items()},
}
OPTIONAL = (PLAIN, DIGRAPHS, *LOWERED.values(), *CUTS, *TURKISH)
"""The marks that a vocabulary has only where its targets need them."""
MARKS = frozenset([JOINER, *CHANGES])
"""What is no part of a text itself."""
_CODE = re.compile(r"(?=[a-f]*\d)(?=\d*[a-f])[\da-f]{6,}", re.ASCII | re.IGNORECASE)
PUNCTUATION = re.compile(rf"({JOINER}?)(\[{JOINER}\]|[^\w\s{JOINER}])({JOINER}?)")

# The pieces of a text for MeCab. It drops whitespace, stops at NUL, rejects lone surrogates, takes superlinear time
# for long runs of one kind of character, and crashes at a million characters.
_FOR_MECAB = re.compile(r"(?P<piece>[^\s\0\ud800-\udfff]{1,2000})|.", re.DOTALL)


class Segmenter(NamedTuple):
    """`split` splits a text into words; `space` adds to any words, in any order, the spaces that precede them."""

    split: Callable[[str], list[str]]
    space: Callable[[Iterable[str]], list[str]] = list

    def join(self, words: Iterable[str]) -> str:
        """The text of words, any words in any order."""
        return "".join(self.space(words))


@lru_cache(maxsize=1)
def _jieba_tokenizer() -> Any:
    """A private jieba tokenizer with the standard dictionary.

    `jieba.add_word` changes the global one. Decoding splits the source again and must find the same words.
    """
    try:
        import jieba
    except ImportError as error:
        raise ImportError("segmenter='jieba' needs the package jieba: pip install jieba") from error
    jieba.setLogLevel(logging.WARNING)  # else it reports on stderr that it loads its dictionary
    return jieba.Tokenizer()


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
    runs = [list(run) for is_mark, run in groupby(characters, lambda each: category(each)[0] == "M") if is_mark]
    # Ranges, because `re` compares a character with the members beyond U+FFFF one by one.
    marks = "".join(f"{run[0]}-{run[-1]}" for run in runs)
    # A zero-width joiner or non-joiner belongs to the word that it is in, as in Persian and Sinhala. The lookahead
    # is for speed: most words are followed by a space or ASCII punctuation.
    word = rf"\w+ (?: (?=[^\0-\u02ff]) (?: [{marks}] | [\u200c\u200d](?=[\w{marks}]) ) \w* )*"
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


def _space_word_punct(words: Iterable[str], *, digits: bool = False) -> list[str]:
    """Each word with the space that precedes it; "" for marks on their own. `digits`: whether digits touch digits."""
    pieces: list[str] = []
    after_word = False  # the last piece is a word
    after_digit = False
    glued = True  # a word follows the last piece without a space
    changes: list[Callable[[str], str]] = []  # of the next word, the last one first
    for word in words:
        space, shown = "", word
        if word in CHANGES:
            changes.insert(0, CHANGES[word])
            pieces.append("")
            continue
        touches = digits and after_digit
        after_digit = _is_digit(word)
        if word == JOINER:
            after_word, glued, shown = False, True, ""
        elif word.isspace():
            after_word, glued = False, True
        elif is_glued_letter(word):
            shown = word.strip(JOINER)
            space = "" if glued or word[0] == JOINER else " "
            after_word, glued = True, word[-1] == JOINER
        elif match := PUNCTUATION.fullmatch(word):
            left, shown, right = match.groups()
            space = " " if after_word and not left else ""
            shown = JOINER if shown == _ESCAPED_JOINER else shown
            after_word, glued = False, bool(right)
        else:
            space = "" if glued or (touches and after_digit) else " "
            after_word, glued = True, False
        for change in changes:
            shown = change(shown)
        pieces.append(space + shown)
        changes = []
    return pieces


def is_glued_letter(word: str) -> bool:
    """Whether this is a character of words that touches what is before it; an underscore, also what is after it."""
    letter = word[1:2]
    if word[:1] != JOINER or len(word) != 2:
        return word in _UNDERSCORES
    return letter.isalnum() or letter == "_" or category(letter)[0] == "M"


def is_spelled_letter(word: str) -> bool:
    """Whether this is a character of words that touches what is before it, but no underscore."""
    return is_glued_letter(word) and word.strip(JOINER) != "_"


# ---- parts of words


def cut_words(words: Iterable[str], *, digits: bool = False, whole_codes: bool = False) -> list[str]:
    """`word_parts`, from the words of `word_punct`; with `digits`, `word_digits`; with `whole_codes`, `code_parts` and
    `code_digits`."""
    tokens: list[str] = []
    for word in words:
        is_cut = (word[0].isalnum() or word[0] == "_") and not (whole_codes and is_code(word))
        parts = _cut(word, digits) if is_cut else [word]
        if digits and tokens and _is_digit(tokens[-1]) and parts[0][0].isdecimal():  # an accent may follow the digit
            tokens.append(" ")
        tokens += parts
    return tokens


def is_code(word: str) -> bool:
    """Whether this is a hexadecimal code of six or more characters, with letters and digits."""
    return _CODE.fullmatch(word) is not None


def _is_digit(word: str) -> bool:
    return len(word) == 1 and word.isdecimal()


@lru_cache(maxsize=2**16)
def _cut(word: str, digits: bool) -> list[str]:
    """The parts of a word, with the marks that join them."""
    kinds = [_find_kind(word[0])]
    starts = [0]
    for position, character in enumerate(word[1:], 1):
        before, kind = kinds[-1], _find_kind(character)
        kinds.append(kind or before)
        if before == kind == "upper":  # WWWord: the last one begins a part
            is_start = _find_kind(word[position + 1 : position + 2]) == "lower"
        else:
            is_start = kind == "_" or (kind not in ("", before) and (before, kind) != ("upper", "lower"))
            is_start |= digits and kind == "digit"
        if is_start:
            starts.append(position)
    parts = [word[start:end] for start, end in pairwise([*starts, len(word)])]
    tokens: list[str] = []
    for number, part in enumerate(parts):
        if part == "_":
            tokens.append(JOINER * (number > 0) + part + JOINER * (number + 1 < len(parts)))
            continue
        touches = digits and number > 0 and _is_digit(parts[number - 1]) and _is_digit(part)
        if number and parts[number - 1] != "_" and not touches:
            tokens.append(JOINER)
        tokens.append(part)
    return tokens


def _find_kind(character: str) -> str:
    """What a character of words is; "" for a mark, which belongs to what it follows, and for none."""
    if character == "_":
        return "_"
    if not character.isalnum():  # U+0345, the iota below Greek vowels, has a capital
        return ""
    if character.lower() != character:  # rather than its category, which depends on the version of Unicode
        return "upper"
    if character.upper() != character:
        return "lower"
    return "digit" if character.isdecimal() else "other"


def _space_all(words: Iterable[str]) -> list[str]:
    return [f" {word}" if number else word for number, word in enumerate(words)]


def _segmenter_of_parts(*, digits: bool = False, whole_codes: bool = False) -> Segmenter:
    return Segmenter(
        lambda text: cut_words(_split_word_punct(text), digits=digits, whole_codes=whole_codes),
        partial(_space_word_punct, digits=digits),
    )


SEGMENTERS: dict[str, Segmenter] = {
    "char": Segmenter(list),
    "whitespace": Segmenter(str.split, _space_all),
    "jieba": Segmenter(lambda text: _jieba_tokenizer().lcut(text)),
    "fugashi": Segmenter(_split_fugashi),
    "word_punct": Segmenter(_split_word_punct, _space_word_punct),
    "word_parts": _segmenter_of_parts(),
    "word_digits": _segmenter_of_parts(digits=True),
    "code_parts": _segmenter_of_parts(whole_codes=True),
    "code_digits": _segmenter_of_parts(digits=True, whole_codes=True),
}


CHAINED = ("word_punct", "word_parts", "word_digits", "code_parts", "code_digits")
"""The segmenters whose words can be `Chains`."""
DIGITS = ("word_digits", "code_digits")
"""Those of which each digit is a word."""


def get_segmenter(name: str) -> Segmenter:
    """The segmenter of this name; raises ValueError if there is none."""
    if name not in SEGMENTERS:
        raise ValueError(f"segmenter is {name!r}: choose one of {', '.join(SEGMENTERS)}")
    return SEGMENTERS[name]


# ---- the words of any tokenizer in a text


def find_spans(text: str, words: Sequence[str]) -> list[Span | None]:
    """Where each word is in the text. Only spaces are passed over, and what may be words that are not found."""
    spans: list[Span | None] = []
    end, is_lost = 0, False
    for word in words:
        if word.isspace():
            spans.append(span := find_space(text, word, end))
            end = end if span is None else span[1]
            continue
        start = text.find(word, end) if word else -1
        if start < 0 or (not is_lost and text[end:start].strip()):
            spans.append(None)
            is_lost = is_lost or bool(word)
            continue
        end, is_lost = start + len(word), False
        spans.append((start, end))
    return spans


def find_space(text: str, word: str, start: int) -> Span | None:
    """Where a word of whitespace is that follows this place; if the text has other whitespace there
    (`fold_unknown_whitespace`), all of that. None: it has none."""
    if text.startswith(word, start):
        return start, start + len(word)
    end = start
    while end < len(text) and text[end].isspace():
        end += 1
    found = text.find(word, start, end)
    first, last = (start, end) if found < 0 else (found, found + len(word))
    return (first, last) if first < last else None


def space_words(words: Sequence[str], join: Callable[[list[str]], str]) -> list[str]:
    """The part of `join(words)` that each word adds.

    A character whose bytes are several words, as in byte-level BPE, is added by the last of them; the others add "".
    Only the previous word decides how a word is spaced, so a few words at a time are joined, and not all before.
    """
    text = join(list(words))
    ends = [0]
    end = previous = placed = 0  # words[:placed] are text[:end]; words[previous:placed] are the context of the next
    for count in range(1, len(words) + 1):
        context = join(list(words[previous:placed]))
        joined = join(list(words[previous:count]))
        piece = joined[len(context) :]
        if piece and joined.startswith(context) and text.startswith(piece, end):  # false within a character
            end, previous, placed = end + len(piece), placed, count
        ends.append(end)
    ends[-1] = len(text)
    return [text[start:end] for start, end in pairwise(ends)]
