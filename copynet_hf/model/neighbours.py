"""The words of a source that an initial, or a number with a leading zero, may be of: near what is copied beside it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from functools import cached_property

from .chains import MAX_DROPPED, fold
from .segmentation import JOINER, fold_case

MAX_DISTANCE = 4  # words, in source or target, from one that is copied to what is near it
MAX_NAME_DISTANCE = 8  # words in the target, from an initial to its name
MAX_CAPITALS = 3  # of a word that may be the initials of a name


class Neighbours:
    """Which words of a source are near what a target copies: of several with one initial, the one that is meant is
    usually there.

    Args:
        source, target: words.
    """

    def __init__(self, source: Sequence[str], target: Sequence[str]) -> None:
        self.source, self.target = source, target
        self._copied: dict[str, list[int]] = {}

    @cached_property
    def _places(self) -> dict[str, list[int]]:
        """Where each word of the source is, by its forms; few targets need it."""
        places: dict[str, list[int]] = {}
        for place, word in enumerate(self.source):
            for form in fold(word) if word[:1].isalnum() else ():
                places.setdefault(form, []).append(place)
        return places

    def find(self, index: int) -> list[str]:
        """The source words within `MAX_DISTANCE` of an anchor, the nearest first and the anchor last; all words, if
        there is no anchor. It is what the word `index` of the target copies, or else what the closest word of the
        target does.

        For a single letter, there are none if it is an option, as in `ls -n`, or itself a word near the anchor, or if
        the anchor is a number; but the B of `Miller, T. B., 2019` has the same anchor as its T. Nor for a capital that
        is a word near a name on either side, no farther from it than a word that begins with the letter is from the
        anchor. No words are in lower case unless the anchor is. Behind a number of the source, there is the word that
        follows the number there; so for longer words that begin with one.
        """
        word = self.target[index]
        is_letter = len(word) == 1
        if is_letter and self._is_option(index):
            return []
        if is_letter and (units := self._find_units(index)) is not None:
            return units
        places = [] if is_letter else self._find_parts(fold_case(word))
        if not places:
            first = index
            anchor, places = self._find_anchor(index)
            while is_letter and anchor.isdecimal() and self._is_initial(first - 2):
                first -= 2
                anchor, places = self._find_anchor(first)
            if is_letter and anchor.isdecimal():
                return []
        if not places:
            return list(dict.fromkeys(self.source))
        if word[0].isdecimal() and all(self.source[place].isdecimal() for place in places):  # 11w, 04T06
            is_between = re.search(r"\d[^\W\d]+\d", word)
            return [] if is_between else list(dict.fromkeys(map(self._find_unit, places)))
        distances: dict[str, float] = {}
        for place in places:
            for other in self._list_around(place):
                is_unit = other > place and self.source[place].isdecimal()  # nearer than what is before the number
                distance = (abs(place - other) or MAX_DISTANCE) - is_unit / 2
                distances[self.source[other]] = min(distance, distances.get(self.source[other], distance))
        near = sorted(distances, key=distances.__getitem__)
        if not is_letter:
            return near
        if self._are_names(places):
            near = [other for other in near if not other.islower()]
        if word in distances:
            return []
        nearest = min((distances[other] for other in near if _has_initial(other, word)), default=MAX_DISTANCE)
        return [] if word.isupper() and self._find_alone(index) <= nearest else near

    def find_second(self, index: int) -> str | None:
        """The source word of which a capital of the target is the second letter, near a name beside it: `TR` for the R
        of `Miller, T. R.`, where the source has `Miller TR`. The letter before it has to be the first one."""
        words = self.target[max(0, index - MAX_DISTANCE) : index]
        before = next((word for word in reversed(words) if word[:1].isalnum()), "")
        if not (len(before) == 1 and self.target[index].isupper()):
            return None
        letters = before + self.target[index]
        near = (word for _, word in self._list_near_names(index))
        return next((word for word in near if word[:2] == letters and _may_be_initials(word)), None)

    def _find_units(self, index: int) -> list[str] | None:
        """For a letter behind a number: the words behind that number in the source, if they begin with the letter;
        none, if they do not and the letter is joined to the number, or to numbers on both sides, like the T of a
        moment. None: the letter is no unit."""
        is_joined = index > 0 and self.target[index - 1] == JOINER
        number = _read_number(self.target, index - 1 - is_joined)
        if not number:
            return None
        joiner, number_behind = ("", "", *self.target[index + 1 : index + 3])[-2:]
        if is_joined and joiner == JOINER and number_behind.isdecimal():
            return []
        places = [place for place in self._places.get(number[-1], ()) if _read_number(self.source, place) == number]
        letter = fold_case(self.target[index])
        units = [unit for unit in map(self._find_unit, places) if letter in (form[:1] for form in fold(unit))]
        return list(dict.fromkeys(units)) or ([] if is_joined else None)

    def _find_unit(self, place: int) -> str:
        """The word that follows one in the source, perhaps behind a hyphen; "" without one."""
        for word in self.source[place + 1 : place + 3]:
            if word[:1].isalnum():
                return word
            if word.strip(JOINER) not in ("", "-"):
                break
        return ""

    def find_around(self, index: int) -> set[str]:
        """The source words within `MAX_DISTANCE` of what the words within that distance in the target copy."""
        others = [other for distance in range(1, MAX_DISTANCE + 1) for other in self._list_at(index, distance)]
        places = {place for other in others for place in self._find_copied(fold_case(self.target[other]))}
        return {self.source[other] for place in places for other in self._list_around(place)}

    def _list_around(self, place: int) -> range:
        """The places within `MAX_DISTANCE` of one in the source."""
        return range(max(0, place - MAX_DISTANCE), min(len(self.source), place + MAX_DISTANCE + 1))

    def _find_anchor(self, index: int) -> tuple[str, list[int]]:
        """The closest other word of the target that is in the source, and its places; of two as close, the one that is
        no number. For a capital beside a word in lower case, the closest name within `MAX_DISTANCE`, if there is one:
        the `and` of `Miller, T. R. and Berg, S.` is nearer to the R, and often in the source. Without any such word,
        no places."""
        is_capital = len(self.target[index]) == 1 and self.target[index].isupper()
        closest: tuple[str, list[int]] = ("", [])
        for distance in range(1, len(self.target)):
            words = (self.target[other] for other in self._list_at(index, distance))
            if is_capital:  # other initials, which may be letters elsewhere in the source
                words = (word for word in words if len(word) > 1 or not word.isupper())
            for word in sorted(words, key=str.isdecimal):
                if places := self._find_copied(fold_case(word)):
                    is_first_number = word.isdecimal() and not closest[1]
                    if not is_capital or is_first_number or self._are_names(places):
                        return word, places
                    closest = closest if closest[1] else (word, places)
            if closest[1] and distance >= MAX_DISTANCE:
                break
        return closest

    def _are_names(self, places: Sequence[int]) -> bool:
        """Whether a word of the source is a name, by its capitals."""
        return any(not (self.source[place].islower() or self.source[place].isdecimal()) for place in places)

    def _find_alone(self, index: int) -> float:
        """How far a capital of the target is, as a word of the source, from a name beside it: of `Miller, T. R. and
        Berg, S.`, R may be either name's."""
        near = self._list_near_names(index)
        return min((distance for distance, word in near if word == self.target[index]), default=math.inf)

    def _list_near_names(self, index: int) -> Iterator[tuple[int, str]]:
        """The words of the source near the closest names that the target copies before and behind one of its words,
        and how far they are from these."""
        for step in (-1, 1):
            others = range(index + step, index + step * (MAX_NAME_DISTANCE + 1), step)
            words = (self.target[other] for other in others if 0 <= other < len(self.target))
            copied = (self._find_copied(fold_case(word)) for word in words)
            for place in next((places for places in copied if self._are_names(places)), []):
                yield from ((abs(place - other), self.source[other]) for other in self._list_around(place))

    def _list_at(self, index: int, distance: int) -> list[int]:
        """The words of the target at this distance."""
        return [other for other in (index - distance, index + distance) if 0 <= other < len(self.target)]

    def _is_option(self, index: int) -> bool:
        """Whether a word of the target follows a hyphen, as in `ls -n`, but not one within a word, as in `J.-P.`."""
        before, hyphen = ("", "", *self.target[:index])[-2:]
        return hyphen == f"-{JOINER}" and not before.startswith(JOINER)

    def _is_initial(self, index: int) -> bool:
        """Whether there is a capital with a full stop behind it, as T and B in `T. B. Miller`."""
        if index < 0:
            return False
        letter, stop = self.target[index : index + 2]
        return len(letter) == 1 and letter.isupper() and stop.strip(JOINER) == "."

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


def _has_initial(word: str, letter: str) -> bool:
    """Whether a letter begins a longer word, in either case."""
    return len(word) > 1 and fold_case(letter) in (form[:1] for form in fold(word))


def _may_be_initials(word: str) -> bool:
    """Whether a word may be the initials of a name, as in `Miller TR`."""
    return len(word) <= MAX_CAPITALS and word.isalpha() and word.isupper()


def _read_number(words: Sequence[str], last: int) -> list[str]:
    """The number that ends with this word, which may be the last of its digits; [] if it is none."""
    first = last
    while first >= 0 and words[first].isdecimal() and (first == last or len(words[first]) == len(words[last]) == 1):
        first -= 1
    return list(words[first + 1 : last + 1])


def _count_common_letters(word: str, target: str) -> int:
    """How many characters of a word, from its first on, are in the target. 0: a letter on its own, a digit without
    letters behind it, or fewer than 3 of a longer word."""
    if word in target and (len(word) > 1 or (word.isdecimal() and re.search(rf"(?<!\d){word}[^\W\d]", target))):
        return len(word)
    if word[:3] not in target:
        return 0
    return next((size for size in range(len(word) - 1, 2, -1) if word[:size] in target), 0)
