"""Badly scaled outputs: rounding in a large output hides any error in a tiny one."""

from __future__ import annotations

import math

from gradproof.engine.subject import Subject
from gradproof.engine.thresholds import NEGLIGIBLE


def outputs_below_rounding(subject: Subject) -> list[str]:
    """Return the names of outputs so small that an error in them is below the rounding of the largest output."""
    spans = subject.outputs.spans
    if len(spans) < 2:
        return []
    sizes = [_size(subject, low, high) for low, high in spans]
    tiny = (low for (low, _), size in zip(spans, sizes, strict=True) if 0 < size < NEGLIGIBLE * max(sizes))
    return [subject.outputs.locate(low).path for low in tiny]


def _size(subject: Subject, low: int, high: int) -> float:
    """Return the largest absolute value among some outputs; zero if there is none or it is not finite."""
    if low == high:
        return 0.0
    largest = float(abs(subject.centre[low:high]).max())
    return largest if math.isfinite(largest) else 0.0
