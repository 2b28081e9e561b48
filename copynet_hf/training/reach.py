"""How the words of targets are reached: known, copied, joined from other words, or spelled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import NamedTuple

from ..data.records import Row
from ..model.segmentation import (
    DROP_FIRST,
    DROP_LAST,
    JOINER,
    MARKS,
    PLAIN,
    fits,
    is_spelled,
    list_parts,
)
from ..model.source import Source
from ..model.tokenization_copynet import CopyNetTokenizer

# Of the letters on their own: their number for each pair, and the shares that are initials in the pair's own source,
# and in that of another pair.
MIN_LETTERS, MIN_OWN, MAX_OTHERS = 0.1, 0.95, 0.7
MIN_CHANGED = 0.03  # of the words that have to be spelled: the number, for each pair, that are changed source words
MIN_OFTEN = 5  # digits that are added to as many numbers are not made up
KINDS = ("known", "copied", "joined", "spelled", "unknown")


class Reach(NamedTuple):
    """How often the words of targets are reached in each way; those that are spelled or unknown, with their sources.

    words: by kind. "known": in the vocabulary. "copied": whole, from the source. "joined": of words, parts or letters,
        perhaps in another case. "spelled": mostly of letters. "unknown": UNK.
    hard: (word, words of its source), "spelled" and "unknown".
    numbers: the same of those "joined" numbers for which digits are made up: of 75014, where its source has 7SO14, but
        not of 2031, where it has 31, if 20 is added to other numbers, too.
    """

    words: Counter[str]
    hard: list[tuple[str, list[str]]]
    numbers: list[tuple[str, list[str]]]

    @property
    def num_words(self) -> int:
        return self.words.total()


def measure_reach(tokenizer: CopyNetTokenizer, pairs: Iterable[Row]) -> Reach:
    """The reach of the targets of these pairs."""
    words: Counter[str] = Counter()
    hard: list[tuple[str, list[str]]] = []
    numbers: list[tuple[str, list[str]]] = []
    added: list[str] = []  # the digits of each number that are not from its source
    known = tokenizer.get_vocab().keys() - {*tokenizer.all_special_tokens}
    for row in pairs:
        source = tokenizer.encode_source(row["text"], row.get("facts"))
        for word in tokenizer.tokenize(row["summary"]):
            if word == JOINER:
                continue
            ids = [] if word in known else tokenizer.encode_target([word], source)
            kind = find_kind(tokenizer, ids, source) if ids else "known"
            words[kind] += 1
            if kind in ("spelled", "unknown"):
                hard.append((word, source.words))
            elif kind == "joined" and word.isdecimal():
                pieces = (piece.strip(JOINER) for piece in source.spell(ids))
                numbers.append((word, source.words))
                added.append("".join(piece for piece in pieces if piece not in source.words))
    often = {digits for digits, count in Counter(added).items() if count >= MIN_OFTEN} | {""}
    rare = [number for number, digits in zip(numbers, added, strict=True) if digits not in often]
    return Reach(words, hard, rare)


def find_kind(tokenizer: CopyNetTokenizer, ids: Sequence[int], source: Source) -> str:
    """One of `KINDS`, for the ids of a word of a target."""
    if len(ids) == 1:
        return "unknown" if ids[0] == tokenizer.unk_token_id else "known" if ids[0] < len(tokenizer) else "copied"
    return "spelled" if is_spelled(source.spell(ids)) else "joined"


def find_changes(hard: Sequence[tuple[str, list[str]]], num_pairs: int) -> list[str]:
    """The marks for accents, beginnings and endings that chains need: each if enough words are words of their sources
    but for these, more than twice as many as by chance.

    Args:
        hard: (word, words of its source), the words that have to be spelled without such marks.
        num_pairs: in how many pairs.
    """
    changes = []
    for mark in (PLAIN, DROP_FIRST, DROP_LAST):
        others = Random(0).sample(hard, len(hard))
        is_own = [_is_changed(word, source, mark) for word, source in hard]
        by_chance = sum(_is_changed(word, other, mark) for (word, _), (_, other) in zip(hard, others, strict=True))
        if sum(is_own) > max(MIN_CHANGED * num_pairs, 2 * by_chance):
            changes.append(mark)
            hard = [each for each, is_explained in zip(hard, is_own, strict=True) if not is_explained]
    return changes


def _is_changed(word: str, source: Iterable[str], mark: str) -> bool:
    """Whether the word, in either case, is one of the source without accents, or with few other letters at one end."""
    folded = word.casefold()
    parts = (each for other in {*source} if len(other) > 2 for each in list_parts(other, [mark], folded))
    return any(marks and fits(part, marks, folded) for part, marks in parts)


def has_initials(tokenizer: CopyNetTokenizer, pairs: Sequence[Row]) -> bool:
    """Whether the letters on their own in the targets are initials of words in their sources: nearly all of them are,
    and far fewer would be of the words of other sources.

    Args:
        tokenizer: of a segmenter with chains.
    """
    letters = own = others = 0
    sources = [_list_initials(tokenizer.tokenize(row["text"])) for row in pairs]
    shuffled = Random(0).sample(sources, len(sources))
    for row, initials, other in zip(pairs, sources, shuffled, strict=True):
        source = tokenizer.encode_source(row["text"])
        for letter in _list_letters(tokenizer, row["summary"], source):
            letters += 1
            own += letter.casefold() in initials
            others += letter.casefold() in other
    return letters > MIN_LETTERS * len(pairs) and own > MIN_OWN * letters and others < MAX_OTHERS * letters


def _list_letters(tokenizer: CopyNetTokenizer, target: str, source: Source) -> Iterator[str]:
    """The letters that are words, or pieces of chains with copies."""
    for word in tokenizer.tokenize(target):
        if word in source.words:
            continue
        ids = tokenizer.encode_target([word], source)
        pieces = [piece.strip(JOINER) for piece in source.spell(ids) if piece not in MARKS]
        letters = [piece for piece in pieces if len(piece) == 1 and piece.isalpha()]
        if len(letters) < len(pieces) or len(word) == 1:
            yield from letters


def _list_initials(words: Iterable[str]) -> set[str]:
    return {word[0].casefold() for word in words if len(word) > 1 and word[0].isalpha()}
