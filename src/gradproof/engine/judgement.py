"""From probes to a verdict: what can be said, and why."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from gradproof.engine.ladder import Ladder
from gradproof.engine.localisation import Located, localise
from gradproof.engine.obstacles import (
    MEANINGFUL,
    NOISE,
    RANDOM,
    SCALE,
    Obstacle,
    all_undefined,
    kink,
    matches_coarser,
    obstacle,
)
from gradproof.engine.probe import CLEARLY, LOW, Probe, ask
from gradproof.engine.results import Entry, Finding, Reading, Resolution, Verdict
from gradproof.engine.subject import PullbackError, Subject
from gradproof.engine.weighing import Probing, combine, restricted

Span = tuple[int, int]
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


@dataclass(slots=True)
class _Evidence:
    """The probes so far, each along a direction of its own."""

    subject: Subject
    options: Probing
    seed: int
    probes: list[Probe] = field(default_factory=list)
    asked: int = 0
    notes: list[str] = field(default_factory=list)

    def ask(self, span: Span | None = None) -> list[Probe]:
        answers = ask(self.subject, self.seed + 7919 * self.asked, self.options, span)
        self.asked += 1
        self.probes += answers
        return answers

    def obstacle(self, probes: list[Probe]) -> Obstacle | None:
        found = (obstacle(probe, self.subject.outputs.size) for probe in probes)
        return next(filter(None, found), None)

    def passed(self, deciding: list[Probe]) -> Judgement:
        unresolved = max(probe.unresolved for probe in deciding)
        if unresolved:
            self.notes.append(
                f"{unresolved} of {self.subject.outputs.size} output entries lie too near a kink or an edge to be "
                "checked; they were left out."
            )
        return self._judged(Verdict.PASS, deciding)

    def failed(self, findings: tuple[Finding, ...]) -> Judgement:
        return self._judged(Verdict.FAIL, self.probes, reason=findings[0].message, findings=findings)

    def blocked(self, by: Obstacle) -> Judgement:
        return self._judged(Verdict.INCONCLUSIVE, self.probes, reason=by.reason, advice=by.advice)

    def _judged(
        self,
        verdict: Verdict,
        deciding: list[Probe],
        *,
        reason: str = "",
        advice: str = "",
        findings: tuple[Finding, ...] = (),
    ) -> Judgement:
        return Judgement(
            verdict=verdict,
            reason=reason,
            advice=advice,
            findings=findings,
            notes=tuple(self.notes),
            resolution=_resolution(deciding),
            readings=tuple(map(_reading, self.probes)),
        )


def judge(subject: Subject, *, probes: int, seed: int, options: Probing) -> Judgement:
    """Probe, and where a probe disagrees, ask again before calling the gradient wrong, then find the wrong entries."""
    if not subject.inputs.size or not subject.outputs.size:
        return Judgement(
            verdict=Verdict.PASS,
            resolution=Resolution(absolute=0.0, relative=0.0),
            notes=("There are no entries to check: the inputs or the outputs are empty.",),
        )
    evidence = _Evidence(subject, options, seed)
    if undefined := all_undefined(subject):
        return evidence.blocked(undefined)
    try:
        return _judge(evidence, probes)
    except PullbackError as error:
        finding = Finding(
            kind="backward-raised",
            message=f"The derivative raised {error}",
            advice="Look at the backward of the function: it did not accept an ordinary incoming gradient.",
        )
        return evidence.failed((finding,))


def _judge(evidence: _Evidence, probes: int) -> Judgement:
    for _ in range(probes):
        for probe in evidence.ask():
            if not probe.agrees:
                return _disagreement(evidence, probe, None)
    deciding = list(evidence.probes)
    in_the_way = evidence.obstacle(deciding)
    if in_the_way is None:
        return evidence.passed(deciding)
    if len(evidence.subject.inputs.spans) == 1:
        return evidence.blocked(in_the_way)
    return _one_by_one(evidence)


def _one_by_one(evidence: _Evidence) -> Judgement:
    """Something is in the way along all inputs together: it may be in the way of one of them only."""
    obstacles: list[Obstacle] = []
    verified: list[Probe] = []
    for span in evidence.subject.inputs.spans:
        if span[0] == span[1]:
            continue
        answers = evidence.ask(span)
        for probe in answers:
            if not probe.agrees:
                return _disagreement(evidence, probe, span)
        in_the_way = evidence.obstacle(answers)
        path = evidence.subject.inputs.locate(span[0]).path
        if in_the_way is None:
            verified += answers
            evidence.notes.append(f"{path} was verified on its own.")
        else:
            obstacles.append(Obstacle(f"{in_the_way.reason} (with respect to {path})", in_the_way.advice))
    if obstacles:
        return evidence.blocked(obstacles[0])
    evidence.notes.clear()
    return evidence.passed(verified)


def _disagreement(evidence: _Evidence, probe: Probe, span: Span | None) -> Judgement:
    """A second and if need be a third direction decide whether the claim is wrong or the measurement was."""
    if not math.isfinite(probe.claim.slope):
        return _not_finite(evidence, probe)
    another = _dissenting(evidence.ask(span)) or _dissenting(evidence.ask(span))
    if another is None:
        return evidence.blocked(
            Obstacle(
                "noise: the claimed slope missed its bar along one random direction and met it along two others",
                "Run again with more probes=, or at another point.",
            )
        )
    worst = max([probe, another], key=lambda each: each.excess / max(each.bar, 1e-300))
    if not worst.repeatable and worst.excess < 10 * worst.bar:
        return evidence.blocked(RANDOM)
    if worst.coarse and worst.sums.bar > worst.sums.size:
        return evidence.blocked(NOISE)
    if evidence.subject.precision > LOW and min(probe.excess / probe.bar, another.excess / another.bar) < CLEARLY:
        return evidence.blocked(NOISE)
    if matches_coarser(probe) or matches_coarser(another):
        return evidence.blocked(SCALE)
    located = localise(worst, evidence.options)
    if worst.kinks and not located.entries:
        return evidence.blocked(kink(worst.ladder.subject, worst))
    if worst.coarse and not located.entries:
        return evidence.blocked(NOISE)
    return evidence.failed(tuple(_findings(evidence.subject, located)) or (_unlocated(worst),))


def _dissenting(answers: list[Probe]) -> Probe | None:
    return next((probe for probe in answers if not probe.agrees), None)


def _not_finite(evidence: _Evidence, probe: Probe) -> Judgement:
    """A claimed NaN or infinity is wrong where the function's own slope is finite."""
    subject, xp = probe.ladder.subject, evidence.subject.arrays
    broken = ~xp.isfinite(probe.gradient * probe.ladder.direction)
    first, count = int(xp.where(broken)[0][0]), int(broken.sum())
    place = subject.inputs.locate(first)
    ladder = Ladder(subject, restricted(subject, probe.ladder.direction, first, first + 1))
    for exponent in (0, 1, -1, -2):
        ladder.add(exponent)
    estimates = ladder.estimates()
    sums = combine(ladder, subject.cotangent(probe.seed))
    bent = bool(ladder.bends(estimates.bar).any())
    undefined = not bool(xp.isfinite(subject.centre).all())
    if bent or undefined or not math.isfinite(sums.bar) or not _small(subject, ladder, sums.bar):
        return evidence.blocked(
            Obstacle(
                f"non-finite: the claimed gradient is not finite in {count} entries ({place} first), and the function "
                "has no clear slope there either",
                "Choose a point inside the function's domain.",
            )
        )
    step = float(ladder.direction[first])
    entry = Entry(
        index=place.index,
        part=place.part,
        claimed=float(probe.gradient[first]),
        numerical=sums.slope / step,
        bar=sums.bar / abs(step),
    )
    return evidence.failed(
        (
            Finding(
                kind="non-finite-gradient",
                message=f"The gradient with respect to {place.path} is NaN or infinite in {count} entries, where the "
                "function has a finite slope.",
                argument=place.path,
                entries=(entry,),
                advice="Look for 0·inf or 0/0 in the backward, often a where() whose unused branch divides by zero.",
            ),
        )
    )


def _small(subject: Subject, ladder: Ladder, bar: float) -> bool:
    """Whether a bar is small beside the change of values along the ladder, or their own size times the step."""
    xp = subject.arrays
    values = xp.where(xp.isfinite(subject.centre), abs(subject.centre), 0.0)
    step = float(abs(ladder.direction).max())
    return bar <= MEANINGFUL * max(step, step * float(values.max()))


def _findings(subject: Subject, located: Located) -> Iterable[Finding]:
    by_argument: dict[str, list[Entry]] = {}
    for coordinate, entry in located.entries:
        by_argument.setdefault(subject.inputs.locate(coordinate).path, []).append(entry)
    for argument, entries in by_argument.items():
        least = "at least " if located.more else ""
        count = f"{least}{len(entries)} {'entry' if len(entries) == 1 else 'entries'}"
        yield Finding(
            kind="wrong-gradient",
            message=f"The gradient with respect to {argument} is wrong in {count}.",
            argument=argument,
            entries=tuple(entries),
            advice="Compare the backward with the derivative of the forward at the entries shown.",
        )


def _unlocated(probe: Probe) -> Finding:
    return Finding(
        kind="wrong-gradient",
        message=f"The gradient predicts a slope of {probe.claim.slope:.9g} along a random direction; the function's "
        f"values give {probe.sums.slope:.9g} ± {probe.bar:.2g}. The error is spread too thinly to single out entries.",
        advice="Compare the backward with the derivative of the forward.",
    )


def _reading(probe: Probe) -> Reading:
    return Reading(seed=probe.seed, claimed=probe.claim.slope, numerical=probe.sums.slope, bar=probe.bar)


def _resolution(probes: list[Probe]) -> Resolution:
    if not probes:
        return NOTHING
    absolute = max(probe.resolution for probe in probes)
    size = max(probe.claim.largest_entry for probe in probes)
    return Resolution(absolute=absolute, relative=absolute / size if size else math.inf)
