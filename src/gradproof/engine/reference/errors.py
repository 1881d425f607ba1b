"""How far an implementation may differ from its reference: the statistics of rounding errors, entry by entry.

Three numbers say what error an entry may have, all measured against the reference in a higher precision:

- conditioning: the scatter of the exact entry if the inputs move by about a unit in the last place;
- algorithm: the error of the plain reference in the implementation's own precision;
- storage: the rounding of the result to its number format.

The error of the plain reference in one entry may be zero by luck. It is therefore pooled: over several draws of inputs
for the entry itself, and over all entries relative to a local scale. The bar is a quantile of the normal distribution,
so that the stated rate of false alarms holds for all entries together, however many there are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gradproof.engine.estimators.noise import QUANTUM
from gradproof.engine.reference.levels import levels_by_class, levels_of
from gradproof.engine.reference.mean import Mean
from gradproof.engine.reference.quantiles import deviations_for, median
from gradproof.engine.subject import Array
from gradproof.engine.thresholds import CLEARLY, FEW, MANY, MARGIN, SHARE, SLIGHT

RATE = 1e-6  # of reports about a right implementation that may hold a false alarm
PRIOR = 4.0  # draws that the pooled error counts for, beside the draws of the entry itself
# times the expected error that another implementation may err: a margin for other approximations of elementary
# functions (FlashAttention's tests allow twice the plain error). It does not show in 16 bits, unless entries are few
ANOTHER = 1.5
# times its own scatter that an entry may err which errs more than others of its kind, within what the errors of all
# entries allow. Of 32 draws none is 5.6 deviations from their mean, and bars are six: the rest is for errors that stay
STAYING = 2.0
COARSE = 2.0**-12  # units of rounding above it are of 16 bits: nobody accumulates in them
# times the plain error that the level may be: a sum of 4,096 terms in sequence errs 8 times as much as one in blocks
# of 64 (the error grows with the root of the length), which matters where results are as precise as accumulators
ACCUMULATED = 8.0
REORDERED = 3.0  # the same in 16 bits, where sums are not rounded to the result's precision: up to 9 roundings for one


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """The number format of a result: half its spacing near one, half its least spacing, and its largest number."""

    unit: float
    tiny: float
    largest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """The bars of all entries, and what they are made of.

    `bar` holds the error that each entry may have, `level` how many times the expected error the implementation's
    errors typically are, and `most` the largest level that the precision explains.
    """

    bar: Array
    deviations: float
    level: float
    most: float

    @property
    def imprecise(self) -> bool:
        """Whether the errors are too large throughout, and not in single entries."""
        return self.level > self.most


class ErrorStatistics:
    """The errors of an implementation and of the plain reference in one tensor, gathered draw by draw.

    `exact` is the tensor in a higher precision at the given inputs; `unit` is the coarsest unit of rounding of the
    computation that leads to it.
    """

    def __init__(self, arrays: Array, exact: Array, form: Format, *, unit: float) -> None:
        self.arrays, self.exact, self.form, self.unit = arrays, exact, form, max(unit, form.unit)
        nothing = arrays.zeros_like(exact)
        self._conditioning, self._intermediate = Mean(nothing), Mean(nothing)  # squares of changes of the exact tensor
        self._plain, self._noise = Mean(nothing), Mean(nothing)  # squares: beyond storage, and between repeated calls
        self.errors, self.squares = Mean(nothing), Mean(nothing)  # of the implementation, signed and squared
        self.plain_errors, self.plain_squares = Mean(nothing), Mean(nothing)  # of the plain reference, likewise
        self.draws = 0
        self.worst = nothing  # the largest error of the implementation, beyond storage, over all draws
        self.claimed, self.numerical = nothing, exact  # the two values at that draw
        self.largest_error = self.largest_plain = 0.0
        self.left_out = 0  # entries that are no numbers in the implementation, nor in the reference
        self._kernel_squares = 0.0  # mean squares of the implementation's errors, summed over draws

    @property
    def size(self) -> int:
        """The number of entries."""
        return int(self.exact.shape[0])

    def add_perturbed(self, exact: Array) -> None:
        """Add the exact tensor at inputs a unit in the last place away."""
        change = self._finite(exact - self.exact)
        self._conditioning.add(change * change)

    def add_intermediates(self, values: Array, exact: Array, *, scale: float = 1.0) -> None:
        """Add the exact tensor with every intermediate number that leads to it moved by a unit in the last place."""
        change = self._finite(values - exact) * scale
        self._intermediate.add(change * change)

    def add_plain(self, values: Array, exact: Array, unit: float, *, scale: float = 1.0) -> None:
        """Add the plain reference in the implementation's precision, whose results have this unit of rounding.

        `scale` converts errors of another precision, to which they are proportional.
        """
        signed = self._finite(values - exact) * scale
        self.plain_errors.add(signed)
        self.plain_squares.add(signed * signed)
        error = abs(signed)
        beyond = self._positive(error - unit * scale * self._finite(abs(exact)))
        self._plain.add(beyond * beyond)
        self.largest_plain = max(self.largest_plain, _largest(error))

    def add(self, values: Array, exact: Array, plain: Array | None) -> None:
        """Add the implementation's tensor at a draw; `plain` is the plain reference's at the same draw, if it has one.

        An infinity is right where the exact number is too large for the format. Numbers that are not finite in the
        plain reference either are left out.
        """
        xp = self.arrays
        error = abs(values - exact)
        same = (values == exact) | (xp.isnan(values) & xp.isnan(exact))
        beyond = abs(exact) > self.form.largest * (1 - 8 * self.unit)
        same = same | (beyond & (values == xp.sign(exact) * math.inf))
        strange, nothing = ~same & ~xp.isfinite(error), xp.isnan(values) & xp.isnan(exact)
        if plain is not None and bool(strange.any()):
            known = strange & ((xp.isfinite(values) == xp.isfinite(plain)) | ~xp.isfinite(plain) & xp.isfinite(exact))
            same, strange, nothing = same | known, strange & ~known, nothing | known
        self.left_out = max(self.left_out, int(nothing.sum()))
        error = xp.where(same, xp.zeros_like(error), xp.where(strange, xp.full_like(error, math.inf), error))
        self.add_error(values, exact)
        excess = self._positive(error - self.storage(exact))
        larger = (excess > self.worst) if self.draws else (excess >= self.worst)
        self.claimed = xp.where(larger, values, self.claimed)
        self.numerical = xp.where(larger, exact, self.numerical)
        self.worst = xp.where(larger, excess, self.worst)
        self.draws += 1
        finite = self._finite(error)
        self.largest_error = max(self.largest_error, math.inf if bool(strange.any()) else _largest(finite))
        self._kernel_squares += float((finite * finite).sum()) / max(self.size, 1)

    def add_error(self, values: Array, exact: Array) -> None:
        """Add the implementation's tensor at a point that is not judged, to learn how its errors scatter."""
        size, here = abs(self.exact), abs(exact)
        known = (here > size / 2) & (here < 2 * size)  # an error that is proportional to the entry is no scatter
        ratio = self.arrays.where(known, size / self.arrays.where(known, here, self.arrays.ones_like(here)), 1.0)
        error = self._finite((values - exact) * ratio)
        self.errors.add(error)
        self.squares.add(error * error)

    def add_repeated(self, values: Array, again: Array) -> None:
        """Add the tensors of two calls of the implementation at the same inputs; they differ if it is random."""
        change = self._finite(values - again)
        self._noise.add(change * change / 2)

    def storage(self, exact: Array) -> Array:
        """Return what rounding to the number format may change in each entry."""
        return self.form.unit * self._finite(abs(exact)) + self.form.tiny

    @property
    def typical_error(self) -> float:
        """The root mean square of the implementation's errors."""
        return math.sqrt(self._kernel_squares / max(self.draws, 1))

    @property
    def typical_plain(self) -> float:
        """The root mean square of the plain reference's errors."""
        return math.sqrt(float(self.plain_squares.value.sum()) / max(self.size, 1))

    @property
    def has_plain(self) -> bool:
        """Whether the plain reference runs in the implementation's precision."""
        return self._plain.count > 0

    @property
    def is_reference_alike(self) -> bool:
        """Whether the reference gives the same in both precisions, and other numbers than the implementation.

        It then computes in one fixed precision, which is that of the implementation, and errs as much as that. If the
        two differ in few entries alone, the function is one that has no rounding errors, such as a copy.
        """
        if not self.has_plain or self.largest_plain or self.unit > COARSE:
            return False
        return int((self.squares.value > 0).sum()) > SHARE * self.size

    @property
    def is_reference_unsteady(self) -> bool:
        """Whether the plain reference errs by far more than rounding explains, and by as much as the implementation.

        It then computes something else in each precision, as a function of random numbers does.
        """
        if not self._intermediate.count:
            return False
        plain, exact = float(self.plain_squares.value.sum()), float((self.finite_exact**2).sum())
        unexplained = plain > max(SHARE**2 * exact, float(self.scale.sum()) / SLIGHT**2)
        return unexplained and 1 / FEW <= self.typical_error / self.typical_plain <= FEW

    @property
    def is_deterministic(self) -> bool:
        """Whether repeated calls gave the same numbers."""
        return not bool(self._noise.value.any())

    def allowance(self, entries: int, *, rate: float = RATE) -> Allowance:
        """Return the bars at which a false alarm is rare among this many entries of a report."""
        xp, deviations = self.arrays, deviations_for(entries * max(self.draws, 1), rate)
        variance = self.expected_variance()
        if not self.is_deterministic:
            variance = variance + self._pooled(self._noise.value)
        expected = xp.sqrt(variance)
        most = REORDERED if self.unit > COARSE else ACCUMULATED
        if self.size < 2 * MANY:  # they do not show a level
            level, widened = 0.0, ANOTHER
            narrow = widened + xp.zeros_like(expected)
        else:
            ratios = self.worst / expected
            level, *others = levels_of(ratios, self.draws)
            widened = min(max(level, *others, 1.0), most)
            amplification = expected / self.storage(self.finite_exact)
            narrow = levels_by_class(xp, ratios, amplification, self.draws, most=widened)
        # an entry that is clearly less precise than rounding makes it has cancelled: algorithms then differ as much as
        # their intermediate numbers do, and not as much as their results
        cancelled = self._positive(xp.sqrt(self._intermediates()) - CLEARLY * self.unit * abs(self.finite_exact))
        deviation = narrow * expected + (most - narrow) * cancelled
        if self.errors.count >= MANY:  # draws, which show the scatter of one entry's error to a fifth
            own, others_allow = self._own_scatter(), widened * expected + (most - widened) * cancelled
            deviation = xp.maximum(deviation, xp.minimum(STAYING * own, others_allow))
            deviation = xp.maximum(deviation, xp.minimum(MARGIN * own, most * expected))
        bar = self.storage(self.numerical) + deviations * deviation
        return Allowance(bar=bar, deviations=deviations, level=level, most=most)

    def _own_scatter(self) -> Array:
        """Return the scatter of the implementation's error over draws of inputs.

        An error that changes if the inputs move by a unit in the last place is one of rounding. A mistake stays.
        """
        variance = self._positive(self.squares.value - self.errors.value**2)
        return self.arrays.sqrt(variance)

    def races(self, entries: int) -> Array:
        """Return which entries differ between calls by more than a change of the order of sums explains."""
        if self.is_deterministic:
            return self._noise.value > 0
        most = REORDERED if self.unit > COARSE else ACCUMULATED
        explained = deviations_for(entries, RATE) * most
        return self._noise.value > explained * explained * self.expected_variance()

    @property
    def finite_exact(self) -> Array:
        """The exact tensor, zero where it is not finite."""
        return self._finite(self.exact)

    def expected_variance(self) -> Array:
        """Return the square of the error that each entry is expected to have beyond storage."""
        scale, count, own = self._rounded(), self._plain.count, self._plain.value
        pooled = median(own / scale) * scale  # half of the entries exceed it
        plain = (count * own + PRIOR * pooled) / (count + PRIOR)
        # the errors of the plain reference are those of its intermediate numbers, which may have cancelled by accident
        rounded = (2 * QUANTUM) ** 2 * scale  # by less than a unit to either side
        return QUANTUM**2 * self._conditioning.value + self.arrays.maximum(plain, self._intermediates()) + rounded

    def _intermediates(self) -> Array:
        return QUANTUM**2 * self._intermediate.value

    @property
    def scale(self) -> Array:
        """The square of the local scale of each entry: one rounding of it, and of what it is made of."""
        return self._rounded() + self._intermediates()

    def _rounded(self) -> Array:
        rounding = self.unit * abs(self.finite_exact) + self.form.tiny
        return QUANTUM**2 * self._conditioning.value + rounding * rounding

    def _pooled(self, own: Array) -> Array:
        scale = self._rounded()
        return own + median(own / scale) * scale

    def _finite(self, values: Array) -> Array:
        return self.arrays.where(self.arrays.isfinite(values), values, self.arrays.zeros_like(values))

    def _positive(self, values: Array) -> Array:
        return self.arrays.where(values > 0, values, self.arrays.zeros_like(values))


def _largest(values: Array) -> float:
    return float(values.max()) if values.shape[0] else 0.0
