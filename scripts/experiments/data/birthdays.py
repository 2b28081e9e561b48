"""Questions about birthdays with the facts that answer them, after the synthetic data of CoreQA (He et al. 2017).

CoreQA's data have 108 answer patterns, 54 for men and 54 for women, half with the name and half with a pronoun. By
what the question is about, year (Y), month (M) or day (D), they number: Y 16, M 24, D 4, YM 16, MD 16, YMD 32. The
patterns here were written for this project: 27 answers, each with name or pronoun, for men and women.

A row has `text`, `summary`, `facts`, and what its answer must contain: `name`, `gender`, and those of `year`, `month`,
`day` that the question is about.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# By what the question is about: questions, and answers of which each is acceptable.
PATTERNS: dict[str, dict[str, list[str]]] = json.loads(
    Path(__file__).with_name("birthday_patterns.json").read_text(encoding="utf-8")
)
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
    kind = rng.choices(list(PATTERNS), weights=[len(each["answers"]) for each in PATTERNS.values()])[0]
    questions, answers = PATTERNS[kind].values()
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
