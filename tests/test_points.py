"""Hulls and tours against brute force, and the scores of answers."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
import torch
from experiments.data.points import (
    find_convex_hull,
    find_shortest_tours,
    make_hull_rows,
    make_tour_rows,
    measure_tour,
)
from experiments.running.pointer_networks import PointCollator
from experiments.scores.polygons import compute_coverage, is_same_polygon


def is_corner(point, points):
    """Whether the point lies in no triangle of other points."""
    others = [other for other in points if other is not point]

    def side_of_line(a, b):
        return (b[0] - a[0]) * (point[1] - a[1]) - (b[1] - a[1]) * (point[0] - a[0])

    for a, b, c in itertools.combinations(others, 3):
        signs = [side_of_line(a, b) > 0, side_of_line(b, c) > 0, side_of_line(c, a) > 0]
        if all(signs) or not any(signs):
            return False
    return True


def test_the_hull_has_the_points_in_no_triangle_in_counter_clockwise_order():
    for row in make_hull_rows(60, (3, 9), seed=1):
        points, hull = row["points"], row["answer"]
        assert set(hull) == {index for index, point in enumerate(points) if is_corner(point, points)}
        assert hull[0] == hull[-1] == min(hull)
        turns = [
            np.linalg.det([np.subtract(points[b], points[a]), np.subtract(points[c], points[b])])
            for a, b, c in zip(hull, hull[1:], [*hull[2:], hull[1]], strict=False)
        ]
        assert min(turns) > 0


def test_hulls_are_those_of_the_papers_test_file(data_dir):
    file = data_dir / "ptrnet_convex_hull5" / "test.jsonl"
    if not file.is_file():
        pytest.skip(f"{file} is missing")
    with file.open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    assert len(rows) == 10_000
    for row in rows:
        assert is_same_polygon(find_convex_hull(row["points"]), [index - 1 for index in row["hull"]])


def test_tours_are_the_shortest_of_all_permutations():
    for n in (3, 5, 7):
        points = np.random.default_rng(n).random((6, n, 2))
        for tour, of_row in zip(find_shortest_tours(points), points.tolist(), strict=True):
            best = min(measure_tour([0, *rest], of_row) for rest in itertools.permutations(range(1, n)))
            assert sorted(tour) == list(range(n))
            assert tour[0] == 0
            assert tour[1] < tour[-1]
            assert measure_tour(tour, of_row) == pytest.approx(best)


def test_the_same_seed_makes_the_same_rows_and_sizes_are_kept():
    assert make_hull_rows(20, (5, 8), 3) == make_hull_rows(20, (5, 8), 3) != make_hull_rows(20, (5, 8), 4)
    assert {len(row["points"]) for row in make_hull_rows(200, (5, 8), 3)} == {5, 6, 7, 8}
    rows = make_tour_rows(30, (4, 6), 3)
    assert rows == make_tour_rows(30, (4, 6), 3)
    assert {len(row["points"]) for row in rows} == {4, 5, 6}
    assert all(sorted(row["answer"]) == list(range(len(row["points"]))) for row in rows)


SQUARE = [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [0.5, 0.5]]
HULL = [0, 1, 2, 3, 0]


@pytest.mark.parametrize(
    ("polygon", "is_same", "coverage"),
    [
        ([0, 1, 2, 3, 0], True, 1.0),
        ([2, 3, 0, 1, 2], True, 1.0),  # it begins elsewhere
        ([0, 3, 2, 1, 0], False, 1.0),  # clockwise
        ([0, 1, 2, 0], False, 0.5),
        ([0, 1, 2, 4, 0], False, 0.5),
        ([0, 2, 1, 3, 0], False, None),  # it crosses itself
        ([0, 1, 2, 3], False, None),  # it is not closed
        ([0, 1, 1, 2, 0], False, None),
        ([0, 1, 0], False, None),
        ([], False, None),
    ],
)
def test_polygons_are_compared_by_corners_and_by_area(polygon, is_same, coverage):
    assert is_same_polygon(polygon, HULL) is is_same
    assert compute_coverage(polygon, HULL, SQUARE) == (coverage if coverage is None else pytest.approx(coverage))


def test_a_tour_returns_to_its_start():
    assert measure_tour([0, 1, 2, 3], SQUARE) == 4.0
    assert measure_tour([0, 2, 1, 3], SQUARE) == pytest.approx(2 + 2 * math.sqrt(2))


def test_rows_become_features_and_labels():
    batch = PointCollator()([{"points": SQUARE, "answer": HULL}, {"points": SQUARE[:3], "answer": [0, 1, 2, 0]}])
    assert batch["input_features"].shape == (2, 5, 2)
    assert batch["attention_mask"].tolist() == [[1] * 5, [1, 1, 1, 0, 0]]
    assert batch["labels"].tolist() == [[4, 5, 6, 7, 4, 2], [4, 5, 6, 4, 2, -100]]
    assert torch.equal(batch["input_features"][1, :3], torch.tensor(SQUARE[:3]))
