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
- `word_digits`: as `word_parts`, and every digit is a word, the same one wherever it stands: digits touch digits
  without a joiner, and a space between two of them is a token. `B48,906` is `B ￭ 4 8 ￭,￭ 9 0 6`.

Outputs of these three may hold more marks, which no text is split into (`Chains`): a joiner on its own between any
words, `￭x` for a letter that touches what precedes it, `[lower]`, `[upper]` and `[title]` for the case of the next
word, `[plain]` and `[digraphs]` for its letters without accents (`Muller` and `Mueller` of `Müller`), `[initial]` for
its first letter, `[first_3]` to `[first_8]` for as many, and `[drop_first]` and `[drop_last]` for what is left without
the first or the last letter.

Nothing here needs Transformers, so that tokenizers with and without it share this file.
"""

import logging
import re
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
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
_ZERO_WIDTH = "\u200c\u200d"  # a non-joiner and a joiner, within words
_UNDERSCORES = (f"_{JOINER}", f"{JOINER}_{JOINER}")


# Letters whose strokes and ligatures are no accents in Unicode, and how names in German, Danish, Norwegian and Swedish
# are written where there are no umlauts.
_PLAIN = {"ł": "l", "đ": "d", "ð": "d", "ø": "o", "ı": "i", "ħ": "h", "ß": "ss", "æ": "ae", "œ": "oe", "þ": "th"}
_DIGRAPHS = {**_PLAIN, "ä": "ae", "ö": "oe", "ü": "ue", "å": "aa", "ø": "oe"}


def _replace_letters(word: str, letters: Mapping[str, str]) -> str:
    """The word with these letters replaced, capitals too, and without accents and other marks."""
    if word.isascii():
        return word
    plain = (letter for letter in normalize("NFD", _look_up(word, letters)) if category(letter) != "Mn")
    return _look_up("".join(plain), letters)


def _look_up(word: str, letters: Mapping[str, str]) -> str:
    return "".join(
        letters.get(letter) or (letters[letter.lower()].capitalize() if letter.lower() in letters else letter)
        for letter in normalize("NFC", word)
    )


def strip_accents(word: str) -> str:
    """The word without accents and other marks that change its letters: `Jose` of `José`, `Muller` of `Müller`."""
    return _replace_letters(word, _PLAIN)


def write_digraphs(word: str) -> str:
    """The same with two letters for an umlaut and its like: `Mueller` of `Müller`, `Joergensen` of `Jørgensen`."""
    return _replace_letters(word, _DIGRAPHS)


CASES: dict[str, Callable[[str], str]] = {"[lower]": str.lower, "[upper]": str.upper, "[title]": str.capitalize}
"""Marks for the case of the word that follows."""
INITIAL, DROP_FIRST, DROP_LAST = "[initial]", "[drop_first]", "[drop_last]"
FIRST = {f"[first_{number}]": number for number in range(3, 9)}
CUTS = {
    INITIAL: slice(1),
    **{mark: slice(number) for mark, number in FIRST.items()},
    DROP_FIRST: slice(1, None),
    DROP_LAST: slice(-1),
}
"""Marks for the part of the word that follows, in characters."""
PLAIN, DIGRAPHS = "[plain]", "[digraphs]"
CHANGES: dict[str, Callable[[str], str]] = {
    **CASES,
    PLAIN: strip_accents,
    DIGRAPHS: write_digraphs,
    **{mark: itemgetter(part) for mark, part in CUTS.items()},
}
OPTIONAL = (PLAIN, DIGRAPHS, *CUTS)
"""The marks that a vocabulary has only where its targets need them."""
MARKS = frozenset([JOINER, *CHANGES])
"""What is no part of a text itself."""
MAX_DROPPED = 4  # letters; -skiego becomes -ski in Polish
MAX_ACRONYM = 8  # letters
MAX_INITIALS = 2  # before the first letters of a word
MAX_LEFT_OUT = 3  # words within an acronym's
MAX_DISTANCE = 4  # words in the source, between one whose initial is copied and what is copied beside it

_PUNCTUATION = re.compile(rf"({JOINER}?)(\[{JOINER}\]|[^\w\s{JOINER}])({JOINER}?)")

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
        elif _is_glued_letter(word):
            shown = word.strip(JOINER)
            space = "" if glued or word[0] == JOINER else " "
            after_word, glued = True, word[-1] == JOINER
        elif match := _PUNCTUATION.fullmatch(word):
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


def _is_glued_letter(word: str) -> bool:
    """Whether this is a character of words that touches what is before it; an underscore, also what is after it."""
    letter = word[1:2]
    if word[:1] != JOINER or len(word) != 2:
        return word in _UNDERSCORES
    return letter.isalnum() or letter == "_" or category(letter)[0] == "M"


# ---- parts of words


def cut_words(words: Iterable[str], *, digits: bool = False) -> list[str]:
    """`word_parts`, from the words of `word_punct`; with `digits`, `word_digits`."""
    tokens: list[str] = []
    for word in words:
        parts = _cut(word, digits) if word[0].isalnum() or word[0] == "_" else [word]
        if digits and tokens and _is_digit(tokens[-1]) and parts[0][0].isdecimal():  # an accent may follow the digit
            tokens.append(" ")
        tokens += parts
    return tokens


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


# ---- words as chains of others


class Chains:
    """Words as chains of words in a source, words of a vocabulary and letters.

    Args:
        known: the words of the vocabulary. Without a joiner among them there are no chains.
    """

    def __init__(self, known: Collection[str]) -> None:
        self.known = known
        self.is_possible = JOINER in known
        self.has_initials = INITIAL in known
        self.changes = [mark for mark in OPTIONAL if mark in known]

    def find(self, word: str, source: Sequence[str], near: Collection[str] | None = None) -> list[str] | None:
        """The tokens that are joined to the word: the shortest chain, and of these the one with the most copies, those
        of single letters not counted. What would be spelled is an acronym if source words in a row begin with its
        letters.

        Args:
            word: of a text, by one of `CHAINED`.
            source: the words of the source, in their order.
            near: those whose initials can be copied, the nearest first (`Neighbours`); None: all.
        """
        if not self.is_possible:
            return None
        if word.isspace():
            return [word[0]] * len(word) if word[0] in self.known else None
        if _PUNCTUATION.fullmatch(word) or word.strip(JOINER) == "_":
            return self._find_punctuation(word, source)
        chain = self._find_word(word, source, source if near is None else near)
        is_copied = chain is not None and sum(token not in MARKS for token in chain) == 1
        if self.has_initials and not is_copied and (chain is None or word.isupper() or is_spelled(chain)):
            return find_acronym(word, source) or chain
        return chain

    def _find_punctuation(self, word: str, source: Collection[str]) -> list[str] | None:
        """A character with fewer marks at its sides, and joiners for those that it lacks."""
        for words in (source, self.known):
            for left, right in ((False, True), (True, False), (True, True)):
                if (left and word[0] != JOINER) or (right and word[-1] != JOINER):
                    continue
                if (found := word[left : len(word) - right]) in words:
                    return [JOINER] * left + [found] + [JOINER] * right
        return None

    def _find_word(self, word: str, source: Collection[str], near: Collection[str]) -> list[str] | None:
        pieces = _list_copies(word, source, near, self.changes)
        longest = len(word)
        if longest > 100:  # all parts of a key or an address of thousands of characters would take minutes
            longest = max(map(len, [*self.known, *pieces]))
        # for each end: the number of pieces, minus the number of copies but for letters, and start and tokens of the
        # last piece
        best: list[tuple[int, int, int, list[str]] | None] = [(0, 0, 0, [])] + [None] * len(word)
        for start in range(len(word)):
            found = best[start]
            if found is None:
                continue
            count, copies = found[:2]
            joiner = [JOINER] if start else []
            for end in range(min(len(word), start + longest), start, -1):
                part = word[start:end]
                if part in pieces:
                    is_letter = len(part) == 1 and part.isalpha()
                    tokens = pieces[part]
                    if end == len(word) and 0 < start <= MAX_INITIALS and word[:start].isalpha():
                        tokens = self._cut_as_longer_ones(part, tokens)
                    chain = (count + 1, copies - (not is_letter), start, [*joiner, *tokens])
                elif len(part) > 1 and part in self.known:
                    chain = (count + 1, copies, start, [*joiner, part])
                elif len(part) == 1 and (letter := JOINER + part if start else part) in self.known:
                    chain = (count + 1, copies, start, [letter])
                else:
                    continue
                other = best[end]
                if other is None or chain[:2] < other[:2]:
                    best[end] = chain
        last, end = best[-1], len(word)
        if last is None:
            return None
        last_first: list[tuple[str, list[str]]] = []
        while last is not None and last[0]:
            last_first.append((word[last[2] : end], last[3]))
            end = last[2]
            last = best[end]
        return [token for tokens in self._spell_letters(last_first[::-1]) for token in tokens]

    def _cut_as_longer_ones(self, part: str, tokens: list[str]) -> list[str]:
        """The tokens of a copy after initials, with the mark for its first letters also where it has no more, so that
        they do not depend on its length: `tmiller` beside `tguilber`, of Tina Miller and Tom Guilbert."""
        for mark, size in FIRST.items():
            if mark in self.changes and part.isalpha() and len(part) <= size and CUTS.keys().isdisjoint(tokens):
                of_case = int(tokens[0] in CASES)
                return [*tokens[:of_case], mark, *tokens[of_case:]]
        return tokens

    def _spell_letters(self, chain: Sequence[tuple[str, list[str]]]) -> Iterator[list[str]]:
        """The tokens of each (part, tokens) of a chain. Single letters next to each other are generated, even if they
        are words of the source: otherwise the spelling of a word would depend on unrelated words there. So are
        initials, unless all of these letters are some, and a longer part follows or precedes, as in `jrmiller`."""
        start = 0
        for is_single, group in groupby(chain, lambda piece: len(piece[0]) == 1 and not piece[0].isdecimal()):
            pieces = list(group)
            are_initials = len(pieces) < len(chain) and all(INITIAL in tokens for _, tokens in pieces)
            are_spelled = is_single and len(pieces) > 1 and not are_initials
            for number, (part, tokens) in enumerate(pieces, start):
                letter = JOINER + part if number else part
                yield [letter] if are_spelled and part.isalpha() and letter in self.known else tokens
            start += len(pieces)


def _list_copies(
    word: str, source: Collection[str], near: Collection[str], changes: Collection[str]
) -> dict[str, list[str]]:
    """The parts of the word that words of the source give, each with the fewest tokens for it: as they are, in another
    case, or by `changes`, marks of `OPTIONAL`; of initials, the first of `near`."""
    pieces: dict[str, list[str]] = {}

    def keep(part: str, tokens: list[str]) -> None:
        if part in word and (part not in pieces or (part[1:] and _rank(tokens) < _rank(pieces[part]))):
            pieces[part] = tokens

    def keep_in_each_case(part: str, tokens: list[str]) -> None:
        keep(part, tokens)
        for mark, change in CASES.items():
            if (changed := change(part)) != part:
                keep(changed, [mark, *tokens])

    folded = word.casefold()
    if INITIAL in changes:
        for other in near:
            for part, marks in list_initials(other, changes):
                keep_in_each_case(part, [*marks, other])
    for other in dict.fromkeys(source):
        if _PUNCTUATION.fullmatch(other) or other == JOINER:
            continue
        if other in word and (len(other) > 1 or other in near or other not in pieces):
            pieces[other] = [other]
        for part, marks in list_parts(other, changes, folded):
            if fits(part, marks, folded):
                keep_in_each_case(part, [*marks, other])
    return pieces


def _rank(tokens: Sequence[str]) -> tuple[int, bool]:
    """Of two copies of a part the one with fewer tokens is taken, then the one that is whole."""
    return len(tokens), not CUTS.keys().isdisjoint(tokens)


def list_parts(word: str, changes: Collection[str], target: str | None = None) -> Iterator[tuple[str, list[str]]]:
    """The word itself, and what marks of `OPTIONAL` but that of initials leave of it, with these marks.

    Args:
        target: in lower case; leaves out endings and beginnings that do not fit it.
    """
    parts: list[tuple[str, list[str]]] = [(word, [])]
    for mark, size in FIRST.items():
        if mark in changes:
            whole = _list_plain(word, [], changes)
            yield from ((part[:size], [mark, *marks]) for part, marks in whole if len(part) > size)
    for mark in (DROP_FIRST, DROP_LAST):
        if mark in changes and (target is None or not word.isascii() or _shares_end(word, target, mark)):
            parts += list_stems(word, mark)
    for part, marks in parts:
        yield from _list_plain(part, marks, changes)


def list_initials(word: str, changes: Collection[str]) -> Iterator[tuple[str, list[str]]]:
    """The initial of a word, with and without accents, with the marks for it."""
    if word[:1].isalpha() and len(word) > 1:
        for whole, marks in _list_plain(word, [], changes):
            yield whole[0], [INITIAL, *marks]


def _list_plain(part: str, marks: list[str], changes: Collection[str]) -> Iterator[tuple[str, list[str]]]:
    """A part of a word, and the part without accents, with their marks."""
    yield part, marks
    for mark in (PLAIN, DIGRAPHS):
        if mark in changes and (plain := CHANGES[mark](part)) != part:
            yield plain, [mark, *marks]


def find_acronym(word: str, source: Iterable[str]) -> list[str] | None:
    """The initials that give a word of 2 to `MAX_ACRONYM` letters, of words in a row; those in lower case, such as
    `of`, may be left out. Of several such rows the one with the fewest words in lower case, then with the fewest that
    are left out. A letter on its own is an initial, too, as in `Anna B. Miller`."""
    if not (word.isalpha() and 2 <= len(word) <= MAX_ACRONYM):
        return None
    names = [other for other in source if other[:1].isalpha()]
    found = (_find_initials(word, names[start : start + len(word) + MAX_LEFT_OUT]) for start in range(len(names)))
    rows = [row for row in found if row is not None]
    if not rows:
        return None
    tokens: list[str] = []
    for letter, name in zip(word, min(rows)[2], strict=True):
        case = [] if name[0] == letter else [_find_case(letter)]
        tokens += [JOINER] * bool(tokens) + case + [INITIAL] * (len(name) > 1) + [name]
    return tokens


def _find_initials(letters: str, names: Sequence[str], num_left_out: int = 0) -> tuple[int, int, list[str]] | None:
    """How many of the names that begin with these letters are in lower case, how many were left out, and the names."""
    if not letters:
        return 0, num_left_out, []
    if not names:
        return None
    (name, *others), found = names, []
    is_lower, fits_letter = name.islower(), letters[0] in (name[0], CASES[_find_case(letters[0])](name[0]))
    if fits_letter and (rest := _find_initials(letters[1:], others, num_left_out)):
        found.append((rest[0] + is_lower, rest[1], [name, *rest[2]]))
    if is_lower and num_left_out < MAX_LEFT_OUT and (rest := _find_initials(letters, others, num_left_out + 1)):
        found.append(rest)
    return min(found, default=None)


def _find_case(letter: str) -> str:
    return "[lower]" if letter.islower() else "[upper]"


def list_stems(word: str, mark: str) -> Iterator[tuple[str, list[str]]]:
    """What is left of a word without up to `MAX_DROPPED` letters at one end, with the marks for it, as long as these
    and the word are fewer tokens than the letters that are left. None for words with digits."""
    if not all(letter.isalpha() or category(letter)[0] == "M" for letter in word):
        return
    stem = word
    for number in range(1, MAX_DROPPED + 1):
        stem = stem[CUTS[mark]]
        if len(stem) <= number + 1:
            break
        yield stem, [mark] * number


def fits(part: str, marks: Collection[str], target: str) -> bool:
    """Whether a part of a word is in the target, in lower case; what is left of an inflected word has to be at its own
    end, and nearly all of it, and the first letters of a word at either end."""
    folded = part.casefold()
    if folded not in target:
        return False
    if DROP_LAST in marks or DROP_FIRST in marks:
        is_at_end = target.startswith(folded) if DROP_LAST in marks else target.endswith(folded)
        return is_at_end and len(target) - len(folded) <= MAX_DROPPED
    return FIRST.keys().isdisjoint(marks) or target.startswith(folded) or target.endswith(folded)


def _shares_end(word: str, target: str, mark: str) -> bool:
    """Whether the word and the target, in lower case, have the same letters at the end that is left by the mark."""
    end = slice(2) if mark == DROP_LAST else slice(-2, None)
    return word[end].casefold() == target[end]


def is_spelled(tokens: Sequence[str], source: Collection[str] = ()) -> bool:
    """Whether most letters of a chain are tokens of their own that are no words of the source."""
    pieces = [token for token in tokens if token not in MARKS]
    letters = sum(len(piece.strip(JOINER)) == 1 and piece not in source for piece in pieces)
    return letters > 1 and 2 * letters > sum(len(piece.strip(JOINER)) for piece in pieces)


class Neighbours:
    """Which words of a source stand near what a target copies: of several with one initial, the one that is meant is
    mostly there.

    Args:
        source, target: words.
    """

    def __init__(self, source: Sequence[str], target: Sequence[str]) -> None:
        self.source, self.target = source, target
        self._places: dict[str, list[int]] = {}
        for place, word in enumerate(source):
            for form in fold(word) if word[:1].isalnum() else ():
                self._places.setdefault(form, []).append(place)
        self._copied: dict[str, list[int]] = {}

    def find(self, index: int) -> list[str]:
        """The source words at most `MAX_DISTANCE` from what the word `index` of the target copies, or else from what
        the word nearest to it does; the nearest first, but that word last. All words, if nothing is copied.

        Of a single letter: none if the source has it there, and no words in lower case beside names or numbers.
        """
        word = self.target[index]
        places = self._find_parts(word.casefold()) if len(word) > 1 else []
        for distance in range(1, len(self.target)):
            if places:
                break
            beside = [other for other in (index - distance, index + distance) if 0 <= other < len(self.target)]
            places = next(filter(None, (self._find_copied(self.target[other].casefold()) for other in beside)), [])
        if not places:
            return list(dict.fromkeys(self.source))
        distances: dict[str, int] = {}
        for place in places:
            for other in range(max(0, place - MAX_DISTANCE), min(len(self.source), place + MAX_DISTANCE + 1)):
                distance = abs(place - other) or MAX_DISTANCE
                distances[self.source[other]] = min(distance, distances.get(self.source[other], distance))
        near = sorted(distances, key=distances.__getitem__)
        if len(word) > 1 or any(self.source[place].islower() for place in places):
            return [] if len(word) == 1 and word in distances else near
        return [] if word in distances else [other for other in near if not other.islower()]

    def _find_parts(self, word: str) -> list[int]:
        """The places of the source words of which the most letters, from the first on, are in the word."""
        lengths = {form: _count_common_letters(form, word) for form in self._places}
        longest = max(lengths.values(), default=0)
        return [place for form, length in lengths.items() if length == longest > 0 for place in self._places[form]]

    def _find_copied(self, word: str) -> list[int]:
        """The places of a word of the target, perhaps inflected there."""
        if word in self._places:
            return self._places[word]
        if word not in self._copied:
            stem = word[: max(MAX_DROPPED, len(word) - MAX_DROPPED)]
            is_name = word.isalpha() and len(word) > MAX_DROPPED
            forms = [form for form in self._places if is_name and form.startswith(stem)]
            self._copied[word] = [place for form in forms for place in self._places[form]]
        return self._copied[word]


def _count_common_letters(word: str, target: str) -> int:
    """How many letters of a word, from its first on, are in the target; 0: fewer than 3, of a longer word."""
    if word in target and len(word) > 1:
        return len(word)
    if word[:3] not in target:
        return 0
    return next((size for size in range(len(word) - 1, 2, -1) if word[:size] in target), 0)


@lru_cache(maxsize=2**16)
def fold(word: str) -> frozenset[str]:
    """The word in lower case, with and without accents."""
    return frozenset(change(word).casefold() for change in (str, strip_accents, write_digraphs))


def list_marks(words: Mapping[str, int], max_letters: int = 1000, changes: Iterable[str] = ()) -> list[str]:
    """What a vocabulary needs for chains: marks, and the letters of the words, the most frequent first.

    Args:
        words: how often each occurs.
        changes: the marks of `OPTIONAL` that chains have.
    """
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for letter in word:
            counts[letter] += count * (letter != JOINER)
    del counts[JOINER]
    letters = [letter for letter, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))][:max_letters]
    glued = [JOINER + letter for letter in letters if _is_glued_letter(JOINER + letter) or letter in _ZERO_WIDTH]
    return list(dict.fromkeys([JOINER, *CASES, *changes, " ", *letters, *glued]))


def _space_all(words: Iterable[str]) -> list[str]:
    return [f" {word}" if number else word for number, word in enumerate(words)]


SEGMENTERS: dict[str, Segmenter] = {
    "char": Segmenter(list),
    "whitespace": Segmenter(str.split, _space_all),
    "jieba": Segmenter(lambda text: _jieba_tokenizer().lcut(text)),
    "fugashi": Segmenter(_split_fugashi),
    "word_punct": Segmenter(_split_word_punct, _space_word_punct),
    "word_parts": Segmenter(lambda text: cut_words(_split_word_punct(text)), _space_word_punct),
    "word_digits": Segmenter(
        lambda text: cut_words(_split_word_punct(text), digits=True), partial(_space_word_punct, digits=True)
    ),
}


CHAINED = ("word_punct", "word_parts", "word_digits")
"""The segmenters whose words can be `Chains`."""


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
        start = text.find(word, end) if word else -1
        if start < 0 or (not is_lost and text[end:start].strip()):
            spans.append(None)
            is_lost = is_lost or bool(word)
            continue
        end, is_lost = start + len(word), False
        spans.append((start, end))
    return spans


def space_words(words: Sequence[str], join: Callable[[list[str]], str]) -> list[str]:
    """The part of `join(words)` that each word adds.

    A character whose bytes are several words, as in byte-level BPE, is added by the last of them; the others add "".
    Only the previous word decides how a word is spaced, so a few words at a time are joined, and not all before.
    """
    text = join(list(words)) if words else ""
    ends = [0]
    end = previous = placed = 0  # words[:placed] are text[:end]; words[previous:placed] are the context of the next
    for count in range(1, len(words) + 1):
        context = join(list(words[previous:placed])) if placed else ""
        joined = join(list(words[previous:count]))
        piece = joined[len(context) :]
        if piece and joined.startswith(context) and text.startswith(piece, end):  # false within a character
            end, previous, placed = end + len(piece), placed, count
        ends.append(end)
    ends[-1] = len(text)
    return [text[start:end] for start, end in pairwise(ends)]
