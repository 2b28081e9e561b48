"""Points in the unit square, their convex hulls and shortest tours (Vinyals, Fortunato, Jaitly 2015, section 3).

A row has `points`, n pairs of numbers between 0 and 1, and `answer`, indices of points from 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from .rows import Row

Points: TypeAlias = Sequence[Sequence[float]]


# ---- convex hulls


def make_hull_rows(number: int, sizes: tuple[int, int], seed: int) -> list[Row]:
    """Makes rows whose answer is the hull; each has between `sizes[0]` and `sizes[1]` points, both included."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(sizes[0], sizes[1] + 1, number)
    sets = (rng.random((count, 2)).tolist() for count in counts)
    return [{"points": points, "answer": find_convex_hull(points)} for points in sets]


def find_convex_hull(points: Points) -> list[int]:
    """The corners, counter-clockwise from the one with the lowest index, which is repeated at the end.

    Andrew's monotone chain.
    """
    order = sorted(range(len(points)), key=lambda index: tuple(points[index]))
    corners = [*_find_lower_half(points, order)[:-1], *_find_lower_half(points, order[::-1])[:-1]]
    start = corners.index(min(corners))
    corners = corners[start:] + corners[:start]
    return [*corners, corners[0]]


def _find_lower_half(points: Points, order: Sequence[int]) -> list[int]:
    """The lower half of the hull for points from left to right, the upper half for points from right to left."""
    kept: list[int] = []
    for index in order:
        while len(kept) > 1 and cross_product(points[kept[-2]], points[kept[-1]], points[index]) <= 0:
            kept.pop()
        kept.append(index)
    return kept


def cross_product(a: Sequence[float], b: Sequence[float], c: Sequence[float]) -> float:
    """(b − a) × (c − a): positive if the path a, b, c turns left."""
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


# ---- shortest tours


def make_tour_rows(number: int, sizes: tuple[int, int], seed: int) -> list[Row]:
    """Makes rows whose answer is the shortest tour from point 0; sizes as in `make_hull_rows`."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(sizes[0], sizes[1] + 1, number)
    rows: list[Row | None] = [None] * number
    for count in np.unique(counts):
        indices = np.flatnonzero(counts == count)
        points = rng.random((len(indices), int(count), 2))
        for part in np.array_split(np.arange(len(indices)), max(1, len(indices) // 5_000)):
            for row, tour in zip(part, find_shortest_tours(points[part]), strict=True):
                rows[indices[row]] = {"points": points[row].tolist(), "answer": tour.tolist()}
    return [row for row in rows if row is not None]


def find_shortest_tours(points: np.ndarray) -> np.ndarray:
    """The shortest tours, by Held and Karp's dynamic programme.

    Args:
        points: (B, n, 2).

    Returns:
        (B, n) indices; a tour begins at 0, and its second index is below its last.
    """
    rows, n = points.shape[:2]
    distances = np.linalg.norm(points[:, :, None] - points[:, None], axis=-1)
    # best[s][:, j]: length of the shortest path from 0 through the set s to j ∈ s; bit j − 1 of s is point j.
    best, before = np.full((1 << (n - 1), rows, n), np.inf), np.zeros((1 << (n - 1), rows, n), dtype=np.int8)
    for j in range(1, n):
        best[1 << (j - 1), :, j] = distances[:, 0, j]
    for subset in range(1, 1 << (n - 1)):
        members = [j for j in range(1, n) if subset >> (j - 1) & 1]
        for j in members if len(members) > 1 else ():
            lengths = best[subset ^ (1 << (j - 1))] + distances[:, :, j]
            before[subset, :, j] = lengths.argmin(axis=1)
            best[subset, :, j] = lengths.min(axis=1)
    all_rows = np.arange(rows)
    visited = np.full(rows, (1 << (n - 1)) - 1)
    tours = np.zeros((rows, n), dtype=np.int64)
    last = (best[-1] + distances[:, :, 0]).argmin(axis=1)
    for step in range(n - 1, 0, -1):
        tours[:, step] = last
        previous = before[visited, all_rows, last]
        visited = visited ^ (1 << (last - 1))
        last = previous.astype(np.int64)
    backwards = tours[:, 1] > tours[:, -1]
    tours[backwards, 1:] = tours[backwards, :0:-1]
    return tours


def measure_tour(tour: Sequence[int], points: Points) -> float:
    """The length of the closed tour."""
    return sum(math.dist(points[a], points[b]) for a, b in pairwise([*tour, tour[0]]))
