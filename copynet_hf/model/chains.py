"""Target words as chains of others: copies of source words, changed by marks, words of the vocabulary, and letters.

`Chains.find` gives the shortest chain whose tokens `segmentation.py` joins to the word. Most marks are in a vocabulary
only if the targets of its training pairs need them (`OPTIONAL`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby, pairwise
from typing import NamedTuple
from unicodedata import category

from .segmentation import (
    CASES,
    CHANGES,
    CUTS,
    DIGRAPHS,
    DROP_FIRST,
    DROP_LAST,
    FIRST,
    INITIAL,
    JOINER,
    LOWERED,
    MARKS,
    OPTIONAL,
    PLAIN,
    PUNCTUATION,
    SECOND,
    TURKISH,
    ZERO_WIDTH,
    fold_case,
    is_glued_letter,
    strip_accents,
    write_digraphs,
)
from .vocabularies import count_letters, sort_by_frequency

MAX_DROPPED = 4  # letters; -skiego becomes -ski in Polish
MAX_ACRONYM = 8  # letters
MAX_INITIALS = 2  # before the first letters of a word
MAX_LEFT_OUT = 3  # words, such as "of", that have no letter in an acronym


_Piece = tuple[str, list[str]]
"""A part of a word, and its tokens."""


class Chains:
    """Words as chains of words in a source, words of a vocabulary and letters.

    Args:
        known: the words of the vocabulary. Without a joiner among them there are no chains.
    """

    def __init__(self, known: Collection[str]) -> None:
        self.known = known
        self.is_possible = JOINER in known
        self.has_initials, self.has_second = INITIAL in known, SECOND in known
        self.changes = tuple(mark for mark in OPTIONAL if mark in known)

    def find(self, word: str, source: Sequence[str], near: Collection[str] | None = None) -> list[str] | None:
        """The tokens that are joined to the word: the shortest chain, and of these the one with the most copies, those
        of single letters not counted. What would be spelled, or is in capitals and no single copy, is an acronym if
        source words in a row begin with its letters.

        Args:
            word: of a text, by one of `CHAINED`.
            source: the words of the source, in their order.
            near: those whose initials can be copied, the nearest first (`Neighbours`); None: all.
        """
        if not self.is_possible:
            return None
        if word.isspace():
            return [word[0]] * len(word) if word[0] in self.known else None
        if PUNCTUATION.fullmatch(word) or word.strip(JOINER) == "_":
            return self._find_punctuation(word, source)
        chain = self._find_word(word, source, source if near is None else near)
        is_copied = chain is not None and sum(token not in MARKS for token in chain) == 1
        if self.has_initials and not is_copied and (chain is None or word.isupper() or is_spelled(chain)):
            return find_acronym(word, source) or chain
        return chain

    def find_whole(self, word: str) -> list[str] | None:
        """The tokens of a whole copy that is written like longer words (`_cut_as_longer_ones`): a code of just as many
        letters and digits as are written of others, like the hash 19bed09 beside 7 letters of longer ones."""
        if word.isalnum() and not (word.isalpha() or word.isdecimal()):
            return next(([mark, word] for mark in self.changes if FIRST.get(mark) == len(word)), None)
        return None

    def find_padded(self, word: str, near: Collection[str]) -> list[str] | None:
        """The tokens of a number of the source with a zero before it, like 05 for `5 May`: a copy, so that it need not
        be learned for each number.

        Args:
            near: the words of the source around what is copied next to the word (`Neighbours`).
        """
        number = word[1:]
        is_padded = word[0] == "0" != number[:1] and number.isdecimal() and number in near and word not in near
        return ["0", JOINER, number] if is_padded and "0" in self.known else None

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
        last_first: list[_Piece] = []
        while last is not None and last[0]:
            last_first.append((word[last[2] : end], last[3]))
            end = last[2]
            last = best[end]
        parts = _write_initials(last_first[::-1], pieces, source)
        return [token for tokens in self._spell_letters(parts, source, near) for token in tokens]

    def _cut_as_longer_ones(self, part: str, tokens: list[str]) -> list[str]:
        """The tokens of a copy after initials, with the mark for its first letters also where it has no more, so that
        they do not depend on its length: `tmiller` is written like `tguilber`, from Tina Miller and Tom Guilbert."""
        for mark, size in FIRST.items():
            if mark in self.changes and part.isalpha() and len(part) <= size and CUTS.keys().isdisjoint(tokens):
                of_case = int(tokens[0] in find_cases(self.changes))
                return [*tokens[:of_case], mark, *tokens[of_case:]]
        return tokens

    def _spell_letters(
        self, chain: Sequence[_Piece], source: Iterable[str], near: Collection[str]
    ) -> Iterator[list[str]]:
        """The tokens of each (part, tokens) of a chain. Single letters next to each other are generated, even if they
        are words of the source: otherwise the spelling of a word would depend on unrelated words there. They are
        copied if they stand in a row there, as in `U. S. A.`, or if they are initials next to a longer part, as in
        `jrmiller`, some of them perhaps capitals on their own, as in O'Brien."""
        start = 0
        for is_single, group in groupby(chain, lambda piece: len(piece[0]) == 1 and not piece[0].isdecimal()):
            pieces = list(group)
            are_initials = len(pieces) < len(chain) and _are_initials(pieces, near)
            may_be_spelled = is_single and len(pieces) > 1 and not are_initials
            letters = "".join(part for part, _ in pieces)
            are_spelled = may_be_spelled and not is_joined(letters, Joined.of_words(source))
            for number, (part, tokens) in enumerate(pieces, start):
                letter = JOINER + part if number else part
                yield [letter] if are_spelled and part.isalpha() and letter in self.known else tokens
            start += len(pieces)


def find_cases(changes: Collection[str]) -> Mapping[str, Callable[[str], str]]:
    """The marks of case, those of Turkish first where chains have them: the others serve words like `INFO`."""
    return CASES if TURKISH.keys().isdisjoint(changes) else TURKISH | CASES


def _list_copies(
    word: str, source: Collection[str], near: Collection[str], changes: tuple[str, ...]
) -> dict[str, list[str]]:
    """The parts of the word that words of the source give, each with the fewest tokens for it: as they are, in another
    case, or by `changes`, marks of `OPTIONAL`; of initials, the first of `near`."""
    pieces: dict[str, list[str]] = {}
    lowered, cases = {*LOWERED.values()}, find_cases(changes)

    def keep(part: str, tokens: list[str]) -> None:
        is_better = part in pieces and len(part) > 1 and _rank(tokens) < _rank(pieces[part])
        if part in word and (part not in pieces or is_better):
            pieces[part] = tokens

    def keep_in_each_case(part: str, tokens: list[str]) -> None:
        keep(part, tokens)
        for mark, change in cases.items() if lowered.isdisjoint(tokens) else ():
            if (changed := change(part)) != part:
                keep(changed, [mark, *tokens])

    folded = fold_case(word)
    if INITIAL in changes:
        for other in (other for other in near if other[:1].isalnum()):  # no accent on its own
            for part, marks in list_initials(other, changes) if len(other) > 1 else [(other, list[str]())]:
                keep_in_each_case(part, [*marks, other])
    substrings = {folded[start : start + size] for size in (1, 2, 3) for start in range(len(folded))}
    for other in dict.fromkeys(source):
        if substrings.isdisjoint(_list_ends(other, changes)):
            continue
        if other in word and (len(other) > 1 or other not in pieces):
            pieces[other] = [other]
        for part, marks in list_parts(other, changes, folded):
            if fits(part, marks, folded):
                keep_in_each_case(part, [*marks, other])
    return pieces


@lru_cache(maxsize=2**16)
def _list_ends(word: str, changes: tuple[str, ...]) -> frozenset[str]:
    """The first three letters of each part of a source word, or the last three of an ending, in lower case; none of
    punctuation. A target word without any of them copies nothing of the word, which is faster to see than by `fits`.
    """
    if PUNCTUATION.fullmatch(word) or word == JOINER:
        return frozenset()
    return frozenset(
        fold_case(part)[-3:] if DROP_FIRST in marks else fold_case(part)[:3]
        for part, marks in list_parts(word, changes)
    )


def _write_initials(chain: list[_Piece], pieces: Mapping[str, list[str]], source: Iterable[str]) -> list[_Piece]:
    """The chain with initials for a known word in front of a copy, if these stand side by side in the source: `go` of
    `gobrien`, for Geir O'Brien.

    Args:
        pieces: the tokens of each part that is a copy.
    """
    (part, _), *rest = chain
    if not (rest and rest[0][0] in pieces and 1 < len(part) <= MAX_INITIALS and part not in pieces):
        return chain
    if any(letter not in pieces for letter in part):
        return chain
    initials = [(letter, [JOINER] * bool(number) + pieces[letter]) for number, letter in enumerate(part)]
    copied = {tokens[-1] for _, tokens in [*initials, rest[0]]}
    names = [word for word in source if word[:1].isalnum()]
    size = len(part) + 1
    are_together = any({*names[start : start + size]} == copied for start in range(len(names)))
    return [*initials, *rest] if len(copied) == size and are_together else chain


def _are_initials(pieces: Iterable[_Piece], near: Collection[str]) -> bool:
    """Whether letters are initials of words, or capitals on their own near these, at least one of them an initial."""
    all_tokens = [tokens for _, tokens in pieces]
    are_near = all(INITIAL in tokens or (tokens[-1] in near and tokens[-1].isupper()) for tokens in all_tokens)
    return are_near and any(INITIAL in tokens for tokens in all_tokens)


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
    """The initial of a word, with and without accents, with the marks for it. Syllables of Hangul are no initials."""
    if word[:1].isalpha() and len(word) > 1 and not is_syllable(word[0]):
        for whole, marks in _list_plain(word, [], changes):
            yield whole[0], [INITIAL, *marks]


def _list_plain(part: str, marks: list[str], changes: Collection[str]) -> Iterator[tuple[str, list[str]]]:
    """A part of a word, and the part without accents, with their marks. That in lower case comes before both: of
    pieces with as many tokens, the first is taken."""
    lowered, plain = (
        [(changed, [mark, *marks]) for mark in group if mark in changes and (changed := CHANGES[mark](part)) != part]
        for group in (LOWERED.values(), (PLAIN, DIGRAPHS))
    )
    yield from (*lowered, (part, marks), *plain)


class Joined(NamedTuple):
    """The words of a source side by side, without what stands between them.

    text: in lower case. words: each as it is, by the place in the text where it ends.
    """

    text: str
    words: dict[int, str]

    @classmethod
    def of_words(cls, words: Iterable[str]) -> Joined:
        text, ends = "", dict[int, str]()
        for word in words:
            if word[:1].isalnum():
                text += fold_case(word)
                ends[len(text)] = word
        return cls(text, ends)


def is_joined(word: str, joined: Joined) -> bool:
    """Whether a word is made of several words in a row, each as it is or in another case."""
    folded, place = fold_case(word), -1
    while len(folded) > 1 and (place := joined.text.find(folded, place + 1)) >= 0:
        ends = [end for end in range(place + 1, place + len(folded) + 1) if end in joined.words]
        if len(ends) > 1 and ends[-1] == place + len(folded) and (place == 0 or place in joined.words):
            starts = [0, *(end - place for end in ends)]
            parts = (word[start:end] for start, end in pairwise(starts))
            if all(_is_cased(part, joined.words[end]) for part, end in zip(parts, ends, strict=True)):
                return True
    return False


def _is_cased(part: str, word: str) -> bool:
    return part == word or any(part == change(word) for change in CASES.values())


def find_acronym(word: str, source: Iterable[str]) -> list[str] | None:
    """The initials that give a word of 2 to `MAX_ACRONYM` letters, of words in a row; those in lower case, such as
    `of`, may be left out. Of several such rows the one with the fewest words in lower case, then with the fewest that
    are left out. A letter on its own is an initial, too, as in `Anna B. Miller`."""
    if not (word.isalpha() and 2 <= len(word) <= MAX_ACRONYM):
        return None
    names = [other for other in source if other[:1].isalpha()]
    found = (_find_initials(word, names, start) for start in range(len(names)))
    rows = [row for row in found if row is not None]
    if not rows:
        return None
    tokens: list[str] = []
    for letter, name in zip(word, min(rows)[2], strict=True):
        case = [] if name[0] == letter else [_find_case(letter)]
        tokens += [JOINER] * bool(tokens) + case + [INITIAL] * (len(name) > 1) + [name]
    return tokens


def _find_initials(
    letters: str, names: Sequence[str], start: int, max_left_out: int = MAX_LEFT_OUT
) -> tuple[int, int, list[str]] | None:
    """How many of the names that begin with these letters, the first of them at `start`, are in lower case, how many
    between them are left out, and the names."""
    name, letter = names[start], letters[0]
    if name[0] != letter and CASES[_find_case(letter)](name[0]) != letter:
        return None
    if len(letters) == 1:
        return int(name.islower()), 0, [name]
    found: list[tuple[int, int, list[str]]] = []
    for left_out, other in enumerate(names[start + 1 : start + 2 + max_left_out]):
        if rest := _find_initials(letters[1:], names, start + 1 + left_out, max_left_out - left_out):
            found.append((rest[0] + name.islower(), rest[1] + left_out, [name, *rest[2]]))
        if not other.islower():
            break
    return min(found, default=None)


def _find_case(letter: str) -> str:
    return "[lower]" if letter.islower() else "[upper]"


def list_stems(word: str, mark: str) -> Iterator[tuple[str, list[str]]]:
    """What is left of a word without up to `MAX_DROPPED` letters at one end, with the marks for it, as long as these
    and the word are fewer tokens than the letters that are left. A syllable of Hangul is three letters, and no stem by
    itself. None for words with digits."""
    if not is_of_letters(word):
        return
    stem = word
    for number in range(1, MAX_DROPPED + 1):
        stem = stem[CUTS[mark]]
        num_syllables = sum(map(is_syllable, stem))
        if len(stem) < 2 or len(stem) + 2 * num_syllables <= number + 1:
            break
        yield stem, [mark] * number


def is_of_letters(word: str) -> bool:
    """Whether a word has letters alone, with their combining marks."""
    return all(letter.isalpha() or letter in ZERO_WIDTH or category(letter)[0] == "M" for letter in word)


def is_syllable(letter: str) -> bool:
    """Whether it is one of Hangul, three letters or a word by itself."""
    return "가" <= letter <= "힣"


def fits(part: str, marks: Collection[str], target: str) -> bool:
    """Whether a part of a word is in the target, in lower case; what is left of an inflected word has to be at its own
    end, and nearly all of it, and the first letters of a word at either end."""
    folded = fold_case(part)
    if folded not in target:
        return False
    if DROP_LAST in marks or DROP_FIRST in marks:
        is_at_end = target.startswith(folded) if DROP_LAST in marks else target.endswith(folded)
        return is_at_end and len(target) - len(folded) <= MAX_DROPPED
    return FIRST.keys().isdisjoint(marks) or target.startswith(folded) or target.endswith(folded)


def _shares_end(word: str, target: str, mark: str) -> bool:
    """Whether the word and the target, in lower case, have the same letters at the end that is left by the mark."""
    end = slice(2) if mark == DROP_LAST else slice(-2, None)
    return fold_case(word[end]) == target[end]


def is_spelled(tokens: Sequence[str], source: Collection[str] = ()) -> bool:
    """Whether most letters of a chain are tokens of their own that are no words of the source."""
    pieces = [token for token in tokens if token not in MARKS]
    letters = sum(len(piece.strip(JOINER)) == 1 and piece not in source for piece in pieces)
    return letters > 1 and 2 * letters > sum(len(piece.strip(JOINER)) for piece in pieces)


@lru_cache(maxsize=2**16)
def fold(word: str) -> tuple[str, ...]:
    """The word in lower case, with and without accents."""
    return tuple(dict.fromkeys(fold_case(change(word)) for change in (str, strip_accents, write_digraphs)))


def list_marks(
    words: Mapping[str, int], size: int = 8000, min_frequency: int = 1, changes: Iterable[str] = ()
) -> list[str]:
    """What a vocabulary needs for chains: marks, and the letters of the words, the most frequent first, each alone and
    glued. Letters take at most a quarter of the vocabulary, or what the frequent words leave for the frequent letters.

    Args:
        words: how often each occurs.
        size: of the vocabulary, without special tokens.
        min_frequency: of a frequent word or letter.
        changes: the marks of `OPTIONAL` that chains have.
    """
    counts = count_letters(words)
    del counts[JOINER]
    marks = [JOINER, *CASES, *changes, " "]
    num_words = sum(count >= min_frequency for count in words.values())
    num_letters = sum(count >= min_frequency for count in counts.values())
    max_letters = max(size // 8, min(num_letters, (size - len(marks) - num_words) // 2))
    letters = sort_by_frequency(counts)[:max_letters]
    glued = [JOINER + letter for letter in letters if is_glued_letter(JOINER + letter) or letter in ZERO_WIDTH]
    return list(dict.fromkeys([*marks, *letters, *glued]))
