"""How the words of targets are reached: known, copied, joined from other words, or spelled."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import reduce
from itertools import groupby
from random import Random
from typing import NamedTuple, TypeVar

from ..arguments import MAX_TARGET_LENGTH
from ..data.files import Row
from ..model.chains import (
    MAX_DROPPED,
    MAX_INITIALS,
    find_acronym,
    fits,
    fold,
    is_spelled,
    is_syllable,
    list_parts,
)
from ..model.neighbours import Neighbours
from ..model.segmentation import (
    CHANGES,
    DIGRAPHS,
    DROP_FIRST,
    DROP_LAST,
    FIRST,
    INITIAL,
    JOINER,
    LOWERED,
    MARKS,
    PLAIN,
    SECOND,
    TURKISH,
    fold_case,
    strip_accents,
)
from ..model.source import Source
from ..model.tokenization_copynet import CopyNetTokenizer
from .dataset import take_spread
from .endings import MIN_SHARE, SourceEnds, are_regular, find_ends, find_regular

MIN_INITIALS = 0.1  # for each pair, in addition to those by chance
MIN_SECOND, MIN_SECOND_SHARE = 5, 0.01  # second letters of initials in one word, in all pairs and for each
# Of the words that have to be spelled: the number, for each pair, that are changed source words. And the number of
# initials, unless targets have many letters on their own, such as classes or variants.
MIN_CHANGED = 0.03
# Of words of which only the first letters are copied: the share with the same number of letters, and how many lengths
# the words in the source have at least, each with this share. 100 %, and 5 lengths, where user names have 8 letters; 1
# or 2 lengths where Russian names lose one or two.
MIN_SAME_SIZE, MIN_LENGTHS, MIN_LENGTH_SHARE = 0.8, 3, 0.05
MIN_PLAIN = 0.9  # of the words with accents that are written in lower case
MAX_HARD = 2_000  # words to be spelled from which the marks are found, each compared with its whole source
MIN_OFTEN = 5  # digits that are added to as many numbers are not made up
KINDS = ("known", "copied", "joined", "spelled", "unknown")

_First = TypeVar("_First")
_Second = TypeVar("_Second")
Context = tuple[set[str], list[str]]
"""The initials of source words near a word of a target, and all words of the source."""
Hard = Sequence[tuple[str, list[str]]]
"""(word, words of its source), for words of targets that have to be spelled."""


class Reach(NamedTuple):
    """How often the words of targets are reached in each way; those that are spelled or unknown, with their sources.

    words: by kind. "known": in the vocabulary. "copied": whole, from the source. "joined": of words, parts or letters,
        perhaps in another case. "spelled": mostly of letters. "unknown": UNK.
    hard: (word, words of its source), "spelled" and "unknown", except numbers that are spelled.
    numbers: the same of those "joined" and "spelled" numbers for which digits are made up: of 75014, where its source
        has 7SO14, and of 7900, where it has 7.9k, if 7 is copied, but 9 is not; but not of 2031, where it has 31, if
        20 is added to other numbers, too.
    generated: the same of those "joined" words that are mostly generated, although they are inside a source word:
        ecffc018, of known words such as ec and ff, where the source has 0xECFFC018.
    uncopied: the same of known words that their source lacks.
    num_signs: how many of the words are punctuation in the vocabulary.
    """

    words: Counter[str]
    hard: list[tuple[str, list[str]]]
    numbers: list[tuple[str, list[str]]]
    generated: list[tuple[str, list[str]]]
    uncopied: list[tuple[str, list[str]]]
    num_signs: int

    @property
    def num_words(self) -> int:
        return self.words.total()


def measure_reach(tokenizer: CopyNetTokenizer, pairs: Iterable[Row]) -> Reach:
    """The reach of the targets of these pairs, each up to `MAX_TARGET_LENGTH` words."""
    words: Counter[str] = Counter()
    hard: list[tuple[str, list[str]]] = []
    numbers: list[tuple[str, list[str]]] = []
    generated: list[tuple[str, list[str]]] = []
    uncopied: list[tuple[str, list[str]]] = []
    added: list[tuple[str, bool]] = []  # the digits of each number that are not copied; whether its source has them
    num_signs = 0
    known = tokenizer.get_vocab().keys() - {*tokenizer.all_special_tokens}
    for row in pairs:
        source = tokenizer.encode_source(row["text"], row.get("facts"), max_length=tokenizer.model_max_length)
        source_words = {*source.words}
        folded_words = {fold_case(word) for word in source_words}
        for word in tokenizer.tokenize(row["summary"])[:MAX_TARGET_LENGTH]:
            if word == JOINER:
                continue
            ids = [] if word in known else tokenizer.encode_target([word], source)
            kind = find_kind(tokenizer, ids, source) if ids else "known"
            words[kind] += 1
            pieces = _list_pieces(ids, source) if len(ids) > 1 else []
            made = "".join(piece for piece in pieces if piece not in source_words)
            if kind == "known":
                if word not in source_words:
                    uncopied.append((word, source.words))
                num_signs += not any(map(str.isalnum, word))
            elif kind in ("joined", "spelled") and word.isdecimal():
                numbers.append((word, source.words))
                added.append((made, _has_number_of(made, source_words - {*pieces})))
            elif kind in ("spelled", "unknown"):
                hard.append((word, source.words))
            elif 2 * len(made) > len(word) and any(fold_case(word) in other for other in folded_words):
                generated.append((word, source.words))
    counts = Counter(digits for digits, _ in added)
    rare = [
        number
        for number, (digits, are_of_source) in zip(numbers, added, strict=True)
        if digits and (are_of_source or counts[digits] < MIN_OFTEN)
    ]
    return Reach(words, hard, rare, generated, uncopied, num_signs)


def _has_number_of(digits: str, words: Iterable[str]) -> bool:
    """Whether one of the words has a number, more than zeros, that is among these digits."""
    numbers = ("".join(filter(str.isdecimal, word)) for word in words)
    return any(number.strip("0") and number in digits for number in numbers)


def find_kind(tokenizer: CopyNetTokenizer, ids: Sequence[int], source: Source) -> str:
    """One of `KINDS`, for the ids of a word of a target."""
    if len(ids) == 1:
        return "unknown" if ids[0] == tokenizer.unk_token_id else "known" if ids[0] < len(tokenizer) else "copied"
    return "spelled" if is_spelled(source.spell(ids), source.words) else "joined"


def find_changes(tokenizer: CopyNetTokenizer, pairs: Sequence[Row], reach: Reach) -> list[str]:
    """The marks of `OPTIONAL` that chains need: those for initials, accents, first letters, beginnings, endings and
    Turkish case, each if it turns source words into enough of the words of their targets, more than twice as many as
    by chance.

    Args:
        tokenizer: of a segmenter with chains, without such marks.
        reach: of the pairs' targets; what marks might give is spelled, unknown or generated.
    """
    hard, num_pairs = reach.hard + reach.generated, len(pairs)
    pairs = take_spread(pairs, len(pairs) * MAX_HARD // max(len(hard), MAX_HARD))
    hard = take_spread(hard, MAX_HARD)
    least, first = MIN_CHANGED * len(pairs), _find_first(hard)

    def find(mark: str, other_marks: Collection[str], explained: Collection[int] = ()) -> set[int]:
        """The indices of the hard words that the mark gives, possibly with others; not of those explained already."""
        left = [index for index in range(len(hard)) if index not in explained]
        found = find_beyond_chance(
            [hard[index] for index in left], lambda word, source: _is_changed(word, source, mark, other_marks), least
        )
        return {left[index] for index in found}

    turkish = set(find_beyond_chance(hard, _is_in_turkish_case, least))
    accents = {mark: find(mark, first, turkish) for mark in (PLAIN, DIGRAPHS)}
    known = {mark: _find_known_plain(reach.uncopied, mark, num_pairs) for mark in accents}
    plain = max(accents, key=lambda mark: len(accents[mark]) + len(known[mark]))
    found = {plain: accents[plain]} | {mark: find(mark, [plain], turkish) for mark in first}
    for mark in (DROP_FIRST, DROP_LAST):
        found[mark] = find(mark, [], explained=turkish.union(*found.values()))
    changes = [mark for mark, indices in found.items() if indices or known.get(mark)]
    if not first:
        others = [(word, source) for word, source in reach.uncopied if word not in known[plain]]
        regular = _find_regular_cuts(others, num_pairs)
        changes += (mark for mark in (DROP_FIRST, DROP_LAST) if mark in regular and mark not in changes)
    changes += TURKISH if turkish else ()
    words = [*(word for word in tokenizer.get_vocab() if word not in known[plain]), *changes]
    vocab = {word: index for index, word in enumerate(words)}
    changing = CopyNetTokenizer(vocab, tokenizer.segmenter, tokenizer.max_source_oov)
    if has_initials(changing, pairs):
        changes = [INITIAL, *([SECOND] if _has_second_letters(changing, pairs) else []), *changes]
    return [*changes, LOWERED[plain]] if plain in changes and _are_plain_in_lower_case(changing, pairs) else changes


def _find_known_plain(known: Hard, mark: str, num_pairs: int) -> set[str]:
    """The known words that nearly all their sources have with accents, as the mark writes them without; none if these
    are too few."""
    found: dict[str, list[bool]] = {}
    for word, source in known:
        forms = (fold_case(CHANGES[mark](other)) for other in source if not other.isascii())
        found.setdefault(word, []).append(word.isalpha() and fold_case(word) in forms)
    plain = Counter({word: sum(pairs) for word, pairs in found.items() if sum(pairs) >= MIN_SHARE * len(pairs)})
    return {*plain} if are_regular(plain, num_pairs) else set()


def _find_regular_cuts(known: Hard, num_pairs: int) -> set[str]:
    """The marks for the cuts of known words that change alike, such as scone and bun of scones and buns."""
    words: dict[str, list[SourceEnds]] = {}
    inside: set[str] = set()
    for _, of_pair in groupby(known, key=lambda item: id(item[1])):
        items = list(of_pair)
        inside.update(items[0][1][1:])
        for word, ends in find_ends({word for word, _ in items}, items[0][1]).items():
            words.setdefault(word, []).append(ends)
    return {mark for ends in find_regular(words, inside, num_pairs).values() for mark, own, _ in ends if own}


def _is_in_turkish_case(word: str, source: Iterable[str]) -> bool:
    return any(change(other) == word for other in {*source} for change in TURKISH.values())


def _are_plain_in_lower_case(tokenizer: CopyNetTokenizer, pairs: Iterable[Row]) -> bool:
    """Whether source words with accents that targets write in lower case lose their accents, nearly all of them, as in
    user names: these are then written alike, whether the word has accents or not."""
    counts = Counter[bool]()
    for row in pairs:
        source = tokenizer.encode_source(row["text"], row.get("facts"), max_length=tokenizer.model_max_length)
        marks: list[str] = []
        for piece in source.spell(tokenizer.encode_target(tokenizer.tokenize(row["summary"]), source)):
            if piece in CHANGES:
                marks.append(piece)
                continue
            if "[lower]" in marks or "[lower_tr]" in marks:
                written = reduce(lambda word, mark: CHANGES[mark](word), reversed(marks), piece)
                is_plain = not LOWERED.keys().isdisjoint(marks)
                counts[is_plain] += is_plain or strip_accents(written) != written
            marks = []
    return counts[True] > MIN_PLAIN * counts.total()


def find_beyond_chance(
    items: Sequence[tuple[_First, _Second]], agree: Callable[[_First, _Second], bool], least: float
) -> list[int]:
    """The indices of the items whose first and second part agree; none unless they are more than twice as many as
    agree by chance, when the second parts are shuffled, and exceed these by more than `least`."""
    own = [index for index, item in enumerate(items) if agree(*item)]
    if len(own) <= least:
        return []
    others = Random(0).sample(items, len(items))
    by_chance = sum(agree(first, second) for (first, _), (_, second) in zip(items, others, strict=True))
    return own if len(own) - by_chance > max(least, by_chance) else []


def find_script(word: str) -> str:
    """The script of a word's first letter, such as CYRILLIC, as Unicode names it; "": the word has no letter."""
    return next((unicodedata.name(letter, "").split(" ")[0] for letter in word if letter.isalpha()), "")


def _find_first(hard: Hard) -> list[str]:
    """The mark for the number of letters that nearly all shortened words have, up to two initials not counted; none if
    these words may be inflected: most have no digits, and lose few letters, in one or two lengths. Korean words, most
    of whose names have three syllables, are inflected."""
    sizes, dropped, uninflected = Counter[int](), Counter[int](), 0
    for word, source in hard:
        tails = [fold_case(word)[start:] for start in range(MAX_INITIALS + 1)]
        others = [form for other in {*source} if other.isalnum() and not other.isdecimal() for form in fold(other)]
        cuts = [(len(tail), len(other), other) for tail in tails for other in others if _is_cut(tail, other)]
        size, length, other = max(cuts, default=(0, 0, ""))
        if cuts and not is_syllable(other[-1]):
            sizes[size] += 1
            dropped[length - size] += 1
            uninflected += length - size > MAX_DROPPED or not other.isalpha()
    (size, count), *_ = sizes.most_common(1) or [(0, 0)]
    num_lengths = sum(number > MIN_LENGTH_SHARE * count for number in dropped.values())
    is_cut = count > MIN_SAME_SIZE * sizes.total() and (num_lengths >= MIN_LENGTHS or 2 * uninflected > count)
    return [mark for mark, number in FIRST.items() if number == size and is_cut]


def _is_cut(part: str, word: str) -> bool:
    return 1 < len(part) < len(word) and word.startswith(part)


def _is_changed(word: str, source: Iterable[str], mark: str, other_marks: Collection[str]) -> bool:
    """Whether the mark, possibly with others, gives the word, or most of it, from one of its source."""
    folded = fold_case(word)
    words = (other for other in {*source} if len(other) > 2)
    parts = (part for other in words for part in list_parts(other, {mark, *other_marks}, folded))
    return any(mark in marks and fits(part, marks, folded) for part, marks in parts)


def has_initials(tokenizer: CopyNetTokenizer, pairs: Sequence[Row]) -> bool:
    """Whether letters of targets, on their own, in longer words or in acronyms, are initials of words in their source:
    enough are, and more than twice as many as the letters of other pairs in their places would be. Where few letters
    are on their own, which may be no initials and would then be mistaken for them, fewer initials are enough.

    Args:
        tokenizer: of a segmenter with chains, with all marks that the targets need but that of initials.
    """
    found = list(_find_letters(tokenizer, pairs))
    num_alone = sum(is_alone for is_alone, _ in found)
    share = MIN_INITIALS if num_alone > MIN_INITIALS * len(pairs) else MIN_CHANGED
    return bool(find_beyond_chance([letters for _, letters in found], _are_initials, share * len(pairs)))


def _has_second_letters(tokenizer: CopyNetTokenizer, pairs: Sequence[Row]) -> bool:
    """Whether letters of targets are the second ones of initials that are one word, as in `T. R. Lozano` for
    `Lozano TR`: two letters in a row that are those of a word near them are so hardly ever by chance."""
    number = 0
    for row in pairs:
        target = tokenizer.tokenize(row["summary"])
        neighbours = Neighbours(tokenizer.tokenize(row["text"]), target)
        number += sum(
            len(word) == 1 and neighbours.find_second(place) is not None for place, word in enumerate(target)
        )
    return number > max(MIN_SECOND, MIN_SECOND_SHARE * len(pairs))


def _find_letters(tokenizer: CopyNetTokenizer, pairs: Iterable[Row]) -> Iterator[tuple[bool, tuple[str, Context]]]:
    """The letters and acronyms of targets that are not copied: whether it is a letter on its own beside source words
    whose initial it might be, and what it is, with its context."""
    known = {word for word in tokenizer.get_vocab() if len(word) > 1}  # which are no letters
    for row in pairs:
        source = tokenizer.encode_source(row["text"], row.get("facts"), max_length=tokenizer.model_max_length)
        target = tokenizer.tokenize(row["summary"])
        neighbours = Neighbours(source.words, target)
        for place, word in enumerate(target):
            if word in known or word in source.words:
                continue
            pieces = _list_pieces(tokenizer.encode_target([word], source), source)
            letters = (piece for piece in pieces if len(piece) == 1 and piece.isalpha())
            singles = [fold_case(letter) for letter in letters if not is_syllable(letter)]
            near = neighbours.find(place) if singles else []
            context = ({fold_case(other[0]) for other in near if len(other) > 1 and other[0].isalpha()}, source.words)
            if len(singles) == len(word) > 1:
                yield False, (word, context)
            else:
                yield from ((len(word) == 1 and bool(near), (letter, context)) for letter in singles)


def _are_initials(letters: str, context: Context) -> bool:
    """Whether a letter is the initial of a neighbouring source word, or several are those of source words in a row."""
    initials, words = context
    return letters in initials if len(letters) == 1 else INITIAL in (find_acronym(letters, words) or ())


def _list_pieces(ids: Sequence[int], source: Source) -> list[str]:
    """What a word of a target is made of."""
    return [piece.strip(JOINER) for piece in source.spell(ids) if piece not in MARKS]
