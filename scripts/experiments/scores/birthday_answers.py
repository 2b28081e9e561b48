"""How answers about birthdays are scored, after CoreQA (He et al. 2017)."""

from __future__ import annotations

from collections.abc import Sequence

from ..data.birthdays import FIELDS, PRONOUNS
from ..data.rows import Row


def score_answers(answers: Sequence[str], rows: Sequence[Row]) -> dict[str, float]:
    """Scores answers in percent.

    Returns:
        `name or pronoun`: answers that mention the person, and no other. `year`, `month`, `day`: answers with the
        right value, of the questions about it. `all`: answers that mention the person and have exactly the numbers
        that the question is about.
    """
    right: dict[str, list[bool]] = {"name or pronoun": [], "year": [], "month": [], "day": [], "all": []}
    for answer, row in zip(answers, rows, strict=True):
        words = answer.split()
        people = [word for word in words if word in PRONOUNS.values() or (word[:1].isupper() and word != "I")]
        is_named = bool(people) and set(people) <= {row["name"], PRONOUNS[row["gender"]]}
        right["name or pronoun"].append(is_named)
        numbers = [word for word in words if word.isdigit()]
        fields = [field for field in FIELDS.values() if field in row]
        for field in fields:
            right[field].append(row[field] in numbers)
        right["all"].append(is_named and sorted(numbers) == sorted(row[field] for field in fields))
    return {name: round(100 * sum(values) / len(values), 2) for name, values in right.items() if values}
