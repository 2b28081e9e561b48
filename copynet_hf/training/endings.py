"""Words of targets that differ from a word of their source at one end: Anna of Anny, scone of scones.

Where many words change alike, new texts have more of them, which a model can copy and change, but not know.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain

from ..model.chains import MAX_DROPPED, is_of_letters, list_stems
from ..model.segmentation import DROP_FIRST, DROP_LAST, fold_case

MIN_ALIKE, MIN_PAIRS = 5, 0.05  # words that change alike, and the share of all pairs in which one of them does
MIN_SHARE = 0.98  # of a word's pairs whose source lacks it, in which it changes
MAX_CONSTANT = 0.5  # of all pairs; a word that changes in more is the name of a field

Ends = tuple[str, str, str]
"""DROP_LAST or DROP_FIRST, what a source word has at this end, and what a target has in its place."""
SourceEnds = dict[str, set[Ends]]
"""Words of a source that a word may be made of, each with how they differ."""

_SHARED = {DROP_LAST: slice(2), DROP_FIRST: slice(-2, None)}  # letters that two words have in common at the other end


def find_ends(words: Iterable[str], source: Iterable[str]) -> dict[str, SourceEnds]:
    """For each word, the source words that begin or end as it does: of Leśna, the source's Leśnej with (DROP_LAST,
    "ej", "a"). A chain of the word is then a copy, cuts and letters, unless its case is another."""
    alike: dict[tuple[str, str], list[str]] = {}
    for other in {*source}:
        folded = fold_case(other)
        for mark, part in _SHARED.items():
            alike.setdefault((mark, folded[part]), []).append(other)
    found: dict[str, SourceEnds] = {}
    for word in words:
        found[word], folded = {}, fold_case(word)
        for mark, part in _SHARED.items():
            for other in alike.get((mark, folded[part]), ()):
                if fold_case(other) != folded and (ends := _compare(other, folded, mark)):
                    found[word].setdefault(other, set()).add((mark, *ends))
    return found


def _compare(other: str, folded: str, mark: str) -> tuple[str, str] | None:
    """What another word has at one end, and this one, in lower case, has in its place; None: too much, or letters that
    are only put before the other word, which may be initials."""
    if not is_of_letters(folded):
        return None
    for stem, marks in [(other, list[str]()), *list_stems(other, mark)]:
        kept, size = fold_case(stem), len(marks)
        if len(folded) - len(kept) > MAX_DROPPED:
            break
        if mark == DROP_LAST and folded.startswith(kept):
            return fold_case(other[len(other) - size :]), folded[len(kept) :]
        if mark == DROP_FIRST and folded.endswith(kept):
            return (fold_case(other[:size]), folded[: len(folded) - len(kept)]) if size else None
    return None


def find_regular(
    words: Mapping[str, Sequence[SourceEnds]], inside: Collection[str], num_pairs: int
) -> dict[str, set[Ends]]:
    """The words that change in the same ways as at least `MIN_ALIKE` of them, as all streets, and these ways. Not
    where the source word is always the first, as that of Creating: such words are the task's own.

    Args:
        words: the `find_ends` of each, for each pair whose source lacks it.
        inside: words that are not always the first of their source.
        num_pairs: of all.
    """
    all_ends = {
        word: [set[Ends]().union(*(ends for other, ends in pair.items() if other in inside)) for pair in pairs]
        for word, pairs in words.items()
    }
    counts: dict[Ends, Counter[str]] = {}
    for word, pairs in all_ends.items():
        if MIN_SHARE * len(pairs) <= sum(map(bool, pairs)) <= MAX_CONSTANT * num_pairs:
            for ends in chain.from_iterable(pairs):
                counts.setdefault(ends, Counter())[word] += 1
    regular = {ends for ends, of_words in counts.items() if are_regular(of_words, num_pairs)}
    found: dict[str, set[Ends]] = {}
    for ends in regular:
        for word in counts[ends]:
            if sum(not regular.isdisjoint(pair) for pair in all_ends[word]) >= MIN_SHARE * len(all_ends[word]):
                found.setdefault(word, set()).add(ends)
    return found


def are_regular(counts: Counter[str], num_pairs: int) -> bool:
    """Whether a change is seen in enough pairs, and of enough words, to be expected of new words."""
    return len(counts) >= MIN_ALIKE and counts.total() >= MIN_PAIRS * num_pairs
