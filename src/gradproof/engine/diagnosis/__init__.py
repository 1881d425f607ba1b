"""Name the kind of a mistake from claimed and measured derivatives, with a goodness of fit for each name.

Every hypothesis is one function. It predicts the products of the Jacobian that its mistake would give, and compares
them with slopes along fresh random directions. The result is empty if no hypothesis fits.

Where the forward can be differentiated step by step, mistakes of one step are tried too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Protocol

from gradproof.engine.diagnosis import (
    arrangement,
    evaluation_point,
    expressions,
    incoming_gradient,
    index_maps,
    linear_terms,
    other_points,
    product_rule,
    ratios,
    regions,
    scale,
    sums,
    supports,
    tensor_factors,
    terms,
)
from gradproof.engine.diagnosis.block import Block, block_of
from gradproof.engine.diagnosis.case import CERTAIN, LEAST_FIT, OPERANDS, ZERO, Case
from gradproof.engine.diagnosis.measurements import Measurements, OutOfBudgetError, norm_of
from gradproof.engine.parts import Part
from gradproof.engine.results import Diagnosis, Finding
from gradproof.engine.subject import DerivativeError, Subject
from gradproof.engine.thresholds import CLEARLY, FEW, MANY, SLIGHT, WORK
from gradproof.engine.verdict import Judgement

Hypothesis = Callable[[Case], Iterator[Diagnosis]]
OfBlock = Callable[[Case, Block], Iterator[Diagnosis]]

WHOLE: tuple[Hypothesis, ...] = (
    incoming_gradient.ignored,
    regions.wrongly_zero,
    scale.factor,
    arrangement.exchanged_tensors,
    arrangement.conjugate,
    scale.complex_factor,
    arrangement.transposed,
    arrangement.shifted,
    arrangement.flipped,
    scale.factor_somewhere,
    sums.missing_sum,
    regions.missing_mask,
    incoming_gradient.repeated,
    sums.doubled_sum,
    incoming_gradient.reduced,
    sums.summed_operand,
    arrangement.adjoint,  # last, since it takes evaluations: tried for a large function only if nothing else fits
)
FACTORS: tuple[OfBlock, ...] = (tensor_factors.forgotten, ratios.weights)
BY_TERMS: tuple[Hypothesis, ...] = (  # tried later, since they also fit many of the mistakes above
    arrangement.flipped_throughout,
    terms.residual,
    terms.symmetric,
    incoming_gradient.passed_through,
    product_rule.held_constant,
    product_rule.held_constant_beside,
    product_rule.counted,
)
BY_PLACE: tuple[Hypothesis, ...] = (regions.beyond_a_threshold, evaluation_point.wrong_point)
ENTRYWISE: tuple[OfBlock, ...] = (
    sums.overwritten,
    index_maps.found_elsewhere,
    regions.missing_mask_in_columns,
    index_maps.rearranged,
    index_maps.wrong_dimension,
    index_maps.elsewhere,
    index_maps.read_and_put_elsewhere,
    index_maps.transposed_between_factors,
    regions.inverted,
    regions.extra_entries,
    supports.dropped_entries,
    ratios.masked,
    ratios.in_blocks,
    ratios.of_a_term,
    supports.constants,
    terms.outer_product,
    expressions.left_out,
    expressions.along_tensors,
    supports.other_entries,
    linear_terms.missing,
)
EXPRESSIONS: tuple[OfBlock, ...] = (
    tensor_factors.exchanged,
    expressions.of_two_terms,
    expressions.left_out_of_each,
    index_maps.read_elsewhere,
    linear_terms.different,
)
ELSEWHERE: tuple[OfBlock, ...] = (other_points.fixed_factors, other_points.bilinear, other_points.forgotten_inputs)
RESTATING = ("doubled-sum", "missing-sum", "mask")  # true of many gradients that have lost a term
OF_A_SAMPLE: tuple[OfBlock, ...] = (index_maps.found_elsewhere, regions.missing_mask_in_columns)


class Steps(Protocol):
    """The steps of a forward, of which one may be wrong in the backward. A framework supplies it."""

    def likely(self) -> Iterator[Diagnosis]:
        """Yield mistakes in the structure of the derivative: a term, a factor, a mask, an arrangement."""
        ...

    def possible(self) -> Iterator[Diagnosis]:
        """Yield factors that are too many or too few, and tensors in the place of others."""
        ...

    def remaining(self) -> Iterator[Diagnosis]:
        """Yield mistakes that others are more likely than."""
        ...


StepsOf = Callable[[str], Steps | None]


def diagnosed(subject: Subject, judgement: Judgement, seed: int, steps_of: StepsOf | None = None) -> Judgement:
    """Return the judgement with diagnoses added to its findings of wrong gradients that have none yet.

    `steps_of` returns the steps of the forward for the path of an input, None where they are not known.
    """
    wrong = [each for each in judgement.findings if each.kind == "wrong-gradient" and not each.diagnoses]
    if not wrong or max(subject.inputs.size, subject.outputs.size) > WORK // OPERANDS:
        return judgement
    measurements = Measurements(subject, seed, judgement.measured)
    wrong = wrong[: 1 if measurements.large else FEW]
    try:
        findings = tuple(
            replace(finding, diagnoses=diagnoses(measurements, finding, steps_of)) if finding in wrong else finding
            for finding in judgement.findings
        )
    except (DerivativeError, OutOfBudgetError):  # a diagnosis that fails must not lose the findings
        return judgement
    return replace(judgement, findings=findings)


def diagnoses(measurements: Measurements, finding: Finding, steps_of: StepsOf | None = None) -> tuple[Diagnosis, ...]:
    """Return the diagnoses of one finding, the likeliest first; none if no hypothesis fits."""
    case = _case(measurements, finding)
    known = steps_of is not None and measurements.reverse and not measurements.large
    found = _candidates(case, steps_of if known else None)
    if case.sample is not None:
        sampled = f" (judging by a sample of {case.sample.shape[0]} entries)."
        found = tuple(replace(one, message=one.message.removesuffix(".") + sampled) for one in found)
    return found if measurements.reverse else tuple(map(_of_tangents, found))


def _candidates(case: Case, steps_of: StepsOf | None) -> tuple[Diagnosis, ...]:
    if not case.significant or case.isolated:
        return ()
    if found := _ranked(evaluation_point.overwritten_state(case)):
        return found
    for families in (WHOLE[:-1], WHOLE[-1:]) if case.measurements.large else (WHOLE,):
        found = found or _ranked(one for family in families for one in _affordable(family(case)))
    if found and found[0].name not in RESTATING:
        return found
    steps = steps_of(case.input.path) if steps_of is not None else None
    likely = _first(steps.likely() if steps else None)
    if found and likely and likely[0].name == "missing-term":
        return (replace(likely[0], also=(*likely[0].also, found[0].name)), *found)
    if found:
        return found
    block = block_of(case) if not likely or likely[0].name == "missing-term" else None
    if likely:
        others = _ranked(_affordable(incoming_gradient.passed_through(case)))
        return _beside(likely, others or _of_block((regions.extra_entries,), case, block))
    if found := _of_block(FACTORS, case, block):
        return found
    if found := _first(steps.possible() if steps else None):
        close = () if block is None else evaluation_point.approximate(case, block)
        return _beside(found, tuple(each for each in close if LEAST_FIT - each.fit < SLIGHT))
    return _by_entries(case, block) or _first(steps.remaining() if steps else None)


def _beside(found: tuple[Diagnosis, ...], others: tuple[Diagnosis, ...]) -> tuple[Diagnosis, ...]:
    """Return what fits too before a mistake of one step, unless that is a missing term, and either as true."""
    if not others or not found:
        return found
    if found[0].name == "missing-term":
        return (replace(found[0], also=(*found[0].also, others[0].name)), *others)
    return (replace(others[0], also=(*others[0].also, found[0].name)), *found)


def _by_entries(case: Case, block: Block | None) -> tuple[Diagnosis, ...]:
    """Return what fits the terms, the places and the entries of a block of the Jacobian."""
    by_terms = [one for family in BY_TERMS for one in _affordable(family(case))]
    found = _ranked([*by_terms, *(() if block is None else tensor_factors.function_left_out(case, block))])
    if block is None or int((abs(block.right) > block.slack).sum(0).max()) <= 1:
        found = found or _ranked(_affordable(regions.of_one_sign(case)))
    found = found or _of_block(ENTRYWISE if case.sample is None else OF_A_SAMPLE, case, block)
    found = found or _ranked(one for family in BY_PLACE for one in _affordable(family(case)))
    found = found or _of_block(EXPRESSIONS if case.sample is None else (), case, block)
    found = found or (() if block is None else tuple(evaluation_point.approximate(case, block)))
    return found or _of_block(ELSEWHERE if case.sample is None else (), case, block)


def _first(candidates: Iterator[Diagnosis] | None) -> tuple[Diagnosis, ...]:
    """Return the first of some mistakes of one step, of which each fits exactly."""
    return () if candidates is None else tuple(islice(candidates, 1))


def _of_block(families: tuple[OfBlock, ...], case: Case, block: Block | None) -> tuple[Diagnosis, ...]:
    return () if block is None else _ranked(one for family in families for one in family(case, block))


def _affordable(candidates: Iterator[Diagnosis]) -> Iterator[Diagnosis]:
    """Yield candidates until the budget of evaluations is spent."""
    with suppress(OutOfBudgetError):
        yield from candidates


def _of_tangents(diagnosis: Diagnosis) -> Diagnosis:
    """Return a diagnosis with its hint worded for a jvp."""
    hint = diagnosis.hint.replace("incoming gradient", "tangent").replace("backward", "jvp")
    return replace(diagnosis, hint=hint)


def _ranked(candidates: Iterable[Diagnosis]) -> tuple[Diagnosis, ...]:
    """Return the candidates that fit, the best first, one for each name; ties keep their order."""
    fitting = [candidate for candidate in candidates if candidate.fit >= LEAST_FIT]
    fitting.sort(key=lambda candidate: -min(candidate.fit, CERTAIN))
    by_name: dict[str, Diagnosis] = {}
    for candidate in fitting:
        by_name.setdefault(candidate.name, candidate)
    return tuple(by_name.values())


def _case(measurements: Measurements, finding: Finding) -> Case:
    """Return the case behind a finding: the input that it names, and the output that is wrong, if known."""
    named = [part for part in measurements.inputs if part.path == finding.argument]
    own = named[0] if named else max(measurements.inputs, key=lambda part: part.size)
    known = [entry for entry in finding.entries if len(entry.index) == len(own.shape)]
    worst = [_coordinate(own, entry.index, entry.part) for entry in known]
    worst = [coordinate for coordinate in worst if own.start <= coordinate < own.stop]
    return Case(measurements, own, _wrong_output(measurements, own), worst)


def _coordinate(part: Part, index: tuple[int, ...], component: str | None) -> int:
    place = 0
    for length, position in zip(part.shape, index, strict=True):
        place = place * length + position
    return part.start + (2 * place + (component == "imag") if part.is_complex else place)


def _wrong_output(measurements: Measurements, own: Part) -> Part | None:
    """Return the output that is wrong, if others are right, and the worst output in forward mode; else None."""
    if not 1 < len(measurements.outputs) <= MANY:
        return None
    direction = own.alone(measurements.direction(50))
    slopes, bars = measurements.slopes(direction[None])
    errors = []
    for part in measurements.outputs:
        if measurements.reverse:
            operand = part.alone(measurements.subject.cotangent(51))
            gap = abs(float((measurements.claim(operand) * direction).sum()) - float((slopes[0] * operand).sum()))
            bar = CLEARLY * float(abs(part.of(bars[0])).sum())
        else:
            pushed = part.of(measurements.claim(direction))
            gap, bar = norm_of([pushed - part.of(slopes[0])]), CLEARLY * norm_of([part.of(bars[0])])
        errors.append((gap - bar - ZERO * norm_of([part.of(slopes[0])]), part))
    wrong = [(error, part) for error, part in errors if error > 0]
    if measurements.reverse and (len(wrong) == len(errors) or not wrong):
        return None
    return max(wrong or errors, key=lambda pair: pair[0])[1]
