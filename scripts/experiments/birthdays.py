"""Questions about birthdays with the facts that answer them, after the synthetic data of CoreQA (He et al. 2017).

Theirs has 108 answer patterns, 54 for men and 54 for women, half with the name and half with a pronoun, in these
numbers for year, month, day and what is asked together: Y 16, M 24, D 4, YM 16, MD 16, YMD 32. The patterns here were
written for this project: 27 answers, each with name or pronoun, for men and women. A row has `text`, `summary`,
`facts`, and what its answer must hold: `name`, `gender`, and of `year`, `month`, `day` those that are asked.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from .runs import Row

# What is asked: questions, and answers of which any may be given.
PATTERNS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "Y": (
        (
            "in which year was {name} born ?",
            "do you know the year of birth of {name} ?",
            "how old a vintage is {name} ?",
        ),
        (
            "{who} was born in {year}",
            "{who} came into the world in {year}",
            "the year {who} was born in is {year}",
            "{who} dates from the year {year} , as far as I know",
        ),
    ),
    "M": (
        (
            "in which month was {name} born ?",
            "which month is it that {name} was born in ?",
            "when in the year is {name} older ?",
        ),
        (
            "{who} was born in month {month}",
            "it was month {month} when {who} was born",
            "{who} has a birthday in month {month}",
            "month {month} , {who} is a child of that",
            "I believe {who} came in month {month}",
            "in month {month} , {who} was born then",
        ),
    ),
    "D": (("on which day of the month was {name} born ?",), ("{who} was born on day {day}",)),
    "YM": (
        ("in which year and month was {name} born ?", "year and month of the birth of {name} ?"),
        (
            "{who} was born in month {month} of {year}",
            "in {year} , month {month} , {who} was born",
            "{who} came in the year {year} and month {month}",
            "it was {year} , in month {month} , that {who} was born",
        ),
    ),
    "MD": (
        (
            "when is the birthday of {name} ?",
            "on which day does {name} have a birthday ?",
            "which day should I call {name} on ?",
        ),
        (
            "{who} has a birthday on day {day} of month {month}",
            "day {day} , month {month} , {who} was born on it",
            "on day {day} of month {month} {who} will be older",
            "month {month} , day {day} : that is when {who} was born",
        ),
    ),
    "YMD": (
        (
            "when was {name} born ?",
            "what is the date of birth of {name} ?",
            "tell me when {name} was born",
            "on which day of which year was {name} born ?",
        ),
        (
            "{who} was born on day {day} of month {month} in {year}",
            "{who} was born in {year} , month {month} , day {day}",
            "in {year} , on day {day} of month {month} , {who} was born",
            "the date is {year} {month} {day} , {who} was born on it",
            "{who} came into the world on day {day} , month {month} , {year}",
            "it was {year} , month {month} , day {day} , when {who} was born",
            "day {day} of month {month} , {year} : so {who} was born",
            "I have read that {who} was born on {day} {month} {year}",
        ),
    ),
}
PRONOUNS = {"male": "he", "female": "she"}
WANTED = {"Y": "year", "M": "month", "D": "day"}
# What values a split draws from: those of unseen values never stand in training, nor could they be a date.
SEEN = {"year": (1900, 2009), "month": (1, 12), "day": (1, 31)}
UNSEEN = {"year": (2010, 2099), "month": (32, 43), "day": (100, 130)}
PERSONS = {"train": 4_000, "validation": 300, "new persons": 700, "new persons and dates": 700}
QUESTIONS_OF_EACH = 3
_SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]


def birthday_rows(seed: int = 0) -> dict[str, list[dict[str, Any]]]:
    """The splits of `PERSONS`; no name stands in two of them."""
    chance, names = random.Random(seed), _names(random.Random(seed + 1))
    rows: dict[str, list[dict[str, Any]]] = {}
    for split, count in PERSONS.items():
        values = UNSEEN if split.endswith("dates") else SEEN
        persons = [_person(next(names), values, chance) for _ in range(count)]
        rows[split] = [_row(person, chance) for person in persons for _ in range(QUESTIONS_OF_EACH)]
    return rows


def _names(chance: random.Random) -> Iterator[str]:
    """Different names, without end."""
    known: set[str] = set()
    while True:
        name = "".join(chance.choices(_SYLLABLES, k=chance.randint(2, 4))).capitalize()
        if name not in known:
            known.add(name)
            yield name


def _person(name: str, values: dict[str, tuple[int, int]], chance: random.Random) -> dict[str, str]:
    born = {field: str(chance.randint(*bounds)) for field, bounds in values.items()}
    return {"name": name, "gender": chance.choice(sorted(PRONOUNS)), **born}


def _row(person: dict[str, str], chance: random.Random) -> dict[str, Any]:
    asked = chance.choices(list(PATTERNS), weights=[len(answers) for _, answers in PATTERNS.values()])[0]
    questions, answers = PATTERNS[asked]
    who = chance.choice([person["name"], PRONOUNS[person["gender"]]])
    facts = [[person["name"], field, person[field]] for field in ("year", "month", "day", "gender")]
    chance.shuffle(facts)
    return {
        "text": chance.choice(questions).format(name=person["name"]),
        "summary": chance.choice(answers).format(who=who, **person),
        "facts": facts,
        "name": person["name"],
        "gender": person["gender"],
        **{WANTED[letter]: person[WANTED[letter]] for letter in asked},
    }


def accuracy(said: Sequence[str], rows: Sequence[Row]) -> dict[str, float]:
    """In percent: the answers that have the person's name or pronoun and nobody else's; of those that were asked for
    them, the ones that have the right year, month, day; and those that have all of that and no other number.
    """
    right: dict[str, list[bool]] = {"name or pronoun": [], "year": [], "month": [], "day": [], "all": []}
    for answer, row in zip(said, rows, strict=True):
        words = answer.split()
        people = [word for word in words if word in PRONOUNS.values() or (word[:1].isupper() and word != "I")]
        named = bool(people) and set(people) <= {row["name"], PRONOUNS[row["gender"]]}
        right["name or pronoun"].append(named)
        numbers = [word for word in words if word.isdigit()]
        asked = [field for field in ("year", "month", "day") if field in row]
        for field in asked:
            right[field].append(row[field] in numbers)
        right["all"].append(named and sorted(numbers) == sorted(row[field] for field in asked))
    return {name: round(100 * sum(values) / len(values), 2) for name, values in right.items() if values}
