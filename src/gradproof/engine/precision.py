"""Low precision, judged by the same function in double precision.

In low precision a slope measured from values is right to about a percent. The same function in double precision is a
better reference: its gradient is judged by its own values, and the gradient in low precision is compared with it
(`precision_comparison`).
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import cast

from gradproof.engine.findings import raised
from gradproof.engine.judging import judge, judge_by_segments, judge_in_spans
from gradproof.engine.options import Probing
from gradproof.engine.perturbed import product
from gradproof.engine.precision_comparison import (
    PrecisionComparison,
    compared,
    confirmed_entries,
    finding_of,
    is_off_by_a_factor,
    operand_of,
    resolution_of,
)
from gradproof.engine.results import Finding, Obstacle, Reason, Verdict
from gradproof.engine.second_opinion import with_second_opinion
from gradproof.engine.subject import Array, DerivativeError, Subject
from gradproof.engine.thresholds import (
    CLEARLY,
    TINY,
    UNRESOLVED,
)
from gradproof.engine.trust import trusted_judgement
from gradproof.engine.verdict import Judgement
from gradproof.engine.views import View

INEXACT = Obstacle(
    Reason.CONDITIONING,
    "The gradient is right in double precision, and too inexact in this precision to say more.",
    "Check in float64; in this precision the function is ill-conditioned at this point.",
)


class Reference(View):
    """A function in double precision, as the reference for the same in lower precision; in reverse mode.

    Incoming gradients are drawn such that the lower precision can hold them, so that both can be judged for the same
    ones. The gradient for that of the seed is computed once, and must not be written to.
    """

    def __init__(self, whole: Subject, low: Subject, seed: int) -> None:
        super().__init__(whole)
        self._low, self._seed = low, seed
        self._drawn: weakref.ref[Array] | None = None
        self._gradient: Array = None

    def cotangent(self, seed: int) -> Array:
        """Draw a random incoming gradient that the lower precision can hold."""
        vector = self._low.outputs.rounded(self.whole.cotangent(seed))
        if seed == self._seed:
            self._drawn = weakref.ref(vector)
        return vector

    def pullback(self, cotangent: Array, at: Array | None = None) -> Array:
        """Return the claimed gradient."""
        if at is not None or self._drawn is None or self._drawn() is not cotangent:
            return self.whole.pullback(cotangent, at)
        if self._gradient is None:
            self._gradient = self.whole.pullback(cotangent)
        return self._gradient


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
    if subject.mode == "reverse":
        wide = cast(Subject, Reference(wide, subject, seed))
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
    precision = subject.numbers.precision
    judgement = trusted_judgement(wide, precision, judged, probes=probes, seed=seed, options=options)
    if judgement.verdict is not Verdict.PASS or not wide.inputs.size or not wide.outputs.size:
        return judgement
    operand = operand_of(subject, wide, seed)
    try:
        claimed = product(subject, operand)
    except DerivativeError as error:
        finding = raised(subject, error) if error.absent else _raised_here(subject, error)
        return replace(judgement, findings=(finding,))
    try:
        truth = product(wide, operand)
    except DerivativeError as error:
        return replace(judgement, findings=(raised(wide, error),))
    comparison = compared(subject, wide, operand, seed, options, products=(claimed, truth))
    if comparison.differs:
        return _contested(comparison, judgement, wide, options)
    judgement = replace(judgement, resolution=resolution_of(comparison, judgement))
    return judgement if options.rtol or options.atol else _if_meaningful(judgement)


def _raised_here(subject: Subject, error: DerivativeError) -> Finding:
    return Finding(
        kind="backward-raised" if subject.mode == "reverse" else "forward-raised",
        message=f"The derivative raised {error}, in this precision alone",
        hint="In double precision it is right.",
    )


def _contested(comparison: PrecisionComparison, judgement: Judgement, wide: Subject, options: Probing) -> Judgement:
    """Judge a gradient that differs from that in double precision by more than rounding usually explains.

    It is wrong if the difference does not look like rounding, or if the function's values in its own precision clearly
    contradict it too. Otherwise the function is ill-conditioned: an error of this size may be rounding.

    The values are judged last, and only if the verdict depends on them. That may take thousands of derivatives where
    the function has many kinks.
    """
    confirmed = confirmed_entries(comparison, wide, options)
    if bool(confirmed.any()) and (
        bool((confirmed & comparison.gross).any())
        or is_off_by_a_factor(comparison, confirmed)
        or _contradicted(comparison, confirmed, options)
    ):
        resolution = resolution_of(comparison, judgement, comparison.wrong)
        return replace(judgement, findings=(finding_of(comparison, wide),), resolution=resolution)
    note = (
        f"In this precision the gradient differs from the one in double precision by up to "
        f"{float(comparison.gap.max()):.2g} (at {comparison.worst}): more than rounding usually explains, but too "
        "little to be distinguished from it."
    )
    resolution = resolution_of(comparison, judgement)
    return _if_meaningful(replace(judgement, resolution=resolution, notes=(*judgement.notes, note)))


def _if_meaningful(judgement: Judgement) -> Judgement:
    """Return a pass, or an obstacle if rounding could hide half of the gradient."""
    resolution = judgement.resolution
    if not math.isfinite(resolution.relative) or resolution.relative <= UNRESOLVED:
        return judgement
    return replace(judgement, obstacle=INEXACT)


def _contradicted(comparison: PrecisionComparison, confirmed: Array, options: Probing) -> bool:
    """Return True if values in the function's own precision clearly contradict its gradient, in the worst tensors.

    Only readings far outside their bars do. Segments, which cost most, are asked only where there are some.
    """
    subject, seed = comparison.subject, comparison.seed
    spans = comparison.worst_tensors(confirmed) if subject.mode == "reverse" else [None]
    native = judge_in_spans(subject, spans, seed=seed, options=options)
    gaps = (abs(reading.claimed - reading.numerical) / max(reading.bar, TINY) for reading in native.readings)
    if all(gap <= CLEARLY for gap in gaps):
        return False
    return judge_by_segments(native, subject, seed, options).verdict is Verdict.FAIL
