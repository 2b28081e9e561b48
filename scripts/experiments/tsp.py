"""Shortest tours (Vinyals, Fortunato, Jaitly 2015, Table 2): a Pointer Network names the cities in order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .cards import Card
from .pages import baseline_rows, facts, how_made, model_rows, table, with_digits
from .pointing import POINTER, TEST_SEED, USE, answered, pointer, shown
from .points import Points, tour_length, tour_rows
from .runs import Results, Row, Settings

PLANS: dict[str, dict[str, Any]] = {
    "Ptr-Net, 5 to 10 cities": {"sizes": [5, 10], "examples": 400_000},
    "Ptr-Net, 10 cities": {"sizes": [10, 10], "examples": 500_000},
}
SLOTS = 100  # the most cities that a source can have
TESTS = {f"{size} cities": (size, number) for size, number in {5: 2_000, 10: 2_000, 12: 500, 15: 100}.items()}
SCORES = ("length", "above the shortest")
# of random cities; what the paper measured, Table 2
PAPER = {
    "5 cities": {"shortest": 2.12, "Ptr-Net": 2.12},
    "10 cities": {"shortest": 2.87, "Ptr-Net": 2.88, "Ptr-Net, 5 to 20 cities": 2.87},
}
BEAMS = 8

NAMES = tuple(PLANS)
CARD = Card(
    file="tsp",
    title="Short tours",
    summary="Names cities in the order of a short tour through all of them.",
    language="zxx",
    licence="apache-2.0",
    datasets=("points",),
    pipeline_tag="other",
    data="Cities drawn evenly from the unit square, and their shortest tours by Held and Karp's dynamic programme.",
    limits="Tours are short, not shortest, and grow longer with more cities than it has seen.",
    tests={data: data for data in TESTS},
    metrics={"length": ("length", "length"), "above the shortest": ("gap", "percent above the shortest")},
    examples="5 cities",
    kind=POINTER,
    use=USE,
)


def run(settings: Settings) -> Results:
    """Trains and scores what has not been yet."""
    results = Results("tsp", settings)
    tests = {data: _test_rows(size, count, settings) for data, (size, count) in TESTS.items()}
    results.note(
        signature="mean length of the closed tours",
        examples={data: len(rows) for data, rows in tests.items()},
        baselines={data: baselines(rows) for data, rows in tests.items()},
    )
    for model, plan in PLANS.items():
        if settings.wants(model):
            folder, how = pointer("tsp", model, {"task": "tour", "slots": SLOTS, **plan}, settings)
            for data, rows in tests.items():
                count = len(rows[0]["points"])
                # Each city once, and no end before all were named: the search keeps to tours, as in the paper.
                tours = {"no_repeat_ngram_size": 1, "min_new_tokens": count, "max_new_tokens": count}
                said = answered(folder, data, rows, settings, num_beams=BEAMS, **tours)
                results.add(data, model, scores(said, rows), how, shown(rows, said))
    return results


def _test_rows(size: int, count: int, settings: Settings) -> list[Row]:
    count = count if settings.max_samples is None else min(count, settings.max_samples)
    return tour_rows(count, (size, size), TEST_SEED + size)


def scores(said: Sequence[Sequence[int]], rows: Sequence[Row]) -> dict[str, float]:
    """The mean length, and by how many percent it is above that of the shortest tours."""
    if any(sorted(one) != list(range(len(row["points"]))) for one, row in zip(said, rows, strict=True)):
        raise ValueError("an answer is no tour: the search has to keep to each city once")
    length = sum(tour_length(one, row["points"]) for one, row in zip(said, rows, strict=True)) / len(rows)
    shortest = sum(tour_length(row["answer"], row["points"]) for row in rows) / len(rows)
    return {"length": round(length, 3), "above the shortest": round(100 * (length / shortest - 1), 2)}


def baselines(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """Held and Karp's own, the nearest city next, and the cities as they were given."""
    return {
        "shortest": scores([row["answer"] for row in rows], rows),
        "the nearest city next": scores([nearest_next(row["points"]) for row in rows], rows),
        "as they were given": scores([list(range(len(row["points"]))) for row in rows], rows),
    }


def nearest_next(points: Points) -> list[int]:
    """From the first city always to the nearest that is left."""
    tour, left = [0], set(range(1, len(points)))
    while left:
        here = points[tour[-1]]
        tour.append(min(left, key=lambda index: math.dist(here, points[index])))
        left.remove(tour[-1])
    return tour


def page(results: dict[str, Any]) -> str:
    """What tsp.md says."""
    known = facts(results)
    lines = [
        "# Shortest tours",
        "",
        "Cities drawn evenly from the unit square; the answer names them in the order of a tour, from the first one "
        f"(Vinyals et al. 2015). {known['signature'].capitalize()}, and percent above that of the shortest tours, "
        f"which Held and Karp's programme finds. Beam {BEAMS}, over tours alone. The paper's model learns from a "
        "million examples of each size, or of 5 to 20 cities; its cities are others. Ours learn from 400,000 of 5 to "
        "10 cities, or from 500,000 of 10; 12 and 15 cities are more than they have seen.",
    ]
    for data in TESTS:
        of_paper = PAPER.get(data, {}).items()
        rows = [
            *with_digits(baseline_rows(results, data, SCORES), 3, 2),
            *([f"{model}, in the paper", f"{length:.2f}", "", "", ""] for model, length in of_paper),
            *with_digits(model_rows(results, data, PLANS, SCORES), 3, 2),
        ]
        title = f"## {data}, {known['examples'][data]:,} tests"
        lines += ["", title, "", table(["", *SCORES, "seeds", "minutes"], rows)]
    return "\n".join([*lines, "", how_made(results)]) + "\n"
