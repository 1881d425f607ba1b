"""One suspected coordinate: the slopes of the outputs along it alone, with bars, beside the claimed ones."""

from __future__ import annotations

import math
from dataclasses import replace

from gradproof.engine.contraction import (
    SPREAD,
    contract,
    inner,
    predicted,
    restricted,
    rounding_of_claims,
)
from gradproof.engine.estimators.ladder import Ladder
from gradproof.engine.estimators.rounding import ROUNDING
from gradproof.engine.localisation.bisection import search
from gradproof.engine.options import Probing
from gradproof.engine.probe import Probe
from gradproof.engine.results import Entry
from gradproof.engine.subject import Array
from gradproof.engine.thresholds import CLEARLY, SAMPLE, STEADY
from gradproof.engine.views import OutputSubset

OUTPUTS_SHOWN = 4  # affected outputs of one entry


class Suspect:
    """One coordinate, measured by four evaluations, with bars for the outputs that it moves.

    If there are many outputs, those that are constant add only their rounding to the bar.
    """

    def __init__(self, probe: Probe, coordinate: int, exponent: int) -> None:
        self.subject, self.probe, self.coordinate = probe.ladder.subject, probe, coordinate
        subject = self.subject
        piece = restricted(subject, probe.ladder.direction, coordinate, coordinate + 1)
        self.piece, self.step = piece, float(piece[coordinate].sum())
        whole = Ladder(subject, piece)
        whole.add(exponent, exponent + 1)
        self.moving: Array = None if subject.outputs.size <= SAMPLE else _moving(whole)
        self.ladder, self.cotangent, constant = whole, probe.cotangent, 0.0
        if self.moving is not None:
            self.ladder = whole.of_outputs(OutputSubset(subject, self.moving))
            self.cotangent = probe.cotangent[self.moving]
            constant = SPREAD * ROUNDING * subject.numbers.precision * _size(probe.cotangent * subject.centre)
        self.estimates = self.ladder.estimates()
        contraction = contract(self.ladder, self.cotangent)
        self.claimed = probe.predicted(piece) / self.step
        self.numerical = contraction.slope / self.step
        rounding = rounding_of_claims(subject.numbers.precision) * abs(self.claimed)
        self.bar = (contraction.bar + constant + probe.rounding_floor(whole)) / abs(self.step) + rounding
        self.excess = abs(self.claimed - self.numerical) - self.bar

        place = subject.inputs.locate(coordinate)
        self.argument = place.path
        self.entry = Entry.at(place, claimed=self.claimed, numerical=self.numerical, bar=self.bar)

    @property
    def error(self) -> float:
        """The claimed slope less the measured one, along the direction's part in this coordinate."""
        return (self.claimed - self.numerical) * self.step

    def tolerated(self, options: Probing) -> bool:
        """Return True if the user tolerates the error: of all outputs together, and of the worst if it is known."""
        accepted = (options.rtol / abs(self.step)) * abs(self.estimates.value)
        everywhere = options.atol * float(abs(self.probe.cotangent).sum()) if options.atol else 0.0
        if self.excess > everywhere + float((abs(self.cotangent) * accepted).sum()):
            return False
        worst = self.entry
        error = abs(worst.claimed - worst.numerical) - worst.bar
        return worst.output is None or error <= options.atol + options.rtol * abs(worst.numerical)

    def at_a_kink(self) -> bool:
        """Return True if the slope of an output jumps at the point by as much as this entry is wrong.

        A claim for inputs that tie belongs to an order of them that no input shows alone.
        """
        finer, coarser = (abs(after - before) for before, after in map(self.ladder.sides, self.ladder.samples))
        stays = abs(finer - coarser) <= STEADY * finer
        jump = float(self.subject.arrays.where(stays, finer, 0.0).max()) / abs(self.step)
        return abs(self.entry.claimed - self.entry.numerical) <= (1 + STEADY) * jump

    def follow(self) -> None:
        """Replace the entry by that of the output in which it is most wrong, if there is one."""
        subject, cotangent, slopes = self.subject, self.probe.cotangent, self._slopes()

        def residual(low: int, high: int) -> float:
            piece = restricted(subject, cotangent, low, high)
            claimed = predicted(subject, self.piece, piece)
            return (claimed - inner(subject, piece, slopes)) / self.step

        outcome = search(
            subject.outputs.size,
            subject.outputs.spans,
            residual,
            threshold=self.bar,
            whole=self.claimed - self.numerical,
            most=OUTPUTS_SHOWN,
        )
        self.name(outcome.found)

    def follow_to(self, output: int) -> None:
        """Replace the entry by that of a known output, and name the other outputs that change most."""
        weights = abs(self.estimates.value)
        order = self.subject.arrays.argsort(weights)[-OUTPUTS_SHOWN:]
        most = (order if self.moving is None else self.moving[order]).tolist()
        self.name([output, *(other for other in reversed(most) if other != output)][:OUTPUTS_SHOWN])

    def name(self, outputs: list[int]) -> None:
        """Replace the entry by that of the worst of some outputs, if it is wrong in one, and name the others."""
        singled = [entry for entry in map(self._for_output, outputs) if entry is not None]
        if not singled:
            return
        singled.sort(key=lambda entry: -abs(entry.claimed - entry.numerical))
        worst, *others = singled
        self.entry = replace(worst, also=tuple(entry.output for entry in others if entry.output is not None))

    def _for_output(self, output: int) -> Entry | None:
        """Return the entry of the Jacobian for one output, or None if its claim is right."""
        subject = self.subject
        unit = subject.arrays.zeros_like(self.probe.cotangent)
        unit[output] = 1.0
        claimed = predicted(subject, self.piece, unit) / self.step
        slope, bar = self._of(output)
        numerical, bar = slope / self.step, bar / abs(self.step)
        bar += CLEARLY * subject.numbers.precision * abs(numerical)  # a slope is known to its digits at best
        if not abs(claimed - numerical) > bar:
            return None
        return replace(self.entry, claimed=claimed, numerical=numerical, bar=bar, output=subject.outputs.locate(output))

    def _of(self, output: int) -> tuple[float, float]:
        """Return the slope of one output and its bar."""
        number = output
        if self.moving is not None:
            places = self.subject.arrays.where(self.moving == output)[0].tolist()
            if not places:
                return 0.0, ROUNDING * self.subject.numbers.precision * float(abs(self.subject.centre[output]))
            (number,) = places
        return float(self.estimates.value[number]), float(self.estimates.bar[number])

    def _slopes(self) -> Array:
        """Return the slopes of all outputs."""
        if self.moving is None:
            return self.estimates.value
        slopes = self.subject.arrays.zeros_like(self.probe.cotangent)
        slopes[self.moving] = self.estimates.value
        return slopes


def _moving(ladder: Ladder) -> Array:
    """Return the outputs that change on any sample, or the first if none does."""
    centre = ladder.subject.centre
    moves = ladder.subject.arrays.isnan(centre)
    for sample in ladder.samples:
        moves = moves | (sample.plus != centre) | (sample.minus != centre)
    moving = ladder.subject.arrays.where(moves)[0]
    return moving if moving.shape[0] else ladder.subject.arrays.arange(0, 1, device=centre.device)


def _size(vector: Array) -> float:
    """Return the root of the sum of squares; zero if it is not finite."""
    square = float(vector @ vector)
    return math.sqrt(square) if math.isfinite(square) else 0.0
