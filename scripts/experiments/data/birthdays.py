"""Questions about birthdays with the facts that answer them, after the synthetic data of CoreQA (He et al. 2017).

CoreQA's data have 108 answer patterns, 54 for men and 54 for women, half with the name and half with a pronoun. By
what the question is about, year (Y), month (M) or day (D), they number: Y 16, M 24, D 4, YM 16, MD 16, YMD 32. The
patterns here were written for this project: 27 answers, each with name or pronoun, for men and women.

A row has `text`, `summary`, `facts`, and what its answer must contain: `name`, `gender`, and those of `year`, `month`,
`day` that the question is about.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

# By what the question is about: questions, and answers of which each is acceptable.
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
FIELDS = {"Y": "year", "M": "month", "D": "day"}
# Ranges, both ends included. Unseen values never occur in training, and could not be dates.
SEEN = {"year": (1900, 2009), "month": (1, 12), "day": (1, 31)}
UNSEEN = {"year": (2010, 2099), "month": (32, 43), "day": (100, 130)}
PERSONS = {"train": 4_000, "validation": 300, "new persons": 700, "new persons and dates": 700}
QUESTIONS_OF_EACH = 3
_SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]


def make_birthday_rows(seed: int = 0) -> dict[str, list[dict[str, Any]]]:
    """Makes the splits of `PERSONS`; no two splits share a name."""
    rng, names = random.Random(seed), _draw_names(random.Random(seed + 1))
    rows: dict[str, list[dict[str, Any]]] = {}
    for split, count in PERSONS.items():
        values = UNSEEN if split.endswith("dates") else SEEN
        persons = [_draw_person(next(names), values, rng) for _ in range(count)]
        rows[split] = [_draw_row(person, rng) for person in persons for _ in range(QUESTIONS_OF_EACH)]
    return rows


def _draw_names(rng: random.Random) -> Iterator[str]:
    """Yields names, none twice."""
    seen: set[str] = set()
    while True:
        name = "".join(rng.choices(_SYLLABLES, k=rng.randint(2, 4))).capitalize()
        if name not in seen:
            seen.add(name)
            yield name


def _draw_person(name: str, values: dict[str, tuple[int, int]], rng: random.Random) -> dict[str, str]:
    birthday = {field: str(rng.randint(*bounds)) for field, bounds in values.items()}
    return {"name": name, "gender": rng.choice(sorted(PRONOUNS)), **birthday}


def _draw_row(person: dict[str, str], rng: random.Random) -> dict[str, Any]:
    kind = rng.choices(list(PATTERNS), weights=[len(answers) for _, answers in PATTERNS.values()])[0]
    questions, answers = PATTERNS[kind]
    who = rng.choice([person["name"], PRONOUNS[person["gender"]]])
    facts = [[person["name"], field, person[field]] for field in ("year", "month", "day", "gender")]
    rng.shuffle(facts)
    return {
        "text": rng.choice(questions).format(name=person["name"]),
        "summary": rng.choice(answers).format(who=who, **person),
        "facts": facts,
        "name": person["name"],
        "gender": person["gender"],
        **{FIELDS[letter]: person[FIELDS[letter]] for letter in kind},
    }
