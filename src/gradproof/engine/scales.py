"""Outputs in units far apart: beside a loss of millions nothing is seen of one of billionths."""

from __future__ import annotations

import math

from gradproof.engine.subject import Subject
from gradproof.engine.thresholds import NEGLIGIBLE


def overshadowed(subject: Subject) -> list[str]:
    """The outputs that are tiny beside others: an error in them is no more than these others' rounding may be."""
    spans = subject.outputs.spans
    if len(spans) < 2:
        return []
    sizes = [_size(subject, low, high) for low, high in spans]
    tiny = (low for (low, _), size in zip(spans, sizes, strict=True) if 0 < size < NEGLIGIBLE * max(sizes))
    return [subject.outputs.locate(low).path for low in tiny]


def _size(subject: Subject, low: int, high: int) -> float:
    """The largest value among some outputs; zero where there is none, or where it is not finite."""
    if low == high:
        return 0.0
    largest = float(abs(subject.centre[low:high]).max())
    return largest if math.isfinite(largest) else 0.0
