"""Points in the unit square, their convex hulls and shortest tours (Vinyals, Fortunato, Jaitly 2015, section 3).

A row is `points`, n pairs of numbers between 0 and 1, and `answer`, indices from 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import combinations, pairwise
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from .runs import Row

Points: TypeAlias = Sequence[Sequence[float]]

FIRST_POINT = 4  # the id of point 0: padding, start, end and UNK come before
END = 2


# ---- convex hulls


def hull_rows(number: int, sizes: tuple[int, int], seed: int) -> list[Row]:
    """Rows whose answer is the hull; the number of points of each is drawn from `sizes`, both ends included."""
    chance = np.random.default_rng(seed)
    counts = chance.integers(sizes[0], sizes[1] + 1, number)
    made = (chance.random((count, 2)) for count in counts)
    return [{"points": points.tolist(), "answer": convex_hull(points.tolist())} for points in made]


def convex_hull(points: Points) -> list[int]:
    """The corners, counter-clockwise from the one with the lowest index, which stands at the end once more.

    Andrew's monotone chain.
    """
    order = sorted(range(len(points)), key=lambda index: tuple(points[index]))
    corners = [*_chain(points, order)[:-1], *_chain(points, order[::-1])[:-1]]
    start = corners.index(min(corners))
    corners = corners[start:] + corners[:start]
    return [*corners, corners[0]]


def _chain(points: Points, order: Sequence[int]) -> list[int]:
    """One half of the hull: of points from left to right the lower one."""
    kept: list[int] = []
    for index in order:
        while len(kept) > 1 and _turn(points[kept[-2]], points[kept[-1]], points[index]) <= 0:
            kept.pop()
        kept.append(index)
    return kept


def _turn(a: Sequence[float], b: Sequence[float], c: Sequence[float]) -> float:
    """Above 0 where a, b, c turn to the left."""
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


def same_polygon(said: Sequence[int], wanted: Sequence[int]) -> bool:
    """Whether two closed polygons have the same corners in the same order, wherever they begin."""
    if len(said) != len(wanted) or len(said) < 2 or said[0] != said[-1]:
        return False
    ring, other = list(said[:-1]), list(wanted[:-1])
    return any(ring[start:] + ring[:start] == other for start in range(len(ring)))


def covered(said: Sequence[int], wanted: Sequence[int], points: Points) -> float | None:
    """The share of the hull's area that a polygon covers; None where it is none: not closed, or it crosses itself."""
    if len(said) < 4 or said[0] != said[-1] or len(set(said[:-1])) < len(said) - 1:
        return None
    sides = [(points[a], points[b]) for a, b in pairwise(said)]
    if any(_crosses(*one, *other) for one, other in combinations(sides, 2)):
        return None
    return _area(said, points) / _area(wanted, points)


def _crosses(a: Sequence[float], b: Sequence[float], c: Sequence[float], d: Sequence[float]) -> bool:
    """Whether the lines from a to b and from c to d cross; sides that share a corner do not."""
    return _turn(a, b, c) * _turn(a, b, d) < 0 and _turn(c, d, a) * _turn(c, d, b) < 0


def _area(corners: Sequence[int], points: Points) -> float:
    """The shoelace formula."""
    return abs(sum(_cross(points[a], points[b]) for a, b in pairwise(corners))) / 2


def _cross(a: Sequence[float], b: Sequence[float]) -> float:
    return a[0] * b[1] - a[1] * b[0]


# ---- shortest tours


def tour_rows(number: int, sizes: tuple[int, int], seed: int) -> list[Row]:
    """Rows whose answer is the shortest tour from point 0, by Held and Karp's dynamic programme."""
    chance = np.random.default_rng(seed)
    counts = chance.integers(sizes[0], sizes[1] + 1, number)
    rows: list[Row | None] = [None] * number
    for count in np.unique(counts):
        places = np.flatnonzero(counts == count)
        points = chance.random((len(places), int(count), 2))
        for part in np.array_split(np.arange(len(places)), max(1, len(places) // 5_000)):
            for row, tour in zip(part, shortest_tours(points[part]), strict=True):
                rows[places[row]] = {"points": points[row].tolist(), "answer": tour.tolist()}
    return [row for row in rows if row is not None]


def shortest_tours(points: np.ndarray) -> np.ndarray:
    """(B, n) the shortest tours of (B, n, 2) points; each begins at 0, its second index below its last."""
    rows, n = points.shape[:2]
    far = np.linalg.norm(points[:, :, None] - points[:, None], axis=-1)
    # best[s][:, j]: the shortest way from 0 through all of the set s to j in it; bit j − 1 stands for point j.
    best, before = np.full((1 << (n - 1), rows, n), np.inf), np.zeros((1 << (n - 1), rows, n), dtype=np.int8)
    for j in range(1, n):
        best[1 << (j - 1), :, j] = far[:, 0, j]
    for subset in range(1, 1 << (n - 1)):
        members = [j for j in range(1, n) if subset >> (j - 1) & 1]
        for j in members if len(members) > 1 else ():
            ways = best[subset ^ (1 << (j - 1))] + far[:, :, j]
            before[subset, :, j] = ways.argmin(axis=1)
            best[subset, :, j] = ways.min(axis=1)
    every = np.arange(rows)
    visited = np.full(rows, (1 << (n - 1)) - 1)
    tours = np.zeros((rows, n), dtype=np.int64)
    last = (best[-1] + far[:, :, 0]).argmin(axis=1)
    for place in range(n - 1, 0, -1):
        tours[:, place] = last
        previous = before[visited, every, last]
        visited = visited ^ (1 << (last - 1))
        last = previous.astype(np.int64)
    backwards = tours[:, 1] > tours[:, -1]
    tours[backwards, 1:] = tours[backwards, :0:-1]
    return tours


def tour_length(tour: Sequence[int], points: Points) -> float:
    """The way through the points in this order and back to the first."""
    return sum(math.dist(points[a], points[b]) for a, b in pairwise([*tour, tour[0]]))


# ---- for the model


class Collator:
    """Rows to what the model takes: `input_features` (B, n, 2), `attention_mask` (B, n) and `labels` (B, T)."""

    def __call__(self, rows: Sequence[Row]) -> dict[str, Tensor]:
        labels = [torch.tensor([FIRST_POINT + index for index in row["answer"]] + [END]) for row in rows]
        return collated([row["points"] for row in rows]) | {
            "labels": torch.nn.utils.rnn.pad_sequence(labels, batch_first=True, padding_value=-100)
        }


def collated(points: Sequence[Points]) -> dict[str, Tensor]:
    """The sources alone."""
    features = [torch.tensor(one, dtype=torch.float32) for one in points]
    mask = [torch.ones(len(one), dtype=torch.long) for one in points]
    return {
        "input_features": torch.nn.utils.rnn.pad_sequence(features, batch_first=True),
        "attention_mask": torch.nn.utils.rnn.pad_sequence(mask, batch_first=True),
    }


def answers(generate: Callable[..., Tensor], rows: Sequence[Row], batch_size: int, **options: Any) -> list[list[int]]:
    """What a model answers to each row's points, in order; those of one length are searched together."""
    said: dict[int, list[int]] = {}
    order = sorted(range(len(rows)), key=lambda row: len(rows[row]["points"]))
    for first in range(0, len(order), batch_size):
        places = order[first : first + batch_size]
        sources = collated([rows[row]["points"] for row in places])
        for row, ids in zip(places, generate(**sources, **options).tolist(), strict=True):
            said[row] = [index - FIRST_POINT for index in ids if index >= FIRST_POINT]
    return [said[row] for row in range(len(rows))]
