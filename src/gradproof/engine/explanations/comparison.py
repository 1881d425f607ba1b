"""A claim beside its measurement, and the protocol of what may explain that they differ."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Protocol

from gradproof.engine.contraction import restricted
from gradproof.engine.nonfinite import BrokenClaim
from gradproof.engine.options import Probing
from gradproof.engine.probe import Probe, says_nothing
from gradproof.engine.results import Entry, Obstacle, Reason
from gradproof.engine.subject import Array, Subject


class Kind(enum.Enum):
    """What is compared: a probe that agrees or disagrees, one entry of the derivative, or a non-finite claim."""

    AGREEMENT = "agreement"
    DISAGREEMENT = "disagreement"
    ENTRY = "entry"
    UNCONFIRMED = "unconfirmed"  # a disagreement that no other direction shows
    UNLOCATED = "unlocated"  # a disagreement that no entry by itself shows
    NON_FINITE = "non-finite"

    __hash__ = object.__hash__  # members are compared by identity; an Enum's own hash is ten times as slow


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A claimed slope beside the measured one: along a random direction, or along one coordinate of it.

    `second` is a probe along another direction that disagrees too. An entry has its `coordinate`; `adds_up` says
    whether entries, each measured by itself, add up to what is measured along the whole direction (None: unknown).
    `unresolved_allowed` is the number of outputs that an agreement may leave out; `broken` describes a claim that
    is NaN or infinite.
    """

    kind: Kind
    probe: Probe
    options: Probing
    second: Probe | None = None
    coordinate: int | None = None
    entry: Entry | None = None
    adds_up: bool | None = None
    unresolved_allowed: float = 0.0
    broken: BrokenClaim | None = None

    @property
    def subject(self) -> Subject:
        """The function under test."""
        return self.probe.ladder.subject

    @property
    def probes(self) -> list[Probe]:
        """The one or two probes."""
        return [self.probe] if self.second is None else [self.probe, self.second]

    @property
    def direction(self) -> Array:
        """The direction along which claim and measurement are compared."""
        if self.coordinate is None:
            return self.probe.ladder.direction
        return restricted(self.subject, self.probe.ladder.direction, self.coordinate, self.coordinate + 1)

    @property
    def error(self) -> float:
        """The distance of the claimed slope from the measured one."""
        if self.entry is None or self.coordinate is None:
            return abs(self.probe.error)
        step = float(self.probe.ladder.direction[self.coordinate])
        return abs((self.entry.claimed - self.entry.numerical) * step)

    @property
    def bar(self) -> float:
        """The bar of the measured slope."""
        if self.entry is None or self.coordinate is None:
            return self.probe.bar
        return abs(self.entry.bar * float(self.probe.ladder.direction[self.coordinate]))

    @property
    def share(self) -> float:
        """The error of an entry relative to its slope; infinite where the slope is zero."""
        if self.entry is None or not self.entry.numerical:
            return float("inf")
        return abs(self.entry.claimed - self.entry.numerical) / abs(self.entry.numerical)

    @property
    def is_weak(self) -> bool:
        """Whether an agreement shows hardly anything, since many outputs are left out or the bar is wide."""
        return self.probe.unresolved > self.unresolved_allowed or says_nothing(self.probe)


class Explanation(Protocol):
    """Why a claim outside its bar need not be wrong, or why one inside it proves nothing."""

    @property
    def reason(self) -> Reason:
        """The reason that an obstacle of this kind has."""
        ...

    @property
    def kinds(self) -> frozenset[Kind]:
        """The kinds of comparisons that it may explain."""
        ...

    def explains(self, comparison: Comparison) -> Obstacle | None:
        """Return the obstacle to a verdict, or None where this explanation does not hold."""
        ...
