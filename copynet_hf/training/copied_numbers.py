"""Copied numbers in other shapes, for compound copies (see compound_copies.py).

New texts hold numbers of other shapes than the training pairs: 70.9 where these have 70, 22.06.2038 for 22.06, and
28264-19212 for 28264 19212. A model that has only copied one of the shapes stops at the mark.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Sequence
from random import Random

from ..data.files import Row

MARKS = ".,:/-–"
_MARK = f"[{re.escape(MARKS)}]"
# Not part of a word, a code or another number.
_START = rf"(?<!\w)(?<!\d{_MARK})(?<!\d['’−])(?<![^\W\d][-/_@'’])"
_END = rf"(?![\w/]|{_MARK}\w)"
NUMBER = re.compile(rf"{_START}\d+(?:(?:{_MARK}| )\d+)*{_END}")
MIN_COPIED = 0.95  # of the numbers of one shape in targets, so that others of it may change
MAX_DIGITS = 4  # of a whole number; one of more is an identifier
MAX_PARTS = 6  # with spaces between them, in one number
MIN_NUMBERS = 5  # of a shape that sources and targets have


def find_number_shapes(pairs: Sequence[Row]) -> set[str]:
    """The shapes, such as 0.0 of 2.25, in which targets copy their numbers from the sources."""
    found, copied = Counter[str](), Counter[str]()
    for row in pairs:
        in_source = _count_numbers(row["text"])
        for number in {*NUMBER.findall(row["summary"])}:
            found[_get_shape(number)] += 1
            copied[_get_shape(number)] += number in in_source
    return {shape for shape, count in copied.items() if count >= max(MIN_NUMBERS, MIN_COPIED * found[shape])}


def find_numbers(text: str, target: str, shapes: Collection[str]) -> list[str]:
    """The numbers of these shapes that the target copies, if neither text has them within other numbers. None is an
    identifier."""
    texts = [(each, _count_numbers(each), Counter(re.findall(r"\d+", each))) for each in (text, target)]

    def is_alone(number: str) -> bool:
        return all(
            0 < numbers[number] == (digits[number] if number.isdigit() else each.count(number))
            for each, numbers, digits in texts
        )

    found = (number for number in dict.fromkeys(NUMBER.findall(target)) if _get_shape(number) in shapes)
    return [each for each in found if not (each.isdigit() and len(each) > MAX_DIGITS) and is_alone(each)]


def replace_number(text: str, number: str, other: str) -> str:
    """The text with another number wherever it has this one."""
    return re.sub(rf"{_START}{re.escape(number)}{_END}", other, text)


def reshape_number(number: str, random: Random) -> str:
    """The number with a decimal, with a part more or less, with other marks, or with one digit more."""
    zero = ord(number[0]) - unicodedata.decimal(number[0])

    def draw(count: int) -> str:
        return "".join(chr(zero + random.randrange(10)) for _ in range(count))

    longer = f"{chr(zero + random.randint(1, 9))}{number}"
    marks = re.findall(r"\D", number)
    if not marks:
        decimal = f"{number}{random.choice('.,')}{draw(random.randint(1, 2))}"
        return random.choice((decimal, decimal, f"{number}{random.choice(MARKS)}{draw(random.randint(1, 4))}", longer))
    mark = marks[-1]
    other = random.choice([each for each in MARKS if each != mark])
    shapes = [number.rpartition(mark)[0], re.sub(r"\D", other, number), longer]
    if mark in "-–":
        decimal_mark = random.choice(".,")
        shapes += 2 * [re.sub(r"\d+", lambda part: f"{part[0]}{decimal_mark}{draw(1)}", number)]
    else:
        shapes += 2 * [f"{number}{mark}{draw(random.choice((2, 4)))}"]
    return random.choice(shapes)


def _get_shape(number: str) -> str:
    return re.sub(r"\d+", "0", number)


def _count_numbers(text: str) -> Counter[str]:
    """The numbers of a text, and the parts of those with spaces: also 28264 and 19212 of 28264 19212."""
    counts = Counter[str]()
    for number in NUMBER.findall(text):
        parts = number.split(" ")
        for start in range(len(parts)):
            ends = range(start + 1, min(start + MAX_PARTS, len(parts)) + 1)
            counts.update(" ".join(parts[start:end]) for end in ends)
    return counts
