"""Questions about birthdays: their numbers and splits, and the scores of answers."""

from __future__ import annotations

from collections import Counter

import pytest
from experiments.data.birthdays import PRONOUNS, make_birthday_rows
from experiments.scores.birthday_answers import score_answers


@pytest.fixture(scope="module")
def rows():
    return make_birthday_rows(seed=3)


def test_no_name_is_in_two_splits_and_no_unseen_value_in_training(rows):
    names = {split: {row["name"] for row in of_split} for split, of_split in rows.items()}
    assert sum(map(len, names.values())) == len(set().union(*names.values()))
    training_words = {word for row in rows["train"] for fact in row["facts"] for word in fact}
    for row in rows["new persons and dates"]:
        assert not training_words & {row["name"], *(row[field] for field in ("year", "month", "day") if field in row)}
    assert rows == make_birthday_rows(seed=3) != make_birthday_rows(seed=4)


def test_references_are_right_and_half_of_them_have_a_pronoun(rows):
    for of_split in rows.values():
        scores = score_answers([row["summary"] for row in of_split], of_split)
        assert set(scores.values()) == {100.0}
        pronouns = sum(PRONOUNS[row["gender"]] in row["summary"].split() for row in of_split)
        assert 0.4 < pronouns / len(of_split) < 0.6
    assert Counter(len(row["facts"]) for row in rows["train"]) == {4: 12_000}


QUESTION = {"name": "Bado", "gender": "female", "year": "1950", "day": "7"}


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
def test_answers_are_scored_by_person_and_numbers(answer, named, year, day, everything):
    expected = {"name or pronoun": named, "year": year, "day": day, "all": everything}
    assert score_answers([answer], [QUESTION]) == {name: 100.0 * right for name, right in expected.items()}
