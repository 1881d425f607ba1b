"""Units for inputs and outputs of extreme size: powers of two, in which a check neither overflows nor underflows.

A function of inputs near 1e-200 or of outputs near 1e200 is checked as the same function of scaled inputs and outputs.
To multiply by a power of two is exact, so that nothing else changes; what is found is converted back at the end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, cast

from gradproof.engine.estimators.steps import first_step
from gradproof.engine.options import Probing
from gradproof.engine.pieces import columns
from gradproof.engine.powers import REACH, Powers, times_power
from gradproof.engine.results import Entry, Finding, HeatMap, Obstacle, Place, Reading, Reason, Resolution
from gradproof.engine.scaled import RecordingFrame, Scaled
from gradproof.engine.subject import Array, Step, Subject
from gradproof.engine.thresholds import ROUNDINGS, TRACE
from gradproof.engine.verdict import Judgement

ORDINARY = 166  # binary digits, 1e50: the squares of slopes between sizes within it neither overflow nor underflow
SCALED = (
    "The inputs or outputs are of extreme size. They were scaled by powers of two, which is exact; numbers in messages "
    "are those of the scaled function."
)
OVERFLOWS = Obstacle(
    Reason.NON_FINITE,
    "The gradient exceeds the range of its dtype, in which it cannot be represented.",
    "Scale the inputs or the outputs, or check in a dtype with a wider range.",
)


@dataclass(frozen=True, slots=True)
class Units:
    """The units of a check: inputs are multiples of 2 to the exponents `inputs`, outputs of 2 to `value`.

    `tiny_input` and `tiny_value` are the spacings of the smallest numbers in the dtypes of inputs and outputs,
    `coarseness` is what they make of the relative precision, and `largest` is the largest gradient that can be
    represented. `lift` is the exponent of the incoming gradients, which keeps gradients within range.
    """

    inputs: Powers = field(default_factory=lambda: Powers(0))
    value: int = 0
    tiny_input: float = 0.0
    tiny_value: float = 0.0
    coarseness: float = 0.0
    largest: float = math.inf
    lift: int = 0
    places: dict[int, RecordingFrame] = field(default_factory=dict, compare=False)

    @property
    def ordinary(self) -> bool:
        """Whether nothing is scaled."""
        return self.inputs.exponents == 0 and self.value == 0

    def of(self, subject: Subject) -> Subject:
        """Return a subject in these units."""
        return subject if self.ordinary else cast(Subject, Scaled(subject, self))

    def scaled_values(self, values: Array) -> Array:
        """Return values in these units."""
        return Powers(-self.value).times(values)

    def incoming(self, cotangents: Array) -> Array:
        """Return incoming gradients for the function as it is."""
        return Powers(self.lift).times(cotangents)

    def scaled_gradient(self, gradients: Array) -> Array:
        """Return gradients of the function as it is in these units."""
        return self.inputs.times(gradients, more=-self.value - self.lift)

    def options(self, options: Probing) -> Probing:
        """Return the user's tolerances in these units, and tolerate a gradient that its dtype rounds to zero."""
        if self.ordinary:
            return options
        power = self.inputs.least - self.value
        lost = min(times_power(ROUNDINGS * self.tiny_input, power), 2.0**ORDINARY)
        atol = times_power(options.atol, power)
        step = None if options.step is None else times_power(options.step, -self.inputs.least)
        nondet_tol = times_power(options.nondet_tol, -self.value)
        return replace(options, atol=atol + (lost if lost > TRACE**3 else 0.0), step=step, nondet_tol=nondet_tol)

    def restored(self, found: Judgement) -> Judgement:
        """Return a judgement in the user's units."""
        if self.ordinary:
            return found
        findings = tuple(map(self._finding, found.findings))
        obstacle = found.obstacle
        if findings and all(self._overflows(each) for each in findings):
            findings, obstacle = (), OVERFLOWS
        return replace(
            found,
            findings=findings,
            obstacle=obstacle,
            notes=(*found.notes, SCALED),
            resolution=Resolution(
                absolute=max(
                    times_power(found.resolution.absolute, self.value - self.inputs.least), ROUNDINGS * self.tiny_input
                ),
                relative=found.resolution.relative,
            ),
            readings=tuple(map(self._reading, found.readings)),
            maps=tuple(map(self._map, found.maps)),
            measured=None,
        )

    def _overflows(self, finding: Finding) -> bool:
        """Return True for a gradient that is not finite since its dtype holds no number as large."""
        entries = finding.entries
        broken = finding.kind == "non-finite-gradient"
        return broken and bool(entries) and all(abs(each.numerical) > self.largest / ROUNDINGS for each in entries)

    def _finding(self, finding: Finding) -> Finding:
        argument = finding.argument or ""
        return replace(finding, entries=tuple(self._entry(argument, each) for each in finding.entries))

    def _entry(self, argument: str, entry: Entry) -> Entry:
        place = Place(path=argument, index=entry.index, part=entry.part, stored=entry.stored)
        power = self.value - self._exponent(place)
        numbers: dict[str, Any] = {
            name: times_power(getattr(entry, name), power) for name in ("claimed", "numerical", "bar")
        }
        return replace(entry, **numbers)

    def _exponent(self, place: Place) -> int:
        """Return the exponent of the input at a place; zero for the place of an output."""
        for frame in self.places.values():
            if place in frame.coordinates:
                return self.inputs.of(frame.coordinates[place])
        return 0

    def _reading(self, reading: Reading) -> Reading:
        own = self.inputs.least if self.inputs.least == self.inputs.most else 0
        points = (
            replace(point, step=times_power(point.step, own), remainder=times_power(point.remainder, self.value))
            for point in reading.steps
        )
        names = ("claimed", "numerical", "bar", "rounding")
        numbers: dict[str, Any] = {name: times_power(getattr(reading, name), self.value) for name in names}
        return replace(reading, steps=tuple(points), **numbers)

    def _map(self, found: HeatMap) -> HeatMap:
        powers = [self.value - self._exponent(place) for place in found.columns]
        errors = (tuple(times_power(*pair) for pair in zip(row, powers, strict=True)) for row in found.errors)
        return replace(found, errors=tuple(errors))


def units_of(
    subject: Subject, scales: Iterable[float | Array], *, tiny_input: float, tiny_value: float, largest: float
) -> Units:
    """Return the units in which inputs of these scales, one for each tensor, and the outputs are of ordinary size.

    `largest` is the largest number of the inputs' dtypes.
    """
    inputs = _exponents(scales, subject)
    value = _exponent(_size(subject))
    if inputs.exponents == 0 and value == 0:
        return Units()
    coarseness = max(
        times_power(tiny_input, -inputs.least) if inputs.least < -ORDINARY else 0.0,
        times_power(tiny_value, -value) if value < -ORDINARY else 0.0,
    )
    low, high = value - inputs.most, value - inputs.least
    lift = -(low + high) // 2 if high > REACH or low < -REACH else 0
    return Units(inputs, value, tiny_input, tiny_value, coarseness, largest, max(-REACH, min(REACH, lift)))


def _exponents(scales: Iterable[float | Array], subject: Subject) -> Powers:
    """Return the exponents of the inputs; zero for those of ordinary size."""
    by_tensor = [_exponent(scale) if isinstance(scale, float) else _exponents_of(scale) for scale in scales]
    distinct = set(by_tensor)
    if len(distinct) <= 1 and all(isinstance(each, int) for each in distinct):
        return Powers(*distinct)
    spans = zip(by_tensor, subject.inputs.spans, strict=True)
    every = [(each,) * (high - low) if isinstance(each, int) else each for each, (low, high) in spans]
    return Powers(tuple(exponent for exponents in every for exponent in exponents), subject.arrays)


def _exponents_of(scale: Array) -> int | tuple[int, ...]:
    """Return zero if all entries of a tensor are of ordinary size, and otherwise the exponent of each."""
    if not _exponent(float(scale.max())) and not _exponent(float(scale.min())):
        return 0
    return tuple(map(_exponent, scale.tolist()))


def _exponent(size: float) -> int:
    """Return the binary exponent of a size, or zero for an ordinary one."""
    if not size or not math.isfinite(size):
        return 0
    exponent = math.frexp(size)[1]
    return exponent if abs(exponent) > ORDINARY else 0


def _size(subject: Subject) -> float:
    """Return the largest value, or where all are zero their slopes over a step as long as the point."""
    largest = subject.scale.value or _largest(subject, subject.centre)
    if largest:
        return largest
    step = first_step(subject.numbers.precision)
    return _largest(subject, subject.evaluate(subject.direction(0, Step(step)), 1.0)) / step


def _largest(subject: Subject, values: Array) -> float:
    if not values.shape[0]:
        return 0.0
    xp = subject.arrays
    largest = max(map(abs, columns(xp, [[values.max(), values.min()]])[0]))
    return largest if math.isfinite(largest) else float(xp.where(xp.isfinite(values), abs(values), 0.0).max())
