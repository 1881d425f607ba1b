"""Low precision, judged by the same function in double precision.

In low precision a slope read from values is good to a percent or so. The best oracle is the same function in double
precision: its gradient is judged by its own values, and the gradient in low precision is then held against it. What
rounding alone may do to an entry is estimated from how the gradient changes when the point moves by a rounding, from
the size that entry has under other incoming gradients (so that cancellation is no surprise), and from the size of the
values themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from gradproof.engine.explanations.conditioning import answer, question, scatter
from gradproof.engine.findings import raised
from gradproof.engine.judging import judge
from gradproof.engine.localisation.locate import SHOWN
from gradproof.engine.options import Probing
from gradproof.engine.results import Entry, Finding, Obstacle, Reason, Resolution, Verdict
from gradproof.engine.second_opinion import seconded
from gradproof.engine.subject import Array, DerivativeError, Frame, Step, Subject
from gradproof.engine.thresholds import ALIKE, CLEARLY, COARSEST, FEW, GROSS, ROUNDINGS, SLIGHT, TRACE, UNRESOLVED
from gradproof.engine.verdict import Judgement
from gradproof.engine.views import rule_of

INEXACT = Obstacle(
    Reason.CONDITIONING,
    "The gradient is right in double precision, and too inexact in this precision to say more.",
    "Check in float64; in this precision the function is ill-conditioned at this point.",
)
HIDDEN = "In double precision the gradient is off by {error:.1g} of an entry; rounding in this precision hides that."


def judge_rounded(
    subject: Subject,
    wide: Subject,
    *,
    probes: int,
    seed: int,
    options: Probing,
    judged: Callable[..., Judgement] = judge,
) -> Judgement:
    """Judge the function in double precision, then its gradient in low precision by the one in double."""
    judgement = _by_the_wide(subject, wide, probes=probes, seed=seed, options=options, judged=judged)
    if judgement.obstacle is not INEXACT:
        return judgement
    second = seconded(judgement, subject, seed, options)
    return judgement if second.findings else second  # the rule is right: what segments show is rounding


def _by_the_wide(
    subject: Subject,
    wide: Subject,
    *,
    probes: int,
    seed: int,
    options: Probing,
    judged: Callable[..., Judgement],
) -> Judgement:
    judgement = judged(wide, probes=probes, seed=seed, options=options)
    if judgement.verdict is Verdict.FAIL and _within_rounding(judgement, subject.numbers.precision):
        note = HIDDEN.format(error=max(abs(_relative(entry)) for entry in judgement.entries))
        lenient = replace(options, rtol=options.rtol + ROUNDINGS * subject.numbers.precision)
        judgement = judged(wide, probes=probes, seed=seed, options=lenient)
        judgement = replace(judgement, notes=(*judgement.notes, note))
    if judgement.verdict is not Verdict.PASS or not wide.inputs.size or not wide.outputs.size:
        return judgement
    frame = subject.outputs if subject.mode == "reverse" else subject.inputs
    asked = frame.rounded(question(wide, seed))
    try:
        claimed = answer(subject, asked)
    except DerivativeError as error:
        finding = raised(subject, error) if error.absent else _raised_here(subject, error)
        return replace(judgement, findings=(finding,))
    try:
        truth = answer(wide, asked)
    except DerivativeError as error:
        return replace(judgement, findings=(raised(wide, error),))
    accepted = options.along(subject, asked)
    allowed = _allowed(subject, wide, asked, truth, seed) + accepted.atol + accepted.rtol * abs(truth)
    # an infinity on the way may meet another, or a zero, and end as NaN
    overflow = ~subject.arrays.isfinite(claimed) & (abs(truth) + allowed > 0.5 * subject.numbers.largest)
    claimed = subject.arrays.where(overflow, truth, claimed)
    wrong = ~(abs(claimed - truth) <= allowed)
    if bool(wrong.any()):
        native = judge(subject, probes=1, seed=seed, options=options)
        scattered = scatter(subject, asked, claimed, seed + 2 + FEW)
        return _contested(subject, judgement, claimed, truth, allowed, scattered, native)
    judgement = replace(judgement, resolution=_resolution(subject, allowed, truth, judgement))
    return judgement if options.rtol or options.atol else _if_meaningful(judgement)


def _raised_here(subject: Subject, error: DerivativeError) -> Finding:
    return Finding(
        kind="backward-raised" if subject.mode == "reverse" else "forward-raised",
        message=f"The derivative raised {error}, in this precision alone",
        hint="In double precision it is right.",
    )


def _within_rounding(judgement: Judgement, precision: float) -> bool:
    """Whether every error that was found in double precision is lost in the rounding of the low one.

    Several that are all alike, and more than a rounded constant makes, are a wrong factor, which rounding is not.
    """
    errors = [_relative(entry) for entry in judgement.entries]
    if not errors or not max(map(abs, errors)) <= ROUNDINGS * precision:
        return False
    least, most = min(errors), max(errors)
    alike = len(errors) >= FEW and most - least <= ALIKE * max(abs(least), abs(most))
    return not (alike and min(map(abs, errors)) > CLEARLY * precision)


def _relative(entry: Entry) -> float:
    """By how much an entry is too large, relative to what it should be."""
    off = entry.claimed - entry.numerical
    return off / abs(entry.numerical) if entry.numerical else math.inf if off else 0.0


def _frame(subject: Subject) -> Frame:
    """What the answer's entries are named by."""
    return subject.inputs if subject.mode == "reverse" else subject.outputs


def _allowed(subject: Subject, wide: Subject, asked: Array, truth: Array, seed: int) -> Array:
    """How far rounding alone may move each entry."""
    xp, unit = subject.arrays, subject.numbers.precision
    nudge = wide.direction(seed + 1, Step(unit))
    reverse = subject.mode == "reverse"
    moved = abs(answer(wide, asked, nudge) - truth)
    moved = xp.where(xp.isfinite(moved), moved, 0.0)
    size = truth * truth
    for number in range(FEW):
        other = answer(wide, question(wide, seed + 2 + number))
        size = size + other * other
    size = (size / (1 + FEW)) ** 0.5
    values = abs(wide.centre)
    values = xp.where(xp.isfinite(values), values, 0.0)
    largest = float(values.max())
    steep = unit / abs(xp.where(nudge == 0, math.inf, nudge)) if reverse else 1.0 + 0 * size
    natural = largest * steep
    vanishing = float(size.max()) < TRACE * float(natural.max())  # all of it cancels, and rounding is all there is
    if vanishing and reverse:  # unless each entry has a small share in values that are sums of many
        vanishing = float((size * abs(nudge)).sum()) < TRACE * unit * float(values.sum())
    lost = subject.numbers.tiny * steep  # values that small are rounded as if they were larger
    return ROUNDINGS * (unit * (size + natural if vanishing else size) + moved + lost)


def _contested(
    subject: Subject,
    judgement: Judgement,
    claimed: Array,
    truth: Array,
    allowed: Array,
    scattered: Array,
    native: Judgement,
) -> Judgement:
    """The gradient differs from the one in double precision by more than rounding usually does.

    It is wrong if the function's values in its own precision clearly say so too, or if the difference is not of
    rounding's kind. Otherwise the function is ill conditioned: what was seen could not have been told from an error.
    """
    xp = subject.arrays
    gap = abs(claimed - truth)
    gap = xp.where(xp.isnan(claimed) & xp.isfinite(truth), math.inf, gap)  # NaN is as far from a number as can be
    material = ~(gap <= allowed + ROUNDINGS * scattered) & ~(gap <= SLIGHT * float(abs(truth).max()))
    borne_out = native.verdict is Verdict.FAIL and _clearly(native)
    lone = int((~(gap <= allowed)).sum()) <= COARSEST * gap.shape[0]
    gross = bool((material & (gap > (CLEARLY if lone else GROSS) * allowed) & (gap > GROSS * scattered)).any())
    if bool(material.any()) and (borne_out or gross or _off_by_a_factor(claimed, truth)):
        finding = _finding(subject, claimed, truth, allowed)
        return replace(
            judgement,
            findings=(finding,),
            resolution=_resolution(subject, allowed, truth, judgement),
        )
    worst = _frame(subject).locate(int(xp.argmax(gap)))
    note = (
        f"In this precision the gradient differs from the one in double precision by up to {float(gap.max()):.2g} "
        f"(at {worst}): more than a few roundings, and no more than its values bear out."
    )
    resolution = _resolution(subject, xp.maximum(gap, allowed), truth, judgement)
    return _if_meaningful(replace(judgement, resolution=resolution, notes=(*judgement.notes, note)))


def _if_meaningful(judgement: Judgement) -> Judgement:
    """A pass, unless rounding could hide half of the gradient."""
    resolution = judgement.resolution
    if not math.isfinite(resolution.relative) or resolution.relative <= UNRESOLVED:
        return judgement
    return replace(judgement, obstacle=INEXACT)


def _off_by_a_factor(claimed: Array, truth: Array) -> bool:
    """Whether the whole gradient is a multiple of the right one: rounding does not do that."""
    square = float(truth @ truth)
    factor = float(claimed @ truth) / square if square else 1.0
    rest = claimed - factor * truth
    return abs(factor - 1) > ALIKE and float(rest @ rest) < (0.1 * factor) ** 2 * square


def _clearly(native: Judgement) -> bool:
    gaps = (abs(reading.claimed - reading.numerical) / max(reading.bar, 1e-300) for reading in native.readings)
    return any(not gap <= CLEARLY for gap in gaps)


def _resolution(subject: Subject, allowed: Array, truth: Array, judgement: Judgement) -> Resolution:
    """What is lost in rounding, or what the judgement in double precision did not see, if that is more."""
    xp, size = subject.arrays, float(abs(truth).max())
    widest = max(float(xp.where(xp.isfinite(allowed), allowed, 0.0).max()), judgement.resolution.absolute)
    return Resolution.of(widest, size)


def _finding(subject: Subject, claimed: Array, truth: Array, allowed: Array) -> Finding:
    xp = subject.arrays
    what = "gradient with respect to" if subject.mode == "reverse" else "tangent of"
    wrong = ~(abs(claimed - truth) <= allowed)
    count = int(wrong.sum())
    ranked = sorted((int(k) for k in xp.where(wrong)[0][:1000]), key=lambda k: -float(abs(claimed[k] - truth[k])))
    argument = _frame(subject).locate(ranked[0]).path
    entries = [
        Entry(
            index=place.index,
            part=place.part,
            stored=place.stored,
            claimed=float(claimed[k]),
            numerical=float(truth[k]),
            bar=float(allowed[k]),
        )
        for k in ranked
        if (place := _frame(subject).locate(k)).path == argument
    ]
    return Finding(
        kind="wrong-gradient",
        message=f"The {what} {argument} is right in "
        f"double precision and wrong in this precision, in {count} {'entry' if count == 1 else 'entries'}.",
        argument=argument,
        entries=tuple(entries[:SHOWN]),
        hint=f"Look at what the {rule_of(subject)} computes or stores in low precision.",
    )
