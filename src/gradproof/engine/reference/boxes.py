"""Errors that single entries hide and many show together: sums over boxes of a tensor.

Rounding errors cancel in a sum, and a mistake adds up. The error of an implementation is projected onto the patterns
that mistakes have: a multiple of the entries (a factor), one unit of rounding of each (an offset), and the difference
to the neighbour along each dimension (a shift). Each projection is taken over all boxes of a tensor: an interval of one
entry, of a block or of the whole length along every dimension, so that a row, a column, a tile, a tail and the whole
tensor are boxes. One test covers them all. What a sum may be off is made of

- systematic errors: two units of rounding of every entry, all of one sign, as constants that are rounded make them;
- random errors: the root of the sum of the expected squares, times what the errors of the plain reference add up to
  beyond that, since entries share intermediate numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from gradproof.engine.reference.errors import ANOTHER, RATE, ErrorStatistics
from gradproof.engine.reference.quantiles import deviations_for
from gradproof.engine.subject import Array
from gradproof.engine.thresholds import FEW, SHARE

BLOCK = 16  # entries: the least tile that kernels compute at once
SYSTEMATIC = 2.0  # units of rounding: one for a constant that is rounded to the format, one for its product


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxError:
    """A mistake that boxes of entries share: where, of which pattern, and how many times the pattern it is.

    `inside` flags the entries of the boxes; `bar` is how far the coefficient may be from zero.
    """

    pattern: str
    coefficient: float
    bar: float
    inside: Array


@dataclass(frozen=True, slots=True)
class _Projections:
    """Projections over the boxes of one family: the implementation's and the plain error's, information, coherence."""

    error: Array
    plain: Array
    information: Array
    coherent: Array
    sizes: tuple[int, ...]

    def beyond(self, error: Array) -> Array:
        """Return how many standard deviations each sum exceeds what systematic errors allow."""
        excess = abs(error) - SYSTEMATIC * self.coherent
        return excess.clip(0) / self.information.clip(1e-300) ** 0.5


def box_error(shape: tuple[int, ...], statistics: ErrorStatistics, entries: int, level: float) -> BoxError | None:
    """Return the mistake that the entries of boxes share, if there is one among so many entries of a report.

    `level` is how many times the expected error the implementation's errors typically are.
    """
    shape = _joined(shape)
    patterns = [(name, pattern) for name, pattern in _patterns(shape, statistics) if bool(abs(pattern).any())]
    families = [(name, sums) for name, pattern in patterns for sums in _families(shape, statistics, pattern)]
    if not families:
        return None
    tests = entries + sum(math.prod(sums.error.shape) for _, sums in families)
    beyond_plain = max(float((sums.beyond(sums.plain) ** 2).mean()) ** 0.5 for _, sums in families)
    least = deviations_for(tests, RATE) * max(ANOTHER, level) * (1 + beyond_plain)
    found = [(name, sums, sums.beyond(sums.error) > least) for name, sums in families]
    found = [(name, sums, wrong) for name, sums, wrong in found if bool(wrong.any())]
    if not found:
        return None
    energies = [float((sums.error**2 / sums.information)[wrong].sum()) for _, sums, wrong in found]
    alike = (1 - SHARE) * max(energies)  # as good as the best; of these the larger boxes are preferred
    good = [each for each, energy in zip(found, energies, strict=True) if energy >= alike]
    name, sums, wrong = min(good, key=lambda each: int(each[2].sum()))
    information = float(sums.information[wrong].sum())
    return BoxError(
        pattern=name,
        coefficient=float(sums.error[wrong].sum()) / information,
        bar=(SYSTEMATIC * float(sums.coherent[wrong].sum()) + least * math.sqrt(information)) / information,
        inside=_spread(wrong, sums.sizes, shape, statistics.arrays).reshape(-1),
    )


def _joined(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape of a few dimensions: leading ones are joined."""
    lead = len(shape) - FEW + 1
    return (math.prod(shape[:lead]), *shape[lead:]) if lead > 1 else shape or (1,)


def _patterns(shape: tuple[int, ...], statistics: ErrorStatistics) -> Iterator[tuple[str, Array]]:
    exact = statistics.finite_exact
    yield "factor", exact
    yield "offset", statistics.scale**0.5
    grid = exact.reshape(shape)
    for dimension, length in enumerate(shape):
        if length > 1:
            yield f"shift {dimension}", (statistics.arrays.roll(grid, 1, dimension) - grid).reshape(-1)


def _families(shape: tuple[int, ...], statistics: ErrorStatistics, pattern: Array) -> Iterator[_Projections]:
    """Sum over the boxes of every size but single entries, coarser ones from finer ones."""
    scale = statistics.scale**0.5
    weight = pattern / (statistics.expected_variance() + statistics.storage(statistics.finite_exact) ** 2)
    terms = [
        weight * statistics.errors.value,
        weight * statistics.plain_errors.value,
        weight * pattern,
        abs(weight) * scale,
    ]
    single = tuple(1 for _ in shape)
    level = {single: [term.reshape(shape) for term in terms]}
    for dimension, length in enumerate(shape):
        for sizes, sums in [*level.items()]:
            for size in (BLOCK, length):
                if sizes[dimension] < size and (size == length or 2 * size <= length):
                    coarser = (*sizes[:dimension], size, *sizes[dimension + 1 :])
                    level[coarser] = [_pooled(each, dimension, size, statistics.arrays.concat) for each in sums]
    for sizes, sums in level.items():
        if sizes != single:
            error, plain, information, coherent = sums
            yield _Projections(error, plain, information, coherent, sizes)


def _pooled(values: Array, dimension: int, size: int, concat: Callable[..., Array]) -> Array:
    """Sum over intervals of one dimension; the last one may be shorter."""
    length, before = values.shape[dimension], (slice(None),) * dimension
    whole = length // size * size
    blocks = values[(*before, slice(whole))]
    blocks = blocks.reshape((*values.shape[:dimension], -1, size, *values.shape[dimension + 1 :])).sum(dimension + 1)
    if whole == length:
        return blocks
    return concat([blocks, values[(*before, slice(whole, None))].sum(dimension)[(*before, None)]], dimension)


def _spread(boxes: Array, sizes: tuple[int, ...], shape: tuple[int, ...], arrays: Any) -> Array:
    """Give every entry the number of its box."""
    for dimension, (size, length) in enumerate(zip(sizes, shape, strict=True)):
        boxes = boxes[(*(slice(None),) * dimension, arrays.arange(length) // size)]
    return boxes
