"""From probes to a verdict: what can be said, and why."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from gradproof.engine.contraction import Probing, tolerance_hint
from gradproof.engine.explanations.input_quantisation import without_grain
from gradproof.engine.explanations.nonfinite import not_finite
from gradproof.engine.explanations.obstacles import (
    CANCELLATION,
    ILL_CONDITIONED,
    NONDETERMINISTIC,
    QUANTISED,
    SCALE,
    STEEP,
    Obstacle,
    all_undefined,
    hardly_moves,
    is_wavering,
    kink,
    matches_coarser,
    may_be_cancelled,
    may_be_finer,
    obstacle,
    on_a_tread,
    on_long_treads,
    roughness,
    undefined_beside,
)
from gradproof.engine.explanations.oscillation import without_ripples
from gradproof.engine.explanations.perturbation import is_cancelled
from gradproof.engine.explanations.plateau import TREAD, is_on_a_tread, stands_still_along
from gradproof.engine.explanations.ties import without_ties
from gradproof.engine.jacobian.columns import Columns
from gradproof.engine.localisation import Located, localise
from gradproof.engine.pictures import remainders
from gradproof.engine.probe import CLEARLY, LOW, Probe
from gradproof.engine.probing import ask
from gradproof.engine.results import Entry, Finding, Reading, Resolution, Verdict
from gradproof.engine.subject import DerivativeError, OutputSubset, Subject
from gradproof.engine.verdict import EMPTY, NOTHING, RAISED, Judgement

Span = tuple[int, int]
TINY = 1e-300  # what is divided by at the least
WEAK = 1e-3  # of the largest entry: an error of more than this should not pass
ONE_SIDED = "The function is not defined on both sides of the point: slopes were measured on one side, where it is."
INFINITIES = (
    "Some outputs are infinite at the point and all around it: the slopes that are claimed of them were not checked."
)


@dataclass(slots=True)
class _Evidence:
    """The probes so far, each along a direction of its own."""

    subject: Subject
    options: Probing
    seed: int
    exhaustive: bool = False
    probes: list[Probe] = field(default_factory=list)
    asked: int = 0
    notes: list[str] = field(default_factory=list)

    def ask(self, span: Span | None = None, subject: Subject | None = None) -> list[Probe]:
        answers = ask(subject or self.subject, self.seed + 7919 * self.asked, self.options, span)
        self.asked += 1
        self.probes += answers
        return answers

    def accepts(self, probe: Probe) -> bool:
        """Whether a probe agrees, or every entry behind its disagreement is one that the user forgives."""
        if probe.agrees:
            return True
        if not self.lenient or not math.isfinite(probe.claim.slope):
            return False
        located = self.localised(probe)
        return located.tolerated or (not located.entries and probe.excess <= probe.claim.tolerated)

    @property
    def lenient(self) -> bool:
        """Whether the user forgives anything."""
        return bool(self.options.rtol or self.options.atol)

    def localised(self, probe: Probe) -> Located:
        """The wrong entries behind a probe's disagreement, looked for among all of them where none may be left out."""
        located = localise(probe, self.options)
        if self.exhaustive and located.tolerated and located.more:
            located = localise(probe, self.options, most=self.subject.inputs.size)
        return located

    def unexplained(self, probe: Probe) -> Located | Obstacle:
        """The wrong entries without those that are wrong for another reason than the claim; or that reason.

        In full coverage columns move one by one, and ties are looked for elsewhere.
        """
        located = without_grain(probe, self.localised(probe))
        if isinstance(located, Located):
            located = without_ripples(probe, located)
        if isinstance(located, Located) and not self.exhaustive:
            located = without_ties(probe, located, self.options)
        return located

    def dissenting(self, answers: list[Probe]) -> Probe | None:
        """A probe that is not accepted."""
        return next((probe for probe in answers if not self.accepts(probe)), None)

    def obstacle(self, probes: list[Probe]) -> Obstacle | None:
        spare = 0 if self.exhaustive else self.subject.outputs.size
        found = (obstacle(probe, spare) for probe in probes)
        return next(filter(None, found), None)

    def is_weak(self, deciding: list[Probe]) -> bool:
        """Whether a pass would say little, of values that could say more."""
        return self.subject.precision < LOW and not self.exhaustive and _resolution(deciding).relative > WEAK

    def passed(self, deciding: list[Probe]) -> Judgement:
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
        if not self.exhaustive and not any(probe.claim.largest_entry for probe in deciding):
            subject, direction = self.subject, deciding[0].ladder.direction
            if is_on_a_tread(subject, direction):
                self.notes.append(TREAD)
        return self._judged(Verdict.PASS, deciding)

    def _claims_slopes_of_infinities(self, probe: Probe) -> bool:
        """Whether something is claimed of outputs that are infinite at the point, and so all around it."""
        subject = self.subject
        if subject.finite:
            return False
        infinite = subject.arrays.isinf(subject.centre)
        if subject.mode == "forward":
            return bool((subject.pushforward(probe.ladder.direction)[infinite] != 0).any())
        return bool((subject.pullback(1.0 * infinite) != 0).any())

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


def judge(subject: Subject, *, probes: int, seed: int, options: Probing, exhaustive: bool = False) -> Judgement:
    """Probe, and where a probe disagrees, ask again before calling the gradient wrong, then find the wrong entries.

    A few outputs of many may say nothing, near a kink or an edge, unless the judgement is to be exhaustive.
    """
    if not subject.inputs.size or not subject.outputs.size:
        return EMPTY
    evidence = _Evidence(subject, options, seed, exhaustive)
    if undefined := all_undefined(subject):
        return evidence.blocked(undefined)
    try:
        return _judge(evidence, probes)
    except DerivativeError as error:
        return evidence.failed((raised(subject, error),))


def raised(subject: Subject, error: DerivativeError) -> Finding:
    """What to say of a derivative that cannot be had."""
    side, mode = ("forward", "forward") if subject.rule == "jvp" else ("backward", "reverse")
    if error.absent:
        return Finding(
            kind=f"no-{side}-rule",
            message=f"There is no {mode}-mode derivative to check: {error}",
            advice=f"Write the rule, or leave {mode!r} out of modes=.",
        )
    if error.malformed:
        return Finding(
            kind="malformed-gradient",
            message=f"The derivative cannot be read: {f'for {error.path}, ' if error.path else ''}{error}.",
            argument=error.path,
            advice=f"Look at how the {subject.rule} builds the indices; to convert or print such a tensor can end the "
            "process.",
        )
    given = "tangent" if subject.rule == "jvp" else "incoming gradient"
    return Finding(
        kind=f"{side}-raised",
        message=f"{RAISED}{error}",
        advice=f"Look at the {subject.rule} of the function: it did not accept an ordinary {given}.",
    )


def _judge(evidence: _Evidence, probes: int) -> Judgement:
    deciding: list[Probe] = []
    for _ in range(probes):
        for probe in evidence.ask():
            if evidence.accepts(probe):
                deciding.append(probe)
            elif judgement := _disagreement(evidence, probe, None):
                return judgement
    in_the_way = evidence.obstacle(deciding)
    alone = len(evidence.subject.inputs.spans) == 1
    if in_the_way is None:
        weak = not alone and evidence.is_weak(deciding)
        return (_wrong_by_itself(evidence) if weak else None) or evidence.passed(deciding)
    return evidence.blocked(in_the_way) if alone else _one_by_one(evidence)


def _wrong_by_itself(evidence: _Evidence) -> Judgement | None:
    """Whether one input, asked about by itself, is found wrong: the kink of another may have hidden it."""
    for span in evidence.subject.inputs.spans:
        for probe in evidence.ask(span) if span[0] < span[1] else ():
            if not evidence.accepts(probe):
                judgement = _disagreement(evidence, probe, span)
                if judgement is not None and judgement.verdict is Verdict.FAIL:
                    return judgement
    return None


def _one_by_one(evidence: _Evidence) -> Judgement:
    """Something is in the way along all inputs together: it may be in the way of one of them only."""
    obstacles: list[Obstacle] = []
    verified: list[Probe] = []
    for span in evidence.subject.inputs.spans:
        if span[0] == span[1]:
            continue
        accepted: list[Probe] = []
        for probe in evidence.ask(span):
            if evidence.accepts(probe):
                accepted.append(probe)
            elif judgement := _disagreement(evidence, probe, span):
                return judgement
        in_the_way = evidence.obstacle(accepted)
        path = evidence.subject.inputs.locate(span[0]).path
        if in_the_way is None:
            verified += accepted
            evidence.notes.append(f"{path} was verified on its own.")
        else:
            obstacles.append(Obstacle(f"{in_the_way.reason} (with respect to {path})", in_the_way.advice))
    if obstacles:
        return evidence.blocked(obstacles[0])
    evidence.notes.clear()
    return evidence.passed(verified)


def _disagreement(evidence: _Evidence, probe: Probe, span: Span | None) -> Judgement | None:
    """A second and if need be a third direction decide whether the claim is wrong or the measurement was.

    Of a pushforward those outputs are asked about again that strayed. Of many outputs one may stray by accident: where
    neither direction bears it out, nothing is held against the claim.
    """
    if not math.isfinite(probe.claim.slope):
        found = not_finite(probe)
        return evidence.blocked(found) if isinstance(found, Obstacle) else evidence.failed((found,))
    few = probe.ladder.subject if probe.ladder.subject.mode == "forward" else evidence.subject
    another = evidence.dissenting(evidence.ask(span, few)) or evidence.dissenting(evidence.ask(span, few))
    if another is None and few is not evidence.subject:
        return None
    if another is None and bool(probe.ladder.plateaus().any()):
        return evidence.blocked(QUANTISED)
    if another is None:
        return evidence.blocked(
            Obstacle(
                "noise: the claimed slope missed its bar along one random direction and met it along two others",
                "Run again with more probes=, or at another point.",
            )
        )
    worst = max([probe, another], key=lambda each: each.excess / max(each.bar, TINY))
    if in_the_way := _excuse(evidence, probe, another, worst):
        return evidence.blocked(in_the_way)
    located = evidence.unexplained(worst)
    if isinstance(located, Obstacle):
        return evidence.blocked(located)
    if in_the_way := _excuse_of_entries(worst, located, evidence.exhaustive):
        return evidence.blocked(in_the_way)
    return evidence.failed(tuple(findings_of(evidence.subject, located)) or (_unlocated(worst),))


def _excuse(evidence: _Evidence, probe: Probe, another: Probe, worst: Probe) -> Obstacle | None:
    """What else than a wrong claim may set two slopes apart from it, of which the worst is one."""
    if not worst.repeatable and worst.excess < 10 * worst.bar:
        return NONDETERMINISTIC
    if may_be_cancelled(worst) and is_cancelled(whole_of(evidence.subject), evidence.seed):
        return CANCELLATION
    if worst.coarse and worst.sums.bar > worst.sums.size > 0 and not hardly_moves(worst):
        return roughness(worst)
    if evidence.subject.precision > LOW and min(probe.excess / probe.bar, another.excess / another.bar) < CLEARLY:
        return roughness(worst)
    if on_long_treads(worst):
        return QUANTISED
    if matches_coarser(probe) or matches_coarser(another):
        return SCALE
    if may_be_finer(probe) or may_be_finer(another):
        return STEEP
    if not evidence.exhaustive and is_wavering(worst, evidence.seed):
        return ILL_CONDITIONED
    return None


def _excuse_of_entries(worst: Probe, located: Located, exhaustive: bool) -> Obstacle | None:
    """What else it may be, once the entries behind it are known, or none is to be found.

    Where every entry is asked about by itself, and none is wrong, nothing is.
    """
    if not located.entries:
        if worst.kinks:
            return kink(worst.ladder.subject, worst)
        return roughness(worst) if worst.coarse or exhaustive else None
    if not any(entry.numerical for _, entry in located.entries) and on_a_tread(worst, located.entries[0][0]):
        return QUANTISED
    subject, direction = worst.ladder.subject, worst.ladder.direction
    if all(
        entry.claimed == 0 and stands_still_along(subject, direction, coordinate, entry.numerical)
        for coordinate, entry in located.entries
    ):
        return QUANTISED
    return None


def whole_of(subject: Subject) -> Subject:
    """The subject that some columns or outputs belong to."""
    return subject.whole if isinstance(subject, Columns | OutputSubset) else subject


def findings_of(subject: Subject, located: Located) -> Iterable[Finding]:
    """What to say of wrong entries, argument by argument."""
    what = "gradient" if subject.rule == "backward" else "pushforward"
    by_argument: dict[str, list[Entry]] = {}
    for coordinate, entry in located.entries:
        by_argument.setdefault(subject.inputs.locate(coordinate).path, []).append(entry)
    for argument, entries in by_argument.items():
        least = "at least " if located.more else ""
        count = f"{least}{len(entries)} {'entry' if len(entries) == 1 else 'entries'}"
        absent = sum(entry.stored is False for entry in entries)
        if absent:
            count += ", where nothing is stored" if absent == len(entries) else f", {absent} where nothing is stored"
        error = max(abs(entry.claimed - entry.numerical) / max(abs(entry.numerical), TINY) for entry in entries)
        yield Finding(
            kind="wrong-gradient",
            message=f"The {what} with respect to {argument} is wrong in {count}.",
            argument=argument,
            entries=tuple(entries),
            advice=f"Compare the {subject.rule} with the derivative of the forward at the entries shown."
            + tolerance_hint(error),
        )


def _unlocated(probe: Probe) -> Finding:
    return Finding(
        kind="wrong-gradient",
        message=f"The derivative predicts a slope of {probe.claim.slope:.9g} along a random direction; the function's "
        f"values give {probe.sums.slope:.9g} ± {probe.bar:.2g}. The error is spread too thinly to single out entries.",
        advice="Compare the derivative's rule with the function.",
    )


def _reading(probe: Probe) -> Reading:
    return Reading(
        seed=probe.seed,
        claimed=probe.claim.slope,
        numerical=probe.sums.slope,
        bar=probe.bar,
        steps=remainders(probe),
        rounding=probe.sums.floor,
    )


def _resolution(probes: list[Probe]) -> Resolution:
    if not probes:
        return NOTHING
    absolute = max(probe.resolution for probe in probes)
    size = max(probe.largest_entry for probe in probes)
    relative = absolute / size if size and math.isfinite(absolute) else math.inf
    return Resolution(absolute=absolute, relative=relative)
