"""One case to diagnose: claimed products of the derivative with some operands, beside measured ones.

In reverse mode a case is about one input, and its operands are incoming gradients. In forward mode it is about one
input and one output, and its operands are directions. A short product is measured in every coordinate, a longer one
in a few random combinations of them, a very long one in a few coordinates. `observed` reduces a product to what is
measured of it, so that hypotheses need not distinguish the three.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from gradproof.engine.contraction import CLAIM_ACCURACY, SPREAD
from gradproof.engine.diagnosis.measurements import Measurements, norm_of, units
from gradproof.engine.diagnosis.sampled_columns import Column, chosen, columns
from gradproof.engine.parts import Part
from gradproof.engine.subject import Array
from gradproof.engine.thresholds import CLEARLY, WORK

LEAST_FIT = 0.95  # the least fit of a hypothesis that is reported
CERTAIN = 0.99  # fits above it are equally good; a fit to the few numbers of a sample has to reach it
SAME = 1e-5  # relative: numbers that differ by less are equal; measured ones have some seven digits or more
ZERO = 1e-8  # of the largest entry: smaller ones count as zero, as the rounding of measured ones
OPERANDS = 4  # drawn for a case; also the random combinations in which a long product is measured
SMALL = 96  # coordinates: a product with at most as many is measured in each


@dataclass(frozen=True, slots=True)
class Known:
    """What is measured of a product, with bars. `weight` is zero where the measurement is not finite, else one."""

    value: Array
    bar: Array
    weight: Array


class Case:
    """The claimed products for some operands, and what is measured of the right ones.

    A case is about one input, and about one output or, in reverse mode, all. `operand_part` is the tensor outside which
    operands are zero, or None; `result_part` is the tensor whose derivative is examined; `worst` are coordinates known
    to be wrong.
    """

    def __init__(self, measurements: Measurements, own: Part, output: Part | None, worst: Sequence[int] = ()) -> None:
        self.measurements, self.xp, self.reverse = measurements, measurements.xp, measurements.reverse
        self.input, self.worst = own, tuple(worst)
        self.output = output if measurements.reverse else output or measurements.outputs[0]
        operand_part, result_part = (output, own) if measurements.reverse else (own, output or measurements.outputs[0])
        self.operand_part, self.result_part = operand_part, result_part
        self.full = not measurements.reverse or self._is_small()
        self.test_vectors: Array = None
        self.sample: Array = None
        self._columns: list[Column] = []
        self.slopes: Array = None  # in reverse mode: of all outputs, along every coordinate or along the tests
        self.bars: Array = None
        if measurements.reverse and not measurements.large:
            self._measure()
        self.operands = [
            operand_part.alone(each) if operand_part else each for each in map(measurements.operand, range(OPERANDS))
        ]
        self.full_claims = [measurements.claim(operand) for operand in self.operands]
        self.claims = [result_part.of(claim) for claim in self.full_claims]
        if measurements.reverse and measurements.large:
            places = chosen(self.xp, result_part, self.claimed_zero, self.worst)
            self._columns = columns(measurements, result_part, places)
            self.full = len(places) == result_part.size
            if not self.full:
                self.sample = self.xp.asarray(places, device=self.operands[0].device)
        self.known = [self.right(operand) for operand in self.operands]
        self.right_values = [known.value for known in self.known]
        self.claimed = [self.observed(claim) for claim in self.claims]
        self.errors = [claim - right for claim, right in zip(self.claimed, self.right_values, strict=True)]
        self.disagreement = self._weighted_norm(self.errors)
        self.noise = self._weighted_norm([self._slack(k) for k in range(OPERANDS)])

    @property
    def significant(self) -> bool:
        """Whether the disagreement exceeds the bars so far that a good fit cannot be a fit to noise."""
        return math.isfinite(self.disagreement) and 2 * (1 - LEAST_FIT) * self.disagreement > self.noise

    @property
    def isolated(self) -> bool:
        """Whether the sample has no wrong entries but those known before. Then it shows no pattern."""
        if self.sample is None:
            return False
        others = [place not in {each - self.result_part.start for each in self.worst} for place in self.sample.tolist()]
        return any(others) and not any(
            bool((abs(error) > self._slack(number))[others].any()) for number, error in enumerate(self.errors)
        )

    @property
    def what(self) -> str:
        """The claimed derivative in words, for use within a sentence."""
        if self.reverse:
            restriction = f", as far as {self.operand_part.path} goes," if self.operand_part else ""
            return f"the gradient with respect to {self.result_part.path}{restriction}"
        return f"the tangent of {self.result_part.path}" + (
            f" along {self.operand_part.path}" if self.operand_part else ""
        )

    @property
    def subject_line(self) -> str:
        """The claimed derivative in words, as the beginning of a sentence."""
        return self.what[0].upper() + self.what[1:]

    @property
    def given(self) -> str:
        """The users' word for an operand: incoming gradient, or tangent."""
        return "incoming gradient" if self.reverse else "tangent"

    @property
    def degrees_of_freedom(self) -> int:
        """The number of independent numbers in which claims and measurements are compared."""
        operand_part = self.operand_part.size if self.operand_part else sum(part.size for part in self.operand_parts)
        return int(self.claimed[0].shape[0]) * min(operand_part, OPERANDS)

    @property
    def operand_parts(self) -> list[Part]:
        """The tensors that an operand consists of."""
        return self.measurements.outputs if self.reverse else self.measurements.inputs

    @property
    def only_operand_part(self) -> Part | None:
        """The only tensor in which operands are not zero; None if there are several."""
        return self.operand_part or (self.operand_parts[0] if len(self.operand_parts) == 1 else None)

    @property
    def claimed_zero(self) -> Array:
        """A mask of the coordinates that are claimed to be zero for every operand."""
        zero = self.claims[0] == 0
        for claim in self.claims[1:]:
            zero = zero & (claim == 0)
        return zero

    def claim(self, operand: Array) -> Array:
        """Return the claimed product with another operand."""
        return self.result_part.of(self.measurements.claim(operand))

    def observed(self, product: Array) -> Array:
        """Return what can be compared with measurements: all of a product, a sample, or random combinations."""
        if self.sample is not None:
            return product[self.sample]
        return product if self.test_vectors is None else self.test_vectors @ product

    def right(self, operand: Array) -> Known:
        """Return the measured product with an operand; evaluate the function for it in forward mode alone."""
        xp = self.xp
        if self._columns:
            products = [column.product(operand) for column in self._columns]
            value, bar = xp.asarray(products, dtype=operand.dtype, device=operand.device).T
        elif not self.reverse:
            found = (
                self.measurements.quick_slopes(operand)
                if self.measurements.large
                else self.measurements.slopes(operand[None])
            )
            value, bar = (self.result_part.of(each.reshape(-1)) for each in found)
        else:
            clean = xp.where(xp.isfinite(self.bars), self.bars, xp.zeros_like(self.bars))
            bar = SPREAD * ((clean * clean) @ (operand * operand)) ** 0.5
            unknown = (~xp.isfinite(self.bars) & (operand != 0)).any(1)
            return Known(self.slopes @ operand, bar, 1.0 - 1.0 * unknown)
        known = xp.isfinite(bar) & xp.isfinite(value)
        zero = xp.zeros_like(bar)
        return Known(xp.where(known, value, zero), xp.where(known, bar, zero), known * 1.0)

    def right_after(self, change: Callable[[Array], Array], adjoint: Callable[[Array], Array]) -> list[Array]:
        """Return the right products after a linear change, as far as they can be measured.

        A long product is changed by measuring along the adjoint of the change, for half of the test vectors.
        """
        if self.full:
            return [change(right) for right in self.right_values]
        if self.sample is None:
            few, step = self.test_vectors[: OPERANDS // 2], 1.0
        else:
            few, step = units(self.xp, self.claims[0], self.sample[: OPERANDS // 2]), self.measurements.step
        directions = self.measurements.directions(self.result_part, [step * adjoint(test) for test in few])
        slopes = self.measurements.rough_slopes(directions) / step
        return [slopes @ operand for operand in self.operands]

    def fit(self, residuals: Iterable[Array], keep: Array | None = None) -> float:
        """Return the share of the disagreement that a hypothesis explains, between 0 and 1, given what it leaves.

        `keep` masks the coordinates that count; the fit is 0 if they hold little of the disagreement. Residuals of a
        large function are slow to compute: the first one that is too large ends the loop.
        """
        left: list[Array] = []
        whole: list[Array] = []
        found = 0.0
        for number, residual in enumerate(residuals):
            count = residual.shape[0]
            mask = self.known[number].weight[:count] * (1.0 if keep is None else keep[:count])
            beyond = abs(residual) - self._slack(number)[:count]
            left.append(self.xp.where(beyond > 0, beyond, 0.0 * beyond) * mask)
            whole.append(self.errors[number][:count] * mask)
            remaining, base = norm_of(left), norm_of(whole)
            found = max(0.0, 1.0 - remaining / base) if math.isfinite(remaining) and base > 0 else 0.0
            if self.measurements.large and found < LEAST_FIT:
                return found
        if keep is not None and 2 * base < self.disagreement:
            return 0.0
        return found if self.sample is None or found > CERTAIN else 0.0

    def fit_changed_operand(self, change: Callable[[Array], Array], part: Part) -> float:
        """Return how well the claims fit the right products with operands that are changed in one tensor."""

        def residuals() -> Iterator[Array]:
            for operand, claim in zip(self.operands, self.claimed, strict=True):
                right = self.right(part.changed(operand, change)).value
                outside = self.sample is not None and not bool(
                    right.any()
                )  # the sample does not depend on the changed operand
                yield claim - right + (math.inf if outside else 0.0)

        return self.fit(residuals())

    def fit_as_right(self, products: Iterable[Array], keep: Array | None = None) -> float:
        """Return how well the given products fit the measured ones."""
        pairs = zip(self.right_values, products, strict=False)
        return self.fit((self.observed(each) - right for right, each in pairs), keep)

    def fit_claims(self, explained: Iterable[Array], keep: Array | None = None) -> float:
        """Return how well the given products, reduced to what is observed, fit the claims."""
        pairs = zip(self.claimed, explained, strict=False)
        return self.fit((claim[: each.shape[0]] - each for claim, each in pairs), keep)

    def _slack(self, number: int) -> Array:
        return CLEARLY * self.known[number].bar + CLAIM_ACCURACY * abs(self.right_values[number])

    def _weighted_norm(self, vectors: list[Array]) -> float:
        return norm_of(vector * known.weight for vector, known in zip(vectors, self.known, strict=True))

    def _is_small(self) -> bool:
        """Return True if every coordinate can be measured: a slope and a bar for each output fit into memory."""
        subject, size = self.measurements.subject, self.result_part.size
        held = 2 * size * max(subject.inputs.size, subject.outputs.size)
        return not self.measurements.large and size <= SMALL and OPERANDS * held <= WORK

    def _measure(self) -> None:
        xp, part = self.xp, self.result_part
        if self.full:
            places = xp.arange(part.start, part.stop, device=self.measurements.subject.point.device)
            self.slopes, self.bars = self.measurements.columns(places)
            return
        directions = part.alone(xp.stack([self.measurements.direction(k) for k in range(OPERANDS)]))
        self.slopes, self.bars = self.measurements.slopes(directions)
        self.test_vectors = part.of(directions)
