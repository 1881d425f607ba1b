"""Catastrophic cancellation: the rounding errors that larger numbers leave in values and claims where they cancel.

A derivative that is zero by identity, such as the second one of x / x, comes as a difference of equal terms. Its values
and its entries are the rounding of those terms, which their own sizes do not show. Differences of a high order show it
(Moré and Wild, "Estimating computational noise", 2011).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import cast

from gradproof.engine.contraction import CLAIM_ACCURACY
from gradproof.engine.estimators.noise import CUBIC, FIVE, QUARTIC, difference
from gradproof.engine.estimators.steps import first_step
from gradproof.engine.options import Probing
from gradproof.engine.perturbed import perturbations, product, random_operand
from gradproof.engine.results import Reason, Resolution, Verdict
from gradproof.engine.subject import Array, DerivativeError, Frame, Subject
from gradproof.engine.thresholds import ALIKE, CLEARLY, FEW, GROSS, LARGE, ROUNDINGS, TINY
from gradproof.engine.verdict import Judgement
from gradproof.engine.views import View

ROUGH = frozenset(
    {Reason.CANCELLATION, Reason.CONDITIONING, Reason.JUMP, Reason.NOISE, Reason.QUANTISED, Reason.STEP_SIZE}
)
CANCELLED = (
    "Values or gradients are what rounding leaves of larger numbers that cancel. That rounding is up to {values:.1g} "
    "in values and {claims:.1g} in gradient entries, measured beside the point: the bars contain it."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """What rounding leaves of larger numbers that cancel.

    `values` and `claims` hold, for every value and every entry of a claim, the size up to which it may be rounding
    alone; zero where it has correct digits. `value` is the largest rounding of a value, `slope` the size of a
    derivative whose rounding is as large, and `length` the length of the direction of a forward-mode claim.
    """

    values: Array
    claims: Array
    value: float
    slope: float
    length: float


class Cleared(View):
    """A subject whose values and claims are zero where they are no more than rounding leaves of larger numbers."""

    def __init__(self, whole: Subject, leftover: Leftover) -> None:
        super().__init__(whole)
        self._values, self._claims, self._length = leftover.values, leftover.claims, leftover.length
        self.centre = self._cleared(whole.centre)
        self.numbers = replace(whole.numbers, tiny=max(whole.numbers.tiny, leftover.value))

    def _cleared(self, values: Array) -> Array:
        return self.whole.arrays.where(abs(values) <= self._values, 0.0, values)

    def evaluate(self, direction: Array, t: float) -> Array:
        """Return the values without what is rounding alone."""
        return self._cleared(self.whole.evaluate(direction, t))

    def evaluate_along(self, direction: Array, steps: Sequence[float]) -> list[Array]:
        """Return the same at several steps."""
        return [self._cleared(values) for values in self.whole.evaluate_along(direction, steps)]

    def evaluate_many(self, directions: Array, t: float) -> Array:
        """Return the same along several directions."""
        return self._cleared(self.whole.evaluate_many(directions, t))

    def pullback(self, cotangent: Array, at: Array | None = None) -> Array:
        """Return the claimed gradient without what is rounding alone."""
        return self._claimed(self.whole.pullback(cotangent, at), 1.0)

    def pullback_many(self, cotangents: Array) -> Array:
        """Return the same for several incoming gradients."""
        return self._claimed(self.whole.pullback_many(cotangents), 1.0)

    def pushforward(self, direction: Array, at: Array | None = None) -> Array:
        """Return the claimed slopes without what is rounding alone."""
        return self._claimed(self.whole.pushforward(direction, at), abs(direction).max() / self._length)

    def pushforward_many(self, directions: Array) -> Array:
        """Return the same along several directions."""
        lengths = self.whole.arrays.amax(abs(directions), 1)[:, None] / self._length
        return self._claimed(self.whole.pushforward_many(directions), lengths)

    def _claimed(self, claims: Array, length: Array) -> Array:
        return self.whole.arrays.where(abs(claims) <= self._claims * length, 0.0, claims)


def without_cancelled_rounding(judged: Callable[..., Judgement]) -> Callable[..., Judgement]:
    """Return a judge that repeats a check that does not pass, with the measured rounding of the numbers that cancel."""

    def again(subject: Subject, *, probes: int, seed: int, options: Probing) -> Judgement:
        found = judged(subject, probes=probes, seed=seed, options=options)
        rough = found.findings or (found.obstacle is not None and found.obstacle.reason in ROUGH)
        try:
            leftover = _leftover(subject, found, seed) if rough and options.step is None else None
        except DerivativeError:
            leftover = None
        if leftover is None:
            return found
        second = judged(cast(Subject, Cleared(subject, leftover)), probes=probes, seed=seed, options=options)
        return _noted(second, leftover) if second.verdict is Verdict.PASS else found

    return again


def _noted(judgement: Judgement, leftover: Leftover) -> Judgement:
    """Return a judgement with a note; without a gradient its resolution is relative to the numbers that cancel."""
    absolute, relative = judgement.resolution.absolute, judgement.resolution.relative
    if leftover.slope and relative == math.inf:
        relative = absolute / leftover.slope
    resolution = Resolution(absolute=absolute, relative=relative)
    note = CANCELLED.format(values=leftover.value, claims=float(leftover.claims.max()))
    return replace(judgement, resolution=resolution, notes=(*judgement.notes, note))


def _leftover(subject: Subject, found: Judgement, seed: int) -> Leftover | None:
    """Measure the rounding of what cancels; None if nothing does, or if it would hide other outputs."""
    xp, root = subject.arrays, subject.numbers.precision**0.5
    if not subject.inputs.size or not subject.outputs.size:
        return None
    drawn = perturbations(subject, seed, root / subject.numbers.precision)
    first = next(drawn)
    if _is_too_large(subject, found, first):
        return None
    steps = [first, *islice(drawn, FEW - 1)]
    rounding, sizes = _rounding(xp, lambda at: subject.evaluate(at, 1.0), steps), abs(subject.centre)
    value, alone = _amplified(subject, subject.outputs, rounding, sizes, float(abs(subject.point).max()))
    if _hides(subject, value, alone):
        return None
    length = max(float(abs(step).max()) for step in steps) / root or 1.0
    slope = value / (subject.numbers.precision * length)
    operand = random_operand(subject, seed)
    here = abs(product(subject, operand))
    claims = _rounding(xp, lambda at: product(subject, operand, at), steps)
    # an entry of a gradient counts by the change that it predicts, since inputs may have very different units
    units, frame = (1.0, subject.outputs) if subject.mode == "forward" else (abs(steps[0]) / root, subject.inputs)
    claimed = here * units
    reference = max(float(claimed.max()), slope * length)
    claim, lost = _amplified(subject, frame, claims * units, claimed, reference)
    if not value and not claim:
        return None
    # other incoming gradients, or directions, may cancel larger numbers than the one that was judged
    lost = xp.where(lost > 0, GROSS * lost / (units + TINY), 0.0)
    return Leftover(values=CLEARLY * alone, claims=lost, value=CLEARLY * value, slope=slope, length=length)


def _is_too_large(subject: Subject, found: Judgement, step: Array) -> bool:
    """Return True if the entries that were found are off by far more than rounding makes, of values and of claims.

    The rounding of the values along one direction shows its size. It may be that of every output, over the first step.
    Of many outputs three values each are enough, whose second difference is rounding and, at most, curvature. Those of
    a single one may be equal by chance.
    """
    errors = [abs(entry.claimed - entry.numerical) for entry in found.entries]
    if not errors:
        return False
    xp, unit = subject.arrays, subject.numbers.precision
    if subject.outputs.size >= LARGE:
        before, here, after = (subject.evaluate((FEW + t) * step, 1.0) for t in (-1.0, 0.0, 1.0))
        second = abs(before - 2 * here + after) / math.hypot(1, -2, 1)
        rounding = float(xp.where(xp.isfinite(second), second, 0.0).max())
    else:
        rounding = float(_rounding(xp, lambda at: subject.evaluate(at, 1.0), [step]).max())
    reach = float(abs(step).max()) / unit**0.5 * first_step(unit)
    of_values = rounding * math.sqrt(subject.outputs.size) / reach if reach else math.inf
    of_claims = CLAIM_ACCURACY * max(max(abs(entry.claimed), abs(entry.numerical)) for entry in found.entries)
    return max(errors) > GROSS * (of_values + of_claims)


def _hides(subject: Subject, value: float, alone: Array) -> bool:
    """Return True if the rounding that cancels in one tensor is larger than rounding is in another."""
    digits = subject.arrays.where(alone > 0, 0.0, abs(subject.centre))
    sizes = [float(digits[start:stop].max()) for start, stop in subject.outputs.spans if start < stop]
    return any(value > CLAIM_ACCURACY * size for size in sizes if size)


def _rounding(xp: Array, function: Callable[[Array], Array], steps: Sequence[Array]) -> Array:
    """Return the largest rounding of every entry that five equispaced points show, along several steps.

    The steps are the root of the precision: long enough for the rounding of larger numbers to change, and so short that
    the cubic and the quartic differences of the function itself are far below its rounding. The point itself is left
    out: a jump or a kink there is no rounding.
    """
    seen = []
    for step in steps:
        places = [function((FEW + t) * step) for t in FIVE]  # all on one side of the point
        seen += [abs(difference(places, weights)) / math.hypot(*weights) for weights in (CUBIC, QUARTIC)]
    most = xp.amax(xp.stack(seen), 0)
    return xp.where(xp.isfinite(most), most, 0.0)


def _amplified(subject: Subject, frame: Frame, rounding: Array, sizes: Array, reference: float) -> tuple[float, Array]:
    """Return the largest rounding beyond that of a number's own size, and for every number how much is rounding alone.

    That is zero where a number has digits. Numbers of one tensor that have none share the largest rounding, since that
    of one may be small by accident. Noise in the first ten digits of the reference and of the tensor is no rounding.
    """
    xp, unit = subject.arrays, subject.numbers.precision
    digits = (rounding > 0) & (rounding <= ALIKE * sizes)
    amplified = xp.where(rounding > ROUNDINGS * unit * sizes, rounding, 0.0)
    alone = 0 * rounding
    for start, stop in frame.spans:
        own = slice(start, stop)
        if start < stop and float(amplified[own].max()) > CLAIM_ACCURACY * max(reference, float(sizes[own].max())):
            amplified[own] = 0.0
        elif start < stop:
            cancelled = xp.where(digits[own], 0.0, amplified[own])
            alone[own] = xp.where(digits[own], 0.0, float(cancelled.max()))
    return float(amplified.max()), alone
