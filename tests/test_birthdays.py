"""The questions about birthdays: what they promise of their numbers, and how answers are counted."""

from __future__ import annotations

from collections import Counter

import pytest
from experiments.birthdays import PATTERNS, PRONOUNS, accuracy, birthday_rows


@pytest.fixture(scope="module")
def rows():
    return birthday_rows(seed=3)


def test_there_are_as_many_patterns_of_each_kind_as_in_coreqas_data():
    counts = {asked: 4 * len(answers) for asked, (_, answers) in PATTERNS.items()}
    assert counts == {"Y": 16, "M": 24, "D": 4, "YM": 16, "MD": 16, "YMD": 32}


def test_no_name_is_in_two_splits_and_no_unseen_value_in_training(rows):
    names = {split: {row["name"] for row in made} for split, made in rows.items()}
    assert sum(map(len, names.values())) == len(set().union(*names.values()))
    learned = {word for row in rows["train"] for fact in row["facts"] for word in fact}
    for row in rows["new persons and dates"]:
        assert not learned & {row["name"], *(row[field] for field in ("year", "month", "day") if field in row)}
    assert rows == birthday_rows(seed=3) != birthday_rows(seed=4)


def test_references_are_right_and_half_of_them_have_a_pronoun(rows):
    for made in rows.values():
        scores = accuracy([row["summary"] for row in made], made)
        assert set(scores.values()) == {100.0}
        pronouns = sum(PRONOUNS[row["gender"]] in row["summary"].split() for row in made)
        assert 0.4 < pronouns / len(made) < 0.6
    assert Counter(len(row["facts"]) for row in rows["train"]) == {4: 12_000}


ASKED = {"name": "Bado", "gender": "female", "year": "1950", "day": "7"}


@pytest.mark.parametrize(
    ("answer", "named", "year", "day", "everything"),
    [
        ("she was born on day 7 in 1950", 1, 1, 1, 1),
        ("Bado 1950 7", 1, 1, 1, 1),
        ("he was born on day 7 in 1950", 0, 1, 1, 0),
        ("Kilo was born on day 7 in 1950", 0, 1, 1, 0),
        ("I think she was born in 1950", 1, 1, 0, 0),
        ("she was born on day 7 of month 3 in 1950", 1, 1, 1, 0),
        ("", 0, 0, 0, 0),
    ],
)
def test_what_counts(answer, named, year, day, everything):
    expected = {"name or pronoun": named, "year": year, "day": day, "all": everything}
    assert accuracy([answer], [ASKED]) == {name: 100.0 * right for name, right in expected.items()}
