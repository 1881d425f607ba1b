"""From probes to a judgement: probe, confirm a disagreement, look for an explanation, then for the wrong entries."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from gradproof.engine.explanations import explain, unexplained
from gradproof.engine.explanations.comparison import Comparison, Kind
from gradproof.engine.explanations.domain import all_undefined, undefined_beside
from gradproof.engine.explanations.quantisation import ZERO_GRADIENT, rises_on_long_steps
from gradproof.engine.extras import extra
from gradproof.engine.findings import entry_findings, error_without_entries, raised
from gradproof.engine.localisation.locate import WrongEntries, localise
from gradproof.engine.nonfinite import broken_claim
from gradproof.engine.options import Probing
from gradproof.engine.pictures import reading_of
from gradproof.engine.probe import Probe
from gradproof.engine.probing import probe_direction
from gradproof.engine.results import UNMEASURED, Entry, Finding, Obstacle, Resolution, Verdict
from gradproof.engine.second_opinion import with_second_opinion
from gradproof.engine.subject import DerivativeError, Subject
from gradproof.engine.tensor_groups import Span, TensorGroup, TensorGroups
from gradproof.engine.thresholds import CLEARLY, ENOUGH, LARGE, SHARE, SLIGHT, TINY, TRACE
from gradproof.engine.verdict import EMPTY, Judgement

ONE_SIDED = "The function is not defined on both sides of the point: slopes were measured on one side, where it is."
INFINITIES = (
    "Some outputs are infinite at the point and all around it: the slopes that are claimed of them were not checked."
)


def judge(subject: Subject, *, probes: int, seed: int, options: Probing) -> Judgement:
    """Judge a derivative by probes along random directions, and by segments where values are too rough for slopes."""
    return judge_by_segments(
        judge_by_probes(subject, probes=probes, seed=seed, options=options), subject, seed, options
    )


def judge_by_segments(judgement: Judgement, subject: Subject, seed: int, options: Probing) -> Judgement:
    """Return a judgement by probes as segments decide it, where values are too rough for slopes."""
    try:
        return with_second_opinion(judgement, subject, seed, options)
    except DerivativeError as error:
        return replace(judgement, findings=(raised(subject, error),), obstacle=None)


def judge_by_probes(subject: Subject, *, probes: int, seed: int, options: Probing) -> Judgement:
    """Judge a derivative by probes along random directions alone."""
    if not subject.inputs.size or not subject.outputs.size:
        return EMPTY
    if undefined := all_undefined(subject):
        return Judgement(obstacle=undefined)
    evidence = _evidence_on(subject, seed, options)
    try:
        return evidence.judgement(probes)
    except DerivativeError as error:
        return evidence.failed((raised(subject, error),))


def judge_in_spans(subject: Subject, spans: Sequence[Span | None], *, seed: int, options: Probing) -> Judgement:
    """Judge a derivative by a probe along each range of the inputs (None is all of them), until one disagrees."""
    evidence = _evidence_on(subject, seed, options)
    try:
        return evidence.in_spans(spans)
    except DerivativeError as error:
        return evidence.failed((raised(subject, error),))


def _evidence_on(subject: Subject, seed: int, options: Probing) -> Evidence:
    outputs = subject.outputs.size
    # one output of twenty without a slope may be an accident
    return Evidence(subject, options, seed, unresolved_allowed=max(SLIGHT * outputs, float(outputs >= 20)))


@dataclass(slots=True)
class Evidence:
    """The probes of one subject, each along a direction of its own.

    `unresolved_allowed` is the number of outputs that a pass may leave out; zero where every entry counts. `drawn`
    counts the directions drawn so far. `compared` makes the comparison of a single wrong entry, where entries do not
    belong to the subject's own inputs.
    """

    subject: Subject
    options: Probing
    seed: int
    unresolved_allowed: float = 0.0
    probes: list[Probe] = field(default_factory=list)
    drawn: int = 0
    notes: list[str] = field(default_factory=list)
    compared: Callable[[Comparison, int, Entry, WrongEntries], Comparison] | None = None

    def judgement(self, probes: int) -> Judgement:
        """Probe all inputs together and, if there is an obstacle to that, each input by itself."""
        deciding: list[Probe] = []
        for _ in range(probes):
            if judgement := self._extended(deciding):
                return judgement
        obstacle = self._obstacle(deciding)
        if sum(start < stop for start, stop in self.subject.inputs.spans) == 1:
            if obstacle is None and self._may_hide_errors(deciding) and (judgement := self._extended(deciding)):
                return judgement  # errors that cancel within a wide bar hardly do along two directions
            return self._passed(deciding) if obstacle is None else self._blocked(obstacle)
        if obstacle is not None:
            return self._in_parts(obstacle)
        return (self._wrong_by_itself(deciding) if self._is_weak(deciding) else None) or self._passed(deciding)

    def in_spans(self, spans: Sequence[Span | None]) -> Judgement:
        """Probe ranges of the inputs by themselves, until one disagrees."""
        deciding: list[Probe] = []
        for span in spans:
            if judgement := self._extended(deciding, span):
                return judgement
        return self._judged(deciding, obstacle=self._obstacle(deciding))

    def _extended(self, deciding: list[Probe], span: Span | None = None) -> Judgement | None:
        """Add the probes along another direction, or return the judgement of one that disagrees."""
        for probe in self._probe(span):
            if self._accepts(probe):
                deciding.append(probe)
            elif judgement := self._disagreement(probe, span):
                return judgement
        return None

    def wrong_entries(self, probe: Probe) -> WrongEntries:
        """Return the wrong entries behind a probe's disagreement; all of them where every entry counts."""
        with extra("The search for the wrong entries", self.notes):
            most = {} if self.unresolved_allowed else {"most": self.subject.inputs.size}
            return localise(probe, self.options, **most)
        return WrongEntries(entries=(), more=True, tolerated=False)

    def failed(self, findings: tuple[Finding, ...]) -> Judgement:
        """Return a judgement with these findings."""
        return self._judged(self.probes, findings=findings)

    def _probe(self, span: Span | None = None, confirmed: Subject | None = None) -> list[Probe]:
        seed, confirming = self.seed + 7919 * self.drawn, confirmed is not None
        answers = probe_direction(confirmed or self.subject, seed, self.options, span, confirming=confirming)
        self.drawn += 1
        self.probes += answers
        return answers

    def _accepts(self, probe: Probe) -> bool:
        """Return True if a probe agrees, or if the user tolerates every entry behind its disagreement."""
        if probe.agrees:
            return True
        if not (self.options.rtol or self.options.atol) or not math.isfinite(probe.claim.slope):
            return False
        located = self.wrong_entries(probe)
        return located.tolerated or (not located.entries and probe.excess <= probe.claim.tolerated)

    def _dissenting(self, answers: list[Probe]) -> Probe | None:
        return next((probe for probe in answers if not self._accepts(probe)), None)

    def _obstacle(self, probes: list[Probe]) -> Obstacle | None:
        """Return why agreeing probes are no evidence, or None if they are."""
        return next(filter(None, (explain(self._compared(Kind.AGREEMENT, probe)) for probe in probes)), None)

    def _compared(self, kind: Kind, probe: Probe, second: Probe | None = None) -> Comparison:
        allowed = self.unresolved_allowed
        return Comparison(kind=kind, probe=probe, second=second, options=self.options, unresolved_allowed=allowed)

    def _may_hide_errors(self, deciding: list[Probe]) -> bool:
        """Return True if errors that cancel would pass, in any precision in which probes decide and no segments."""
        found = _resolution(deciding).relative
        return self._is_weak(deciding, SLIGHT) or SLIGHT < found <= SHARE

    def _is_weak(self, deciding: list[Probe], share: float = TRACE) -> bool:
        """Return True if a pass would say little, although the precision allows more."""
        return self.subject.numbers.precision < ENOUGH and _resolution(deciding).relative > share

    def _wrong_by_itself(self, deciding: list[Probe]) -> Judgement | None:
        """Probe parts of the inputs by themselves, since the kink of one may have hidden an error in another.

        A part that resolves as little as all inputs is split again. In a large function it must have resolved more than
        they do: where it does not, kinks are everywhere.
        """
        groups, whole = TensorGroups(self.subject.inputs.spans), _resolution(deciding)
        for group in groups:
            probes = self._probe(group.span)
            for probe in probes:
                if not self._accepts(probe):
                    judgement = self._disagreement(probe, group.span)
                    if judgement is not None and judgement.verdict is Verdict.FAIL:
                        return judgement
            gains = CLEARLY * _resolution(probes).absolute < whole.absolute
            if self._is_weak(probes) and (gains or self.subject.inputs.size < LARGE):
                groups.split(group)
        return None

    def _in_parts(self, obstacle: Obstacle) -> Judgement:
        """Probe parts of the inputs by themselves: the obstacle may come from a few of them only."""
        groups = TensorGroups(self.subject.inputs.spans)
        obstacles: list[Obstacle] = []
        verified: list[Probe] = []
        for group in groups:
            accepted: list[Probe] = []
            judgement: Judgement | None = None
            for probe in self._probe(group.span):
                if self._accepts(probe):
                    accepted.append(probe)
                elif judgement := self._disagreement(probe, group.span):
                    break
            if judgement and (group.is_single or judgement.verdict is Verdict.FAIL):
                return judgement
            found = judgement.obstacle if judgement else self._obstacle(accepted)
            if found is None:
                verified += accepted
                self.notes.append(f"{self._named(group)} verified on {'its' if group.is_single else 'their'} own.")
            elif not groups.split(group):
                path = self.subject.inputs.locate(group.span[0]).path
                about = "" if path == found.argument else f" (with respect to {path})"
                obstacles.append(replace(found, message=f"{found.message.removesuffix('.')}{about}."))
        if obstacles or groups.exhausted:
            return self._blocked((*obstacles, obstacle)[0])
        self.notes.clear()
        return self._passed(verified)

    def _named(self, group: TensorGroup) -> str:
        first, last = (self.subject.inputs.locate(at).path for at in (group.span[0], group.span[1] - 1))
        return f"{first} was" if group.is_single else f"{first} to {last} were"

    def _disagreement(self, probe: Probe, span: Span | None) -> Judgement | None:
        """Confirm a disagreement along a second and if need be a third direction, and judge it.

        In forward mode only the outputs outside their bars are probed again. One of many outputs may be outside its bar
        by chance: if neither direction confirms it, the disagreement is dropped and the result is None.
        """
        if not math.isfinite(probe.claim.slope):
            broken = broken_claim(probe)
            comparison = Comparison(kind=Kind.NON_FINITE, probe=probe, options=self.options, broken=broken)
            obstacle = explain(comparison)
            return self._blocked(obstacle) if obstacle else self.failed((broken.finding,))
        few = probe.ladder.subject if probe.ladder.subject.mode == "forward" else self.subject
        another = self._dissenting(self._probe(span, few)) or self._dissenting(self._probe(span, few))
        if another is None and few is not self.subject:
            return None
        comparison = self._compared(Kind.UNCONFIRMED, probe)
        if another is not None:
            both = sorted([probe, another], key=lambda each: -each.excess / max(each.bar, TINY))
            worst, other = sorted(both, key=lambda each: not each.complete)
            comparison = self._compared(Kind.DISAGREEMENT, worst, other)
        obstacle = explain(comparison)
        return self._blocked(obstacle) if obstacle else self._of_entries(comparison)

    def _of_entries(self, disagreement: Comparison) -> Judgement:
        """Find the wrong entries behind a disagreement, and return them as findings, or what explains them all."""
        for probe in disagreement.probes:  # where errors cancel along one direction, they do not along another
            located = self.wrong_entries(probe)
            if located.entries:
                disagreement = replace(disagreement, probe=probe)
                break
        else:
            obstacle = explain(self._compared(Kind.UNLOCATED, disagreement.probe))
            return self._blocked(obstacle) if obstacle else self.failed((error_without_entries(disagreement.probe),))
        entries = [self._entry(disagreement, *pair, located) for pair in located.entries]
        wrong, obstacle = unexplained(entries)
        if not wrong and obstacle is not None:
            return self._blocked(obstacle)
        kept = [
            pair for pair, each in zip(located.entries, entries, strict=True) if any(each is other for other in wrong)
        ]
        return self.failed(tuple(entry_findings(self.subject, kept, more=located.more)))

    def _entry(self, disagreement: Comparison, coordinate: int, entry: Entry, located: WrongEntries) -> Comparison:
        """Return the comparison of a single wrong entry."""
        if self.compared is not None:
            return self.compared(disagreement, coordinate, entry, located)
        adds_up = located.adds_up if disagreement.probe.ladder.whole is None else located.adds_up and None
        return replace(disagreement, kind=Kind.ENTRY, second=None, coordinate=coordinate, entry=entry, adds_up=adds_up)

    def _passed(self, deciding: list[Probe]) -> Judgement:
        unresolved = max(probe.unresolved for probe in deciding)
        if unresolved:
            self.notes.append(
                f"{unresolved} of {self.subject.outputs.size} output entries lie too near a kink or an edge to be "
                "checked; they were left out."
            )
        if any(len(probe.ladder.samples) > 2 and undefined_beside(probe) for probe in deciding):
            self.notes.append(ONE_SIDED)
        if self._claims_slopes_of_infinities(deciding[0]):
            self.notes.append(INFINITIES)
        zero = not any(probe.claim.largest_entry for probe in deciding)
        if zero and rises_on_long_steps(self.subject, deciding[0].ladder.direction):
            self.notes.append(ZERO_GRADIENT)
        return self._judged(deciding)

    def _claims_slopes_of_infinities(self, probe: Probe) -> bool:
        """Return True if a non-zero slope is claimed for outputs that are infinite at the point and around it."""
        subject = self.subject
        if subject.scale.finite:
            return False
        infinite = subject.arrays.isinf(subject.centre)
        if subject.mode == "forward":
            return bool((subject.pushforward(probe.ladder.direction)[infinite] != 0).any())
        return bool((subject.pullback(1.0 * infinite) != 0).any())

    def _blocked(self, by: Obstacle) -> Judgement:
        return self._judged(self.probes, obstacle=by)

    def _judged(
        self, deciding: list[Probe], *, findings: tuple[Finding, ...] = (), obstacle: Obstacle | None = None
    ) -> Judgement:
        return Judgement(
            findings=findings,
            obstacle=obstacle,
            notes=tuple(self.notes),
            resolution=_resolution(deciding),
            readings=tuple(map(reading_of, self.probes)),
        )


def _resolution(probes: list[Probe]) -> Resolution:
    """Return the weakest resolution among some probes."""
    if not probes:
        return UNMEASURED
    absolute = max(probe.resolution for probe in probes)
    size = max(probe.largest_entry for probe in probes)
    return Resolution.of(absolute, size)
