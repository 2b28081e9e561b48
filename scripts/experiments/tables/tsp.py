"""Shortest tours (Vinyals, Fortunato, Jaitly 2015, Table 2): a Pointer Network writes the cities in order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..data.points import Points, make_tour_rows, measure_tour
from ..data.rows import Row
from ..reports.markdown import read_published, score_table
from ..running.pointer_networks import TEST_SEED, compare_pointer_networks
from ..running.results_file import ResultsFile
from ..running.settings import Settings

TOURS = {"task": "tour", "slots": 100}  # a source has at most 100 cities
PLANS: dict[str, dict[str, Any]] = {
    "Ptr-Net, 5 to 10 cities": TOURS | {"sizes": [5, 10], "examples": 400_000},
    "Ptr-Net, 10 cities": TOURS | {"sizes": [10, 10], "examples": 500_000},
}
# Data set: cities of each source, number of sources.
TESTS = {f"{size} cities": (size, number) for size, number in {5: 2_000, 10: 2_000, 12: 500, 15: 100}.items()}
SCORES = {name: name for name in ("length", "above the shortest")}
BEAMS = 8

MODEL_NAMES = tuple(PLANS)


def run(settings: Settings) -> ResultsFile:
    """Trains and scores the models of the table."""
    results = ResultsFile("tsp", settings)
    tests = {data: _make_test_rows(size, count, settings) for data, (size, count) in TESTS.items()}
    results.add_data_facts(
        signature="mean length of the closed tours",
        examples={data: len(rows) for data, rows in tests.items()},
        baselines={data: score_baselines(rows) for data, rows in tests.items()},
    )
    compare_pointer_networks(
        results, "tsp", PLANS, tests, settings, search_options=_choose_search_options, score=score_tours
    )
    return results


def _choose_search_options(rows: Sequence[Row]) -> dict[str, Any]:
    """The search is restricted to tours, as in the paper: each city once, and the end after the last of them."""
    count = len(rows[0]["points"])
    return {"num_beams": BEAMS, "no_repeat_ngram_size": 1, "min_new_tokens": count, "max_new_tokens": count}


def _make_test_rows(size: int, count: int, settings: Settings) -> list[Row]:
    count = count if settings.max_samples is None else min(count, settings.max_samples)
    return make_tour_rows(count, (size, size), TEST_SEED + size)


def score_tours(tours: Sequence[Sequence[int]], rows: Sequence[Row]) -> dict[str, float]:
    """The mean length, and its excess over the mean length of the shortest tours, in percent.

    Raises:
        ValueError: an output does not visit each city once.
    """
    for tour, row in zip(tours, rows, strict=True):
        if sorted(tour) != list(range(len(row["points"]))):
            raise ValueError(f"the output is {tour}, which is no tour: restrict the search to each city once")
    length = sum(measure_tour(tour, row["points"]) for tour, row in zip(tours, rows, strict=True)) / len(rows)
    shortest = sum(measure_tour(row["answer"], row["points"]) for row in rows) / len(rows)
    return {"length": round(length, 3), "above the shortest": round(100 * (length / shortest - 1), 2)}


def score_baselines(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """Scores the shortest tours, the nearest neighbour heuristic, and the cities in input order."""
    tours_of = {
        "shortest": [row["answer"] for row in rows],
        "the nearest city next": [visit_nearest_neighbours(row["points"]) for row in rows],
        "as they were given": [list(range(len(row["points"]))) for row in rows],
    }
    return {name: score_tours(tours, rows) for name, tours in tours_of.items()}


def visit_nearest_neighbours(points: Points) -> list[int]:
    """The tour from point 0 that always continues to the nearest unvisited point."""
    tour, unvisited = [0], set(range(1, len(points)))
    while unvisited:
        last = points[tour[-1]]
        tour.append(min(unvisited, key=lambda index: math.dist(last, points[index])))
        unvisited.remove(tour[-1])
    return tour


def collect_figures(results: dict[str, Any]) -> dict[str, Any]:
    """The figures of results/tsp.md."""
    published = {
        data: {f"{model}, in the paper": [f"{length:.2f}"] for model, length in of_data.items()}
        for data, of_data in read_published("tsp").items()
    }
    return {
        "beams": BEAMS,
        "examples": [plan["examples"] for plan in PLANS.values()],
        "tables": {
            data: score_table(results, data, PLANS, SCORES, published.get(data), decimals=(3, 2)) for data in TESTS
        },
    }
