"""How polygons are compared with convex hulls (Vinyals, Fortunato, Jaitly 2015, section 4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise

from ..data.points import Points, cross_product


def is_same_polygon(polygon: Sequence[int], hull: Sequence[int]) -> bool:
    """Whether two closed polygons have the same corners in the same order, whichever they begin with."""
    if len(polygon) != len(hull) or len(polygon) < 2 or polygon[0] != polygon[-1]:
        return False
    corners, hull_corners = list(polygon[:-1]), list(hull[:-1])
    return any(corners[start:] + corners[:start] == hull_corners for start in range(len(corners)))


def compute_coverage(polygon: Sequence[int], hull: Sequence[int], points: Points) -> float | None:
    """The polygon's area relative to the hull's; None unless the polygon is closed and simple."""
    if len(polygon) < 4 or polygon[0] != polygon[-1] or len(set(polygon[:-1])) < len(polygon) - 1:
        return None
    sides = [(points[a], points[b]) for a, b in pairwise(polygon)]
    if any(_do_cross(*side, *other) for side, other in combinations(sides, 2)):
        return None
    return _compute_area(polygon, points) / _compute_area(hull, points)


def _do_cross(a: Sequence[float], b: Sequence[float], c: Sequence[float], d: Sequence[float]) -> bool:
    """Whether the segments ab and cd cross; segments that share an end do not."""
    return cross_product(a, b, c) * cross_product(a, b, d) < 0 and cross_product(c, d, a) * cross_product(c, d, b) < 0


def _compute_area(polygon: Sequence[int], points: Points) -> float:
    """The shoelace formula, ½ |Σ x_i y_{i+1} − y_i x_{i+1}|."""
    sides = ((points[a], points[b]) for a, b in pairwise(polygon))
    return abs(sum(a[0] * b[1] - a[1] * b[0] for a, b in sides)) / 2
