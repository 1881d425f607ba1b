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
from functools import cached_property

from gradproof.engine.explanations.conditioning import product, random_operand, scatter
from gradproof.engine.findings import raised
from gradproof.engine.judging import judge
from gradproof.engine.options import Probing
from gradproof.engine.results import Entry, Finding, Obstacle, Reason, Resolution, Verdict, least_error
from gradproof.engine.second_opinion import with_second_opinion
from gradproof.engine.subject import Array, DerivativeError, Frame, Step, Subject
from gradproof.engine.thresholds import (
    ALIKE,
    CALLS,
    CLEARLY,
    COARSEST,
    ENOUGH,
    FEW,
    GROSS,
    HANDFUL,
    ROUNDINGS,
    SHOWN,
    SLIGHT,
    TRACE,
    UNRESOLVED,
)
from gradproof.engine.verdict import Judgement
from gradproof.engine.views import rule_of

INEXACT = Obstacle(
    Reason.CONDITIONING,
    "The gradient is right in double precision, and too inexact in this precision to say more.",
    "Check in float64; in this precision the function is ill-conditioned at this point.",
)
HIDDEN = "In double precision the gradient is off by {error:.1g} of an entry; rounding in this precision hides that."


@dataclass(frozen=True, kw_only=True)
class _Comparison:
    """A derivative in low precision beside the one in double precision, entry by entry, for one operand.

    `allowed` is the difference that rounding alone explains.
    """

    subject: Subject
    operand: Array
    claimed: Array
    truth: Array
    allowed: Array
    seed: int

    @cached_property
    def gap(self) -> Array:
        """The distance of each entry from its value in double precision; infinite where it is NaN in this one alone."""
        xp, gap = self.subject.arrays, self.claimed - self.truth
        gap = abs(gap)
        if math.isfinite(float(gap.sum())):
            return gap
        return xp.where(xp.isnan(self.claimed) & xp.isfinite(self.truth), math.inf, gap)

    @cached_property
    def wrong(self) -> Array:
        """Flags of the entries that differ by more than is allowed."""
        return ~(self.gap <= self.allowed)

    @cached_property
    def scattered(self) -> Array:
        """The measured effect of rounding on each entry."""
        return scatter(self.subject, self.operand, self.claimed, self.seed + 2 + FEW)

    @cached_property
    def material(self) -> Array:
        """Flags of the entries that differ by more than rounding does, and by more than a hundredth of the largest."""
        by_rounding = self.gap <= self.allowed + ROUNDINGS * self.scattered
        return ~by_rounding & ~(self.gap <= SLIGHT * float(abs(self.truth).max()))

    @cached_property
    def gross(self) -> Array:
        """Flags of the entries that differ by many times what rounding does; lone entries need not be so many."""
        lone = int(self.wrong.sum()) <= COARSEST * self.gap.shape[0]
        return (
            self.material
            & (self.gap > (CLEARLY if lone else GROSS) * self.allowed)
            & (self.gap > GROSS * self.scattered)
        )


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
    second = with_second_opinion(judgement, subject, seed, options)
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
    finer = replace(options, enough=max(ENOUGH, subject.numbers.precision / ROUNDINGS))
    judgement = judged(wide, probes=probes, seed=seed, options=finer)
    if judgement.verdict is Verdict.FAIL and _within_rounding(judgement, subject.numbers.precision):
        note = HIDDEN.format(error=max(abs(_relative(entry)) for entry in judgement.entries))
        lenient = replace(finer, rtol=options.rtol + ROUNDINGS * subject.numbers.precision)
        judgement = judged(wide, probes=probes, seed=seed, options=lenient)
        judgement = replace(judgement, notes=(*judgement.notes, note))
    if judgement.verdict is not Verdict.PASS or not wide.inputs.size or not wide.outputs.size:
        return judgement
    operand = _operand(subject, wide, seed)
    try:
        claimed = product(subject, operand)
    except DerivativeError as error:
        finding = raised(subject, error) if error.absent else _raised_here(subject, error)
        return replace(judgement, findings=(finding,))
    try:
        truth = product(wide, operand)
    except DerivativeError as error:
        return replace(judgement, findings=(raised(wide, error),))
    comparison = _compared(subject, wide, operand, claimed, truth, seed, options)
    if bool(comparison.wrong.any()):
        return _contested(comparison, judgement, wide, options)
    judgement = replace(judgement, resolution=_resolution(comparison, judgement))
    return judgement if options.rtol or options.atol else _if_meaningful(judgement)


def _operand(subject: Subject, wide: Subject, seed: int) -> Array:
    """Draw an operand that low precision can hold."""
    frame = subject.outputs if subject.mode == "reverse" else subject.inputs
    return frame.rounded(random_operand(wide, seed))


def _compared(
    subject: Subject, wide: Subject, operand: Array, claimed: Array, truth: Array, seed: int, options: Probing
) -> _Comparison:
    """Compare the products of both precisions with one operand. An intermediate infinity may become NaN."""
    accepted = options.along(subject, operand)
    allowed = _allowed(subject, wide, operand, truth, seed)
    if accepted.atol or accepted.rtol:
        allowed = allowed + accepted.atol + accepted.rtol * abs(truth)
    if not math.isfinite(float(claimed.sum())):
        overflow = ~subject.arrays.isfinite(claimed) & (abs(truth) + allowed > 0.5 * subject.numbers.largest)
        claimed = subject.arrays.where(overflow, truth, claimed)
    return _Comparison(subject=subject, operand=operand, claimed=claimed, truth=truth, allowed=allowed, seed=seed)


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
    """Return the largest change of each entry that rounding alone explains. Few long vectors are held at a time."""
    xp, unit, reverse = subject.arrays, subject.numbers.precision, subject.mode == "reverse"
    square = truth * truth
    for number in range(FEW):
        other = product(wide, random_operand(wide, seed + 2 + number))
        square = square + other * other
        del other
    size = (square / (1 + FEW)) ** 0.5
    del square
    nudge = wide.direction(seed + 1, Step(unit))
    moved = product(wide, operand, nudge) - truth
    moved = abs(xp.where(xp.isfinite(moved), moved, 0.0))
    nudge = abs(nudge)
    total, largest = _finite_sizes(wide)
    shortest = float(xp.where(nudge > 0, nudge, math.inf).min()) if reverse else unit
    steepest = unit / shortest if reverse else 1.0
    # everything cancels, and only rounding errors are left; not if each entry has a small share in sums of many
    vanishing = float(size.max()) < TRACE * largest * steepest
    if vanishing and reverse:
        vanishing = float(size @ nudge) < TRACE * unit * total
    tiny = subject.numbers.tiny  # values and gradients this small are rounded alike
    natural = (unit * largest if vanishing else 0.0) + tiny
    allowed = unit * size + moved
    del size, moved
    if natural:
        allowed = allowed + tiny + natural * (unit / xp.where(nudge > 0, nudge, math.inf) if reverse else 1.0)
    return ROUNDINGS * allowed


def _finite_sizes(subject: Subject) -> tuple[float, float]:
    """Return the sum and the maximum of the absolute values that are finite."""
    xp, values = subject.arrays, abs(subject.centre)
    if not subject.scale.finite:
        values = xp.where(xp.isfinite(values), values, 0.0)
    return float(values.sum()), float(values.max())


def _contested(comparison: _Comparison, judgement: Judgement, wide: Subject, options: Probing) -> Judgement:
    """Judge a gradient that differs from that in double precision by more than rounding usually explains.

    It is wrong if the difference does not look like rounding, or if the function's values in its own precision clearly
    contradict it too. Otherwise the function is ill-conditioned: an error of this size may be rounding.

    The values are judged last, and only if the verdict depends on them. That may take thousands of derivatives where
    the function has many kinks.
    """
    subject, xp = comparison.subject, comparison.subject.arrays
    confirmed = _confirmed(comparison, wide, options)
    if bool(confirmed.any()) and (
        bool((confirmed & comparison.gross).any())
        or _off_by_a_factor(comparison.claimed, comparison.truth)
        or _clearly(judge(subject, probes=1, seed=comparison.seed, options=options))
    ):
        resolution = _resolution(comparison, judgement)
        return replace(judgement, findings=(_finding(comparison),), resolution=resolution)
    worst = _frame(subject).locate(int(xp.argmax(comparison.gap)))
    note = (
        f"In this precision the gradient differs from the one in double precision by up to "
        f"{float(comparison.gap.max()):.2g} (at {worst}): more than rounding usually explains, but too little to be "
        "distinguished from it."
    )
    resolution = _resolution(comparison, judgement)
    return _if_meaningful(replace(judgement, resolution=resolution, notes=(*judgement.notes, note)))


def _confirmed(comparison: _Comparison, wide: Subject, options: Probing) -> Array:
    """Return flags of the entries that differ by more than rounding does, for this operand and for another one.

    Both bounds on rounding come from a few samples. Among millions of entries some have bounds that are too small for
    one operand. The same entry hardly has them for two, while a wrong rule is wrong for both, unless it claims a small
    number by chance; a third operand covers that.
    """
    subject, seed, confirmed = comparison.subject, comparison.seed, comparison.material
    for again in (seed + HANDFUL, seed + 2 * HANDFUL):
        if not bool(comparison.material.any()):
            break
        operand = _operand(subject, wide, again)
        claimed, truth = product(subject, operand), product(wide, operand)
        other = _compared(subject, wide, operand, claimed, truth, again, options)
        confirmed = comparison.material & other.wrong & other.material
        if bool(confirmed.any()):
            break
    return confirmed


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


def _resolution(comparison: _Comparison, judgement: Judgement) -> Resolution:
    """Return the larger of two errors: the largest that rounding hides, and the resolution in double precision."""
    xp, size = comparison.subject.arrays, float(abs(comparison.truth).max())
    hidden = least_error(comparison.allowed, comparison.gap, 1.0)
    most = float(hidden.max())
    if not math.isfinite(most):
        most = float(xp.where(xp.isfinite(hidden), hidden, 0.0).max())
    widest = max(most, judgement.resolution.absolute)
    return Resolution.of(widest, size)


def _finding(comparison: _Comparison) -> Finding:
    """Describe the entries that are wrong in this precision, the worst first."""
    subject = comparison.subject
    what = "gradient with respect to" if subject.mode == "reverse" else "tangent of"
    wrong = subject.arrays.where(comparison.wrong)[0]
    count = wrong.shape[0]
    ranked = wrong[(-comparison.gap[wrong]).argsort()[:CALLS]]
    rows = zip(
        *(
            each.tolist()
            for each in (
                ranked,
                *(vector[ranked] for vector in (comparison.claimed, comparison.truth, comparison.allowed)),
            )
        ),
        strict=True,
    )
    argument = _frame(subject).locate(int(ranked[0])).path
    entries = [
        Entry(index=place.index, part=place.part, stored=place.stored, claimed=claim, numerical=truth, bar=bar)
        for coordinate, claim, truth, bar in rows
        if (place := _frame(subject).locate(coordinate)).path == argument
    ]
    return Finding(
        kind="wrong-gradient",
        message=f"The {what} {argument} is right in "
        f"double precision and wrong in this precision, in {count} {'entry' if count == 1 else 'entries'}.",
        argument=argument,
        entries=tuple(entries[:SHOWN]),
        hint=f"Look at what the {rule_of(subject)} computes or stores in low precision.",
    )
