"""Numbers that targets copy: which ones, and in what other shapes."""

from __future__ import annotations

import re
from random import Random

import pytest

from copynet_hf.training.copied_numbers import find_number_shapes, find_numbers, replace_number, reshape_number

SHAPES = {"0", "0.0", "0:0", "0–0", "0 0", "0 0 0", "0 0 0 0"}


@pytest.mark.parametrize(
    ("text", "target", "expected"),
    [
        ("2.25 g (48 %) at 14:15", "48 %, 2.25 g, 14:15", ["48", "2.25", "14:15"]),
        ("melts at 154–155 °C", "154–155", ["154–155"]),
        ("call 28264 19212.", "28264 19212", ["28264 19212"]),
        ("call 28264 19212.", "28264", []),  # as long as an identifier
        ("call 282 192, or 5", "282", ["282"]),
        ("call 282 192, or 5", "192 282", []),
        ('port:80, "8"', '{"port":80,"n":"8"}', ["80", "8"]),
        ("on 5 May, 15:30", "5", ["5"]),
        ("on 5 May, 5:30", "5", []),  # either of the two
        ("row 5", "5, 5:30", []),
        ("call 66 649 89 74", "66 649 89 74", ["66 649 89 74"]),
        ("on 5 May and 5 June", "5", ["5"]),
        ("KA-48, A/48, 48-B, 48kg, x48", "KA-48, A/48, 48-B, 48kg, x48", []),  # in words and codes
        ("Room 48 of KA-48", "48", []),
        ("pay 16,258.73", "16258.73", []),
        ("pay 16,258.73", "16,258.73", []),  # no such shape
        ("٤٧ ٥٨", "٥٨", ["٥٨"]),
    ],
)
def test_a_target_copies_whole_numbers(text: str, target: str, expected: list[str]) -> None:
    assert find_numbers(text, target, SHAPES) == expected


def test_shapes_are_those_whose_numbers_are_copied() -> None:
    rows = [
        {"text": f"on {day} May, {day}:30, {day}.50 or {day},99", "summary": f"{day}: {day}.50, {day}.99, {day}:30"}
        for day in range(1, 30)
    ]
    assert find_number_shapes(rows) == {"0", "0:0"}  # half of the numbers like 1.50 are written from 1,99
    assert find_number_shapes(rows[:4]) == set()  # too few
    rows[0]["summary"] = "17"
    assert find_number_shapes(rows) == {"0", "0:0"}  # 28 of 29 are copied
    rows[1]["summary"] = "17"
    assert find_number_shapes(rows) == {"0:0"}


def test_only_the_number_is_replaced() -> None:
    text = "48, 48.5, 148, KA-48, (48 %), 4.48 and 48"
    assert replace_number(text, "48", "48.9") == "48.9, 48.5, 148, KA-48, (48.9 %), 4.48 and 48.9"


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        ("48", {"#.1", "#,1", "#:1", "#/1", "#-1", "#–1", "1#"}),
        ("2.25", {"#.1", "1#", "2", "2,25", "2:25", "2/25", "2-25", "2–25"}),
        (
            "154–155",
            {"1#", "154", "154.1–155.1", "154,1–155,1", "154.155", "154,155", "154:155", "154/155", "154-155"},
        ),
        ("282 192", {"# 1", "1#", "282", "282.192", "282,192", "282:192", "282/192", "282-192", "282–192"}),
        ("٤٨", {"#.1", "#,1", "#:1", "#/1", "#-1", "#–1", "1#"}),
    ],
)
def test_a_number_gets_other_shapes(number: str, expected: set[str]) -> None:
    shapes = set()
    for seed in range(300):
        shape = reshape_number(number, Random(seed))
        assert shape != number
        digits = re.findall(r"\d", shape)
        assert all(digit.isascii() == number[0].isascii() for digit in digits)  # of one script
        added = shape.replace(number, "#", 1)
        is_range_of_decimals = added == shape and len(digits) > len(re.findall(r"\d", number))
        shapes.add(re.sub(r"(?<=[.,])\d" if is_range_of_decimals else r"(?<!\d)\d+(?=#)|(?<=#.)\d+", "1", added))
    assert shapes == expected
