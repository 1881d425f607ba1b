"""Where the errors of a tensor lie, and what they look like: a factor, a shift, the last rows, a tile."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from gradproof.engine.reference.errors import ErrorStatistics
from gradproof.engine.results import Diagnosis
from gradproof.engine.subject import Array
from gradproof.engine.thresholds import FEW, SHARE


def diagnoses(shape: tuple[int, ...], statistics: ErrorStatistics, wrong: Array) -> tuple[Diagnosis, ...]:
    """Return what the wrong entries of a tensor have in common, the best fit first."""
    found = [*_relations(shape, statistics, wrong), *regions(shape, wrong)]
    return tuple(sorted(found, key=lambda each: -each.fit)[:FEW])


def _relations(shape: tuple[int, ...], statistics: ErrorStatistics, wrong: Array) -> Iterator[Diagnosis]:
    """Compare the wrong entries with a multiple of the right numbers, and with their neighbours."""
    claimed, exact = statistics.claimed, statistics.numerical
    if int(wrong.sum()) < FEW or not bool(statistics.arrays.isfinite(claimed[wrong] - exact[wrong]).all()):
        return
    theirs, right = claimed[wrong], exact[wrong]
    size = float((right * right).sum())
    if not size:
        return
    factor = float((theirs * right).sum()) / size
    fit = _fit(theirs - factor * right, theirs - right)
    if fit >= 1 - SHARE:
        yield _multiple(factor, fit)
    count = int(claimed.shape[0])
    for dimension, length in enumerate(shape):
        step = math.prod(shape[dimension + 1 :])
        if length < FEW or count <= 2 * step:
            continue
        for offset in (step, -step):
            shifted = statistics.arrays.roll(exact, offset)
            fit = _fit((claimed - shifted)[wrong], (claimed - exact)[wrong])
            if fit >= 1 - SHARE:
                yield Diagnosis(
                    name="shifted",
                    message=f"The entries are those of the neighbour in dimension {dimension}: shifted by one.",
                    fit=fit,
                    hint="Look for an index that is off by one.",
                )


def _multiple(factor: float, fit: float) -> Diagnosis:
    if abs(factor) < 1e-3:
        name, what = "zero", "are zero"
        hint = "Look for a store that is missing, or a mask that leaves these entries out."
    elif abs(factor + 1) < 1e-3:
        name, what, hint = "sign", "have the opposite sign", "Look at signs."
    else:
        name, what = "factor", f"are {factor:.4g} times the right ones"
        hint = "Look for a scale that is missing, applied twice or inverted."
    return Diagnosis(name=name, message=f"The wrong entries {what}.", fit=fit, hint=hint)


def _fit(left: Array, error: Array) -> float:
    """Return the share of the squared error that is gone."""
    whole = float((error * error).sum())
    return 1 - float((left * left).sum()) / whole if whole else 0.0


def regions(shape: tuple[int, ...], wrong: Array) -> Iterator[Diagnosis]:
    """Name the rows, columns or the tile that hold all wrong entries."""
    count = int(wrong.sum())
    if count < 2 or not shape:
        return
    spans = _spans(shape, wrong)
    sizes = [high - low for low, high in spans]
    share = count / math.prod(sizes)
    narrow = [number for number, size in enumerate(sizes) if size < shape[number]]
    if not narrow or (share < 0.5 and math.prod(sizes) > 4 * count):
        return
    where = ", ".join(":" if number not in narrow else f"{low}:{high}" for number, (low, high) in enumerate(spans))
    last = all(spans[number][1] == shape[number] for number in narrow)
    if len(narrow) == 1:
        axis = {len(shape) - 1: "columns", len(shape) - 2: "rows"}.get(narrow[0], f"slices of dimension {narrow[0]}")
        name = f"last-{axis}" if last and axis in ("rows", "columns") else axis.split()[0]
        message = f"All wrong entries lie in the {'last ' if last else ''}{axis}: [{where}]."
    else:
        name, message = "tile", f"All wrong entries lie in one tile: [{where}]."
    hint = "Look at the mask or the bound of the last block." if last else "Look at the block that computes this part."
    yield Diagnosis(name=name, message=message, fit=min(1.0, share), hint=hint)


def place_of(shape: tuple[int, ...], flags: Array) -> str:
    """Return the smallest box that holds all flagged entries, as an index."""
    spans = _spans(shape, flags) if shape else []
    if all(high - low == length for (low, high), length in zip(spans, shape, strict=True)):
        return "every entry"
    ranges = (
        ":" if high - low == length else f"{low}:{high}" for (low, high), length in zip(spans, shape, strict=True)
    )
    return f"[{', '.join(ranges)}]"


def _spans(shape: Sequence[int], wrong: Array) -> list[tuple[int, int]]:
    """Return the smallest box that holds all wrong entries."""
    flags = wrong.reshape(shape)
    spans = []
    for number, length in enumerate(shape):
        others = tuple(each for each in range(len(shape)) if each != number)
        line = flags
        for each in reversed(others):
            line = line.any(each)
        places = [place for place, flag in enumerate(line.tolist()) if flag]
        spans.append((places[0], places[-1] + 1) if places else (0, length))
    return spans
