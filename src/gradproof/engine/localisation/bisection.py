"""Bisection: find the coordinates that carry a residual which can be computed for any range of them."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The single coordinates found, and the ranges left over in which there is more."""

    found: list[int]
    left: list[tuple[int, int]]


def search(
    size: int,
    spans: list[tuple[int, int]],
    residual: Callable[[int, int], float],
    *,
    threshold: float,
    whole: float,
    most: int,
) -> SearchResult:
    """Find up to `most` coordinates that carry the residual, from the worst range down, between tensors first.

    >>> hidden = {3: 1.0, 700: -0.5}
    >>> residual = lambda low, high: sum(value for at, value in hidden.items() if low <= at < high)
    >>> search(1000, [(0, 600), (600, 1000)], residual, threshold=1e-6, whole=0.5, most=10).found
    [3, 700]
    """
    edges = sorted({start for start, _ in spans})
    waiting = [(-abs(whole), 0, size, whole)]
    budget = (most + 2) * (2 + math.ceil(math.log2(max(2, size))))
    found: list[int] = []
    while waiting and len(found) < most and budget > 0:
        _, low, high, value = heapq.heappop(waiting)
        while high - low > 1:  # down to one coordinate, into the worse half each time
            budget -= 1
            middle = middle_of(low, high, edges)
            left = residual(low, middle)
            halves = [(low, middle, left), (middle, high, value - left)]
            worse, other = sorted(halves, key=lambda half: -abs(half[2]))
            if abs(other[2]) > threshold:
                heapq.heappush(waiting, (-abs(other[2]), *other))
            low, high, value = worse
            if not abs(value) > threshold:
                break
        else:
            found.append(low)
    return SearchResult(found, [(low, high) for _, low, high, _ in waiting])


def middle_of(low: int, high: int, edges: list[int]) -> int:
    """Return where to split a range: at the edge between two tensors nearest to its middle, or in the middle."""
    half = (low + high) // 2
    inside = [edge for edge in edges if low < edge < high]
    return min(inside, key=lambda edge: abs(edge - half)) if inside else half
