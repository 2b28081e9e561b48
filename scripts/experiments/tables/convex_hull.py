"""Convex hulls (Vinyals, Fortunato, Jaitly 2015, Table 1): a Pointer Network writes the corners in order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..data.points import Points, make_hull_rows
from ..data.rows import Row, read_rows
from ..reports.markdown import read_published, score_table
from ..running.pointer_networks import TEST_SEED, TRAINING, compare_pointer_networks
from ..running.results_file import ResultsFile
from ..running.settings import Settings
from ..scores.polygons import compute_coverage, is_same_polygon

HULLS = {"task": "hull", "slots": 500}  # a source has at most 500 points
PLANS: dict[str, dict[str, Any]] = {
    "Ptr-Net, 5 points": HULLS | {"sizes": [5, 5], "examples": 500_000},
    "Ptr-Net, 5 to 50 points": HULLS | {"sizes": [5, 50], "examples": 250_000},
}
PAPER_FILE = "5 points, the paper's file"
# Data set: points of each source, number of sources.
TESTS = {PAPER_FILE: (5, 10_000), "10 points": (10, 2_000), "50 points": (50, 1_000), "200 points": (200, 200)}
SCORES = {name: name for name in ("exact", "area", "simple")}
BEAMS = 4

MODEL_NAMES = tuple(PLANS)


def run(settings: Settings) -> ResultsFile:
    """Trains and scores the models of the table."""
    results = ResultsFile("convex_hull", settings)
    tests = {data: settings.limit(_read_test_rows(data, settings)) for data in TESTS}
    results.add_data_facts(
        signature="closed polygons with the same corners in the same order",
        examples={data: len(rows) for data, rows in tests.items()},
        baselines={data: {"all points by angle": score_baseline(rows)} for data, rows in tests.items()},
    )
    compare_pointer_networks(
        results, "convex_hull", PLANS, tests, settings, search_options=_choose_search_options, score=score_polygons
    )
    return results


def _choose_search_options(rows: Sequence[Row]) -> dict[str, Any]:
    return {"num_beams": BEAMS, "max_new_tokens": 2 * max(len(row["answer"]) for row in rows)}


def _read_test_rows(data: str, settings: Settings) -> list[Row]:
    size, number = TESTS[data]
    if data != PAPER_FILE:
        return make_hull_rows(number, (size, size), TEST_SEED + size)
    rows = read_rows(settings.data_dir / "ptrnet_convex_hull5" / "test.jsonl")
    return [{"points": row["points"], "answer": [corner - 1 for corner in row["hull"]]} for row in rows]


def score_polygons(polygons: Sequence[Sequence[int]], rows: Sequence[Row]) -> dict[str, float]:
    """In percent: correct hulls, the mean area of simple polygons relative to the hull, and simple polygons."""
    exact = [is_same_polygon(polygon, row["answer"]) for polygon, row in zip(polygons, rows, strict=True)]
    areas = [
        compute_coverage(polygon, row["answer"], row["points"]) for polygon, row in zip(polygons, rows, strict=True)
    ]
    simple = [area for area in areas if area is not None]
    return {
        "exact": round(100 * sum(exact) / len(rows), 2),
        "area": round(100 * sum(simple) / len(simple), 2) if simple else 0.0,
        "simple": round(100 * len(simple) / len(rows), 2),
    }


def score_baseline(rows: Sequence[Row]) -> dict[str, float]:
    return score_polygons([sort_by_angle(row["points"]) for row in rows], rows)


def sort_by_angle(points: Points) -> list[int]:
    """All points, counter-clockwise around their mean: the hull if all of them are corners."""
    x, y = (sum(values) / len(points) for values in zip(*points, strict=True))
    order = sorted(range(len(points)), key=lambda index: math.atan2(points[index][1] - y, points[index][0] - x))
    return [*order, order[0]]


def collect_figures(results: dict[str, Any]) -> dict[str, Any]:
    """The figures of results/convex_hull.md."""
    published = {
        data: {f"{model}, in the paper": scores for model, scores in of_data.items()}
        for data, of_data in read_published("convex_hull").items()
    }
    return {
        "beams": BEAMS,
        "hidden_size": TRAINING["hidden_size"],
        "examples": [plan["examples"] for plan in PLANS.values()],
        "tables": {
            data: score_table(results, data, PLANS, SCORES, published[data], decimals=(1, 2)) for data in TESTS
        },
    }
