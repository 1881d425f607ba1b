"""Outputs in units far apart: beside a loss of millions nothing is seen of one of billionths."""

from __future__ import annotations

import math

from gradproof.engine.subject import Subject

APART = 1e6  # times as large as others: in other units


def apart(subject: Subject) -> list[tuple[int, int]]:
    """Ranges of output tensors in a row whose values are of like size; none where all are."""
    if len(subject.outputs.spans) < 2:
        return []
    ranges: list[tuple[int, int]] = []
    least = most = 0.0
    for low, high in subject.outputs.spans:
        size = _size(subject, low, high)
        smaller, larger = min(least or size, size or least), max(most, size)
        if ranges and larger <= APART * smaller:
            ranges[-1], least, most = (ranges[-1][0], high), smaller, larger
        else:
            ranges.append((low, high))
            least = most = size
    return ranges if len(ranges) > 1 else []


def _size(subject: Subject, low: int, high: int) -> float:
    """The largest value among some outputs; zero where there is none, or where it is not finite."""
    if low == high:
        return 0.0
    largest = float(abs(subject.centre[low:high]).max())
    return largest if math.isfinite(largest) else 0.0
