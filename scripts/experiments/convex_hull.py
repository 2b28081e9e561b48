"""Convex hulls (Vinyals, Fortunato, Jaitly 2015, Table 1): a Pointer Network names the corners in order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .cards import Card
from .pages import baseline_rows, facts, how_made, model_rows, table, with_digits
from .pointing import POINTER, TEST_SEED, USE, answered, pointer, shown
from .points import Points, covered, hull_rows, same_polygon
from .runs import Results, Row, Settings, read_rows

PLANS: dict[str, dict[str, Any]] = {
    "Ptr-Net, 5 points": {"sizes": [5, 5], "examples": 500_000},
    "Ptr-Net, 5 to 50 points": {"sizes": [5, 50], "examples": 250_000},
}
SLOTS = 500  # the most points that a source can have
PAPER_FILE = "5 points, the paper's file"
TESTS = {PAPER_FILE: (5, 10_000), "10 points": (10, 2_000), "50 points": (50, 1_000), "200 points": (200, 200)}
SCORES = ("exact", "area", "simple")
# trained on; accuracy and area in percent, Table 1
PAPER: dict[str, dict[str, tuple[float, float | None]]] = {
    PAPER_FILE: {"LSTM, 5 points": (87.7, 99.6), "Ptr-Net, 5 to 50 points": (92.0, 99.6)},
    "10 points": {"LSTM, 10 points": (29.9, None), "Ptr-Net, 5 to 50 points": (87.0, 99.8)},
    "50 points": {"LSTM with attention, 50 points": (38.9, 99.7), "Ptr-Net, 5 to 50 points": (69.6, 99.9)},
    "200 points": {"Ptr-Net, 5 to 50 points": (22.1, 99.9)},
}
BEAMS = 4

NAMES = tuple(PLANS)
CARD = Card(
    file="convex-hull",
    title="Convex hulls",
    summary="Names the corners of the convex hull of points in the plane.",
    language="zxx",
    licence="apache-2.0",
    datasets=("points",),
    pipeline_tag="other",
    data="Points drawn evenly from the unit square, and their hulls by the monotone chain.",
    limits="It points, and does not compute: corners that nearly lie on a line are missed at times.",
    tests={data: data for data in TESTS},
    metrics={"exact": ("accuracy", "exact"), "area": ("area", "area"), "simple": ("simple", "simple polygons")},
    examples=PAPER_FILE,
    kind=POINTER,
    use=USE,
)


def run(settings: Settings) -> Results:
    """Trains and scores what has not been yet."""
    results = Results("convex_hull", settings)
    tests = {data: settings.first(_test_rows(data, settings)) for data in TESTS}
    results.note(
        signature="closed polygons with the same corners in the same order",
        examples={data: len(rows) for data, rows in tests.items()},
        baselines={data: {"all points by angle": baseline(rows)} for data, rows in tests.items()},
    )
    for model, plan in PLANS.items():
        if settings.wants(model):
            folder, how = pointer("convex_hull", model, {"task": "hull", "slots": SLOTS, **plan}, settings)
            for data, rows in tests.items():
                longest = max(len(row["answer"]) for row in rows)
                said = answered(folder, data, rows, settings, num_beams=BEAMS, max_new_tokens=2 * longest)
                results.add(data, model, scores(said, rows), how, shown(rows, said))
    return results


def _test_rows(data: str, settings: Settings) -> list[Row]:
    size, number = TESTS[data]
    if data != PAPER_FILE:
        return hull_rows(number, (size, size), TEST_SEED + size)
    rows = read_rows(settings.data_dir / "ptrnet_convex_hull5" / "test.jsonl")
    return [{"points": row["points"], "answer": [corner - 1 for corner in row["hull"]]} for row in rows]


def scores(said: Sequence[Sequence[int]], rows: Sequence[Row]) -> dict[str, float]:
    """In percent: the same polygons, the hull's area that simple polygons cover, and how many are simple."""
    exact = [same_polygon(one, row["answer"]) for one, row in zip(said, rows, strict=True)]
    areas = [covered(one, row["answer"], row["points"]) for one, row in zip(said, rows, strict=True)]
    simple = [area for area in areas if area is not None]
    return {
        "exact": round(100 * sum(exact) / len(rows), 2),
        "area": round(100 * sum(simple) / len(simple), 2) if simple else 0.0,
        "simple": round(100 * len(simple) / len(rows), 2),
    }


def baseline(rows: Sequence[Row]) -> dict[str, float]:
    return scores([by_angle(row["points"]) for row in rows], rows)


def by_angle(points: Points) -> list[int]:
    """All points, counter-clockwise around their mean: the hull where all of them are corners."""
    x, y = (sum(values) / len(points) for values in zip(*points, strict=True))
    order = sorted(range(len(points)), key=lambda index: math.atan2(points[index][1] - y, points[index][0] - x))
    return [*order, order[0]]


def page(results: dict[str, Any]) -> str:
    """What convex_hull.md says."""
    known = facts(results)
    lines = [
        "# Convex hulls",
        "",
        "Points drawn evenly from the unit square; the answer names the corners of their convex hull, "
        "counter-clockwise from the one with the lowest index, which comes once more at the end (Vinyals et al. "
        f"2015). Exact: {known['signature']}. Area: what simple polygons cover of the hull, in percent; simple: how "
        f"many of them do not cross themselves. Beam {BEAMS}. The paper trains on a million examples with LSTMs of "
        "256 or 512; here GRUs of 256 learn from 500,000 of 5 points, or 250,000 of 5 to 50.",
    ]
    for data in TESTS:
        paper = [[f"{model}, in the paper", *of_paper, None, "", ""] for model, of_paper in PAPER[data].items()]
        rows = [
            *with_digits(baseline_rows(results, data, SCORES), 1, 2),
            *paper,
            *with_digits(model_rows(results, data, PLANS, SCORES), 1, 2),
        ]
        title = f"## {data}, {known['examples'][data]:,} tests"
        lines += ["", title, "", table(["", *SCORES, "seeds", "minutes"], rows)]
    return "\n".join([*lines, "", how_made(results)]) + "\n"
