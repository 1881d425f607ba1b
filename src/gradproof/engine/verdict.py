"""The judgement of one derivative, and the only function that makes a verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gradproof.engine.estimators.directional import Measured
from gradproof.engine.results import (
    UNMEASURED,
    Entry,
    ErrorMap,
    Finding,
    HeatMap,
    Obstacle,
    Reading,
    Reason,
    Resolution,
    Verdict,
)

BLIND = Obstacle(
    Reason.NON_FINITE,
    "No error would have been caught: the numbers that were measured overflow, or none could be measured.",
    "Scale the inputs or the outputs such that values and gradients lie well within the range of their dtype.",
)


def verdict_of(findings: Sequence[Finding], obstacle: Obstacle | None) -> Verdict:
    """Return fail if there is a finding, inconclusive if there is an obstacle, and pass otherwise."""
    if findings:
        return Verdict.FAIL
    return Verdict.PASS if obstacle is None else Verdict.INCONCLUSIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The evidence for or against one derivative: findings, the obstacle to a verdict, and what was measured."""

    findings: tuple[Finding, ...] = ()
    obstacle: Obstacle | None = None
    notes: tuple[str, ...] = ()
    resolution: Resolution = UNMEASURED
    readings: tuple[Reading, ...] = ()
    maps: tuple[HeatMap, ...] = ()
    errors: tuple[ErrorMap, ...] = ()
    unsupported: tuple[str, ...] = ()  # derivatives that were asked for and that the framework does not have
    measured: Measured | None = None  # the Jacobian, where it is wrong and all of it is known

    @property
    def verdict(self) -> Verdict:
        """The verdict that follows from the evidence."""
        return verdict_of(self.findings, self.obstacle_to_pass)

    @property
    def obstacle_to_pass(self) -> Obstacle | None:
        """The obstacle to a pass: the one that was found, or `BLIND` if the resolution is not finite."""
        return self.obstacle or (None if math.isfinite(self.resolution.absolute) else BLIND)

    @property
    def message(self) -> str:
        """The reason for the verdict in a sentence; nothing for a pass."""
        if self.findings:
            return self.findings[0].message
        return self.obstacle_to_pass.message if self.obstacle_to_pass else ""

    @property
    def entries(self) -> list[Entry]:
        """The wrong entries of all findings."""
        return [entry for finding in self.findings for entry in finding.entries]

    def named(self, mode: str) -> Judgement:
        """Return the same judgement, attributed to a mode or a nesting of modes."""
        if not self.findings and not self.readings:
            return self
        findings = tuple(replace(finding, mode=mode) for finding in self.findings)
        readings = tuple(replace(reading, mode=mode) for reading in self.readings)
        maps = tuple(replace(each, mode=mode) for each in self.maps)
        return replace(self, findings=findings, readings=readings, maps=maps)


EMPTY = Judgement(
    resolution=Resolution(absolute=0.0, relative=0.0),
    notes=("There are no entries to check: the inputs or the outputs are empty.",),
)


def together(judgements: Sequence[Judgement]) -> Judgement:
    """Join several judgements: every finding, the first obstacle, and the weakest resolution."""
    if len(judgements) == 1:
        return judgements[0]
    weakest = max(judgements, key=lambda each: (each.resolution.relative, each.resolution.absolute))
    return Judgement(
        findings=tuple(finding for judgement in judgements for finding in judgement.findings),
        obstacle=next((each.obstacle for each in judgements if each.obstacle), None),
        notes=tuple(note for judgement in judgements for note in judgement.notes),
        readings=tuple(reading for judgement in judgements for reading in judgement.readings),
        maps=tuple(each for judgement in judgements for each in judgement.maps),
        errors=tuple(each for judgement in judgements for each in judgement.errors),
        unsupported=tuple(name for judgement in judgements for name in judgement.unsupported),
        measured=next((each.measured for each in judgements if each.measured), None),
        resolution=weakest.resolution,
    )
