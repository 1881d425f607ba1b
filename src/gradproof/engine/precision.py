"""Low precision, judged by the same function in double precision.

In low precision a slope measured from values is right to about a percent. The same function in double precision is a
better reference: its gradient is judged by its own values, and the gradient in low precision is compared with it. The
effect of rounding on an entry is estimated from three quantities: the change of the gradient when the point moves by a
unit of rounding, the size of the entry for other incoming gradients (it may cancel for this one), and the size of the
values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from gradproof.engine.explanations.conditioning import product, random_operand, scatter
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Comparison:
    """A derivative in low precision beside the one in double precision, entry by entry.

    `allowed` is the difference that rounding alone explains, `scattered` the measured effect of rounding.
    """

    subject: Subject
    claimed: Array
    truth: Array
    allowed: Array
    scattered: Array


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
    judgement = _by_double_precision(subject, wide, probes=probes, seed=seed, options=options, judged=judged)
    if judgement.obstacle is not INEXACT:
        return judgement
    second = seconded(judgement, subject, seed, options)
    return judgement if second.findings else second  # the rule is right: what segments show is rounding


def _by_double_precision(
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
    operand = frame.rounded(random_operand(wide, seed))
    try:
        claimed = product(subject, operand)
    except DerivativeError as error:
        finding = raised(subject, error) if error.absent else _raised_here(subject, error)
        return replace(judgement, findings=(finding,))
    try:
        truth = product(wide, operand)
    except DerivativeError as error:
        return replace(judgement, findings=(raised(wide, error),))
    accepted = options.along(subject, operand)
    allowed = _allowed(subject, wide, operand, truth, seed) + accepted.atol + accepted.rtol * abs(truth)
    # an intermediate infinity may become NaN
    overflow = ~subject.arrays.isfinite(claimed) & (abs(truth) + allowed > 0.5 * subject.numbers.largest)
    claimed = subject.arrays.where(overflow, truth, claimed)
    wrong = ~(abs(claimed - truth) <= allowed)
    if bool(wrong.any()):
        scattered = scatter(subject, operand, claimed, seed + 2 + FEW)
        comparison = _Comparison(subject=subject, claimed=claimed, truth=truth, allowed=allowed, scattered=scattered)
        natively = partial(judge, subject, probes=1, seed=seed, options=options)
        return _contested(comparison, judgement, natively)
    judgement = replace(judgement, resolution=_resolution(subject, allowed, truth, judgement))
    return judgement if options.rtol or options.atol else _if_meaningful(judgement)


def _raised_here(subject: Subject, error: DerivativeError) -> Finding:
    return Finding(
        kind="backward-raised" if subject.mode == "reverse" else "forward-raised",
        message=f"The derivative raised {error}, in this precision alone",
        hint="In double precision it is right.",
    )


def _within_rounding(judgement: Judgement, precision: float) -> bool:
    """Return True if rounding in low precision is larger than every error found in double precision.

    Several equal relative errors that are larger than the rounding of a constant are a wrong factor. Rounding does
    not cause that.
    """
    errors = [_relative(entry) for entry in judgement.entries]
    if not errors or not max(map(abs, errors)) <= ROUNDINGS * precision:
        return False
    least, most = min(errors), max(errors)
    alike = len(errors) >= FEW and most - least <= ALIKE * max(abs(least), abs(most))
    return not (alike and min(map(abs, errors)) > CLEARLY * precision)


def _relative(entry: Entry) -> float:
    """Return the relative error of an entry."""
    off = entry.claimed - entry.numerical
    return off / abs(entry.numerical) if entry.numerical else math.inf if off else 0.0


def _frame(subject: Subject) -> Frame:
    """Return the frame that names the entries of the derivative: inputs in reverse mode, outputs in forward mode."""
    return subject.inputs if subject.mode == "reverse" else subject.outputs


def _allowed(subject: Subject, wide: Subject, operand: Array, truth: Array, seed: int) -> Array:
    """Return the largest change of each entry that rounding alone explains."""
    xp, unit = subject.arrays, subject.numbers.precision
    nudge = wide.direction(seed + 1, Step(unit))
    reverse = subject.mode == "reverse"
    moved = abs(product(wide, operand, nudge) - truth)
    moved = xp.where(xp.isfinite(moved), moved, 0.0)
    size = truth * truth
    for number in range(FEW):
        other = product(wide, random_operand(wide, seed + 2 + number))
        size = size + other * other
    size = (size / (1 + FEW)) ** 0.5
    values = abs(wide.centre)
    values = xp.where(xp.isfinite(values), values, 0.0)
    largest = float(values.max())
    steep = unit / abs(xp.where(nudge == 0, math.inf, nudge)) if reverse else 1.0 + 0 * size
    natural = largest * steep
    vanishing = float(size.max()) < TRACE * float(
        natural.max()
    )  # everything cancels, and only rounding errors are left
    if vanishing and reverse:  # not if each entry has a small share in sums of many
        vanishing = float((size * abs(nudge)).sum()) < TRACE * unit * float(values.sum())
    lost = subject.numbers.tiny * (1.0 + steep)  # values and gradients that small are rounded as if they were larger
    return ROUNDINGS * (unit * (size + natural if vanishing else size) + moved + lost)


def _contested(comparison: _Comparison, judgement: Judgement, natively: Callable[[], Judgement]) -> Judgement:
    """Judge a gradient that differs from that in double precision by more than rounding usually explains.

    It is wrong if the difference does not look like rounding, or if the function's values in its own precision clearly
    contradict it too. Otherwise the function is ill-conditioned: an error of this size cannot be told from rounding.

    `natively` judges by those values. That may take thousands of derivatives where the function has many kinks, and is
    done only if the verdict depends on it.
    """
    subject, xp, scattered = comparison.subject, comparison.subject.arrays, comparison.scattered
    claimed, truth, allowed = comparison.claimed, comparison.truth, comparison.allowed
    gap = abs(claimed - truth)
    gap = xp.where(xp.isnan(claimed) & xp.isfinite(truth), math.inf, gap)
    material = ~(gap <= allowed + ROUNDINGS * scattered) & ~(gap <= SLIGHT * float(abs(truth).max()))
    lone = int((~(gap <= allowed)).sum()) <= COARSEST * gap.shape[0]
    gross = bool((material & (gap > (CLEARLY if lone else GROSS) * allowed) & (gap > GROSS * scattered)).any())
    if bool(material.any()) and (gross or _off_by_a_factor(claimed, truth) or _clearly(natively())):
        resolution = _resolution(subject, allowed, truth, judgement)
        return replace(judgement, findings=(_finding(comparison),), resolution=resolution)
    worst = _frame(subject).locate(int(xp.argmax(gap)))
    note = (
        f"In this precision the gradient differs from the one in double precision by up to {float(gap.max()):.2g} "
        f"(at {worst}): more than rounding usually explains, but too little to be told from it."
    )
    resolution = _resolution(subject, xp.maximum(gap, allowed), truth, judgement)
    return _if_meaningful(replace(judgement, resolution=resolution, notes=(*judgement.notes, note)))


def _if_meaningful(judgement: Judgement) -> Judgement:
    """Return a pass, or an obstacle if rounding could hide half of the gradient."""
    resolution = judgement.resolution
    if not math.isfinite(resolution.relative) or resolution.relative <= UNRESOLVED:
        return judgement
    return replace(judgement, obstacle=INEXACT)


def _off_by_a_factor(claimed: Array, truth: Array) -> bool:
    """Return True if the gradient is a multiple of the right one, which rounding does not cause."""
    square = float(truth @ truth)
    factor = float(claimed @ truth) / square if square else 1.0
    rest = claimed - factor * truth
    return abs(factor - 1) > ALIKE and float(rest @ rest) < (0.1 * factor) ** 2 * square


def _clearly(native: Judgement) -> bool:
    """Return True if values in the function's own precision clearly contradict its gradient."""
    if native.verdict is not Verdict.FAIL:
        return False
    gaps = (abs(reading.claimed - reading.numerical) / max(reading.bar, 1e-300) for reading in native.readings)
    return any(not gap <= CLEARLY for gap in gaps)


def _resolution(subject: Subject, allowed: Array, truth: Array, judgement: Judgement) -> Resolution:
    """Return the larger of two errors: the largest that rounding hides, and the resolution in double precision."""
    xp, size = subject.arrays, float(abs(truth).max())
    widest = max(float(xp.where(xp.isfinite(allowed), allowed, 0.0).max()), judgement.resolution.absolute)
    return Resolution.of(widest, size)


def _finding(comparison: _Comparison) -> Finding:
    subject, xp = comparison.subject, comparison.subject.arrays
    claimed, truth, allowed = comparison.claimed, comparison.truth, comparison.allowed
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
