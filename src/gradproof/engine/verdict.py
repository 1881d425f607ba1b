"""What is said in the end: a verdict with its reason, and everything that was seen."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from gradproof.engine.estimators.directional import Measured
from gradproof.engine.results import Entry, Finding, HeatMap, Reading, Resolution, Verdict

RAISED = "The derivative raised "
NOTHING = Resolution(absolute=math.inf, relative=math.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What the probes add up to."""

    verdict: Verdict
    reason: str = ""
    advice: str = ""
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    resolution: Resolution = NOTHING
    readings: tuple[Reading, ...] = ()
    maps: tuple[HeatMap, ...] = ()
    measured: Measured | None = None  # the Jacobian, where it is wrong and all of it is known

    @property
    def entries(self) -> list[Entry]:
        """The wrong entries of all findings."""
        return [entry for finding in self.findings for entry in finding.entries]

    def named(self, mode: str) -> Judgement:
        """The same, said of a mode or a nesting of modes."""
        if not self.findings and not self.readings:
            return self
        findings = tuple(replace(finding, mode=mode) for finding in self.findings)
        readings = tuple(replace(reading, mode=mode) for reading in self.readings)
        maps = tuple(replace(each, mode=mode) for each in self.maps)
        return replace(self, findings=findings, readings=readings, maps=maps)


EMPTY = Judgement(
    verdict=Verdict.PASS,
    resolution=Resolution(absolute=0.0, relative=0.0),
    notes=("There are no entries to check: the inputs or the outputs are empty.",),
)


def together(judgements: list[Judgement]) -> Judgement:
    """One judgement of several: the worst verdict with its reason, and everything that was seen."""
    if len(judgements) == 1:
        return judgements[0]
    severity = [Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.PASS]
    worst = min(judgements, key=lambda judgement: severity.index(judgement.verdict))
    weakest = max(judgements, key=lambda each: (each.resolution.relative, each.resolution.absolute))
    return replace(
        worst,
        findings=tuple(finding for judgement in judgements for finding in judgement.findings),
        notes=tuple(note for judgement in judgements for note in judgement.notes),
        readings=tuple(reading for judgement in judgements for reading in judgement.readings),
        maps=tuple(each for judgement in judgements for each in judgement.maps),
        resolution=weakest.resolution,
    )
