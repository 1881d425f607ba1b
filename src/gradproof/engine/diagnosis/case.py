"""One case: the claims of a derivative for some questions, beside what the function's values say.

In reverse mode a case is one input, its questions incoming gradients; in forward mode one input and one output, its
questions directions. Where an answer has few coordinates they are all known from values; of a longer one a few random
combinations are, and of a very long one a few coordinates. `seen` turns an answer into what is known of it, so that a
hypothesis need not mind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gradproof.engine.contraction import CLAIM_ACCURACY, SPREAD
from gradproof.engine.diagnosis.bench import Bench, size_of
from gradproof.engine.diagnosis.parts import Part
from gradproof.engine.diagnosis.samples import Column, chosen, columns
from gradproof.engine.subject import Array

QUESTIONS = 3
TESTS = 4  # random combinations of a long answer
COLUMNS = 96  # inputs up to which every one is measured
HELD = 1 << 22  # numbers held at once for that
TELLING = 10.0  # bars that a disagreement must have to be looked into
CAUTION = 3.0  # bars that are tolerated
SURE = 0.995  # a fit below this, of the few numbers of a sample, may be an accident
INEXACT = 0.9  # and counts for this much of it, which is too little
HOPELESS = 0.5  # a fit for the first question, below which the others are not asked of a large function
VAST = 1 << 23  # coordinates beyond which nothing is looked into


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of an answer, and how well; `weight` is zero where nothing is."""

    value: Array
    bar: Array
    weight: Array


class Case:
    """The claims for some questions, and what is known of the right answers.

    `asked` is the tensor that questions are restricted to, or None for all; `answered` the tensor that is looked at.
    """

    def __init__(self, bench: Bench, *, asked: Part | None, answered: Part, worst: Sequence[int] = ()) -> None:
        self.bench, self.asked, self.answered = bench, asked, answered
        self.worst = tuple(worst)  # coordinates of the input that are known to be wrong
        self.xp, self.reverse = bench.xp, bench.reverse
        self.input: Part | None = answered if bench.reverse else asked
        self.output: Part | None = asked if bench.reverse else answered
        self.full = not bench.reverse or self._is_small()
        self.tests: Array = None
        self.sample: Array = None
        self._slopes: Array = None
        self._bars: Array = None
        self._columns: list[Column] = []
        if bench.reverse and (self.full or not bench.large):
            self._measure()
        self.questions = [self.restricted(bench.question(k)) for k in range(QUESTIONS)]
        self.whole_claims = [bench.claim(question) for question in self.questions]
        self.claims = [answered.of(claim) for claim in self.whole_claims]
        if bench.reverse and not self.full and bench.large:
            places = chosen(self.xp, answered, self.claims, self.worst)
            self._columns = columns(bench, answered, places)
            self.sample = self.xp.asarray(places, device=self.questions[0].device)
        self.known = [self.right(question) for question in self.questions]
        self.right_values = [known.value for known in self.known]
        self.claimed = [self.seen(claim) for claim in self.claims]
        self.errors = [claim - right for claim, right in zip(self.claimed, self.right_values, strict=True)]
        self.disagreement = self._weighed(self.errors)
        self.noise = self._weighed([self._slack(k) for k in range(QUESTIONS)])

    @property
    def telling(self) -> bool:
        """Whether the disagreement is large enough beside the bars to be looked into."""
        return math.isfinite(self.disagreement) and self.disagreement > TELLING * self.noise

    @property
    def isolated(self) -> bool:
        """Whether, of a sample, nothing is wrong but what was known to be: then there is no pattern to be seen."""
        if self.sample is None:
            return False
        others = [place not in {each - self.answered.start for each in self.worst} for place in self.sample.tolist()]
        return any(others) and not any(
            bool((abs(error) > self._slack(number))[others].any()) for number, error in enumerate(self.errors)
        )

    @property
    def what(self) -> str:
        """What is claimed, in words."""
        if self.reverse:
            through = f", as far as {self.asked.path} goes," if self.asked else ""
            return f"the gradient with respect to {self.answered.path}{through}"
        return f"the tangent of {self.answered.path}" + (f" along {self.asked.path}" if self.asked else "")

    @property
    def subject_line(self) -> str:
        """The same, as the beginning of a sentence."""
        return self.what[0].upper() + self.what[1:]

    @property
    def freedom(self) -> int:
        """How many independent numbers the claims and the values were compared in."""
        tests = self.answered.size if self.full else min(self.answered.size, len(self._columns) or TESTS)
        asked = self.asked.size if self.asked else sum(part.size for part in self.asked_parts)
        return tests * min(asked, QUESTIONS)

    @property
    def asked_parts(self) -> list[Part]:
        """The tensors that questions are made of."""
        return self.bench.outputs if self.reverse else self.bench.inputs

    @property
    def answered_parts(self) -> list[Part]:
        """The tensors that answers are made of."""
        return self.bench.inputs if self.reverse else self.bench.outputs

    def restricted(self, question: Array) -> Array:
        """The question for this case alone."""
        if self.asked is None:
            return question
        vector = self.xp.zeros_like(question)
        vector[self.asked.start : self.asked.stop] = self.asked.of(question)
        return vector

    def asked_with(self, change: Callable[[Array], Array], part: Part) -> list[Array]:
        """The questions, changed in one tensor."""
        changed = []
        for question in self.questions:
            vector = question * 1.0
            vector[part.start : part.stop] = change(part.of(question))
            changed.append(vector)
        return changed

    def claim(self, question: Array) -> Array:
        """The answer to another question."""
        return self.answered.of(self.bench.claim(question))

    def seen(self, answer: Array) -> Array:
        """What is known of an answer."""
        if self.sample is not None:
            return answer[self.sample]
        return answer if self.tests is None else self.tests @ answer

    def right(self, question: Array) -> Known:
        """What the values say of the right answer to a question: free in reverse mode, a ladder in forward mode."""
        if self.sample is not None:
            return self._right_of_sample(question)
        if not self.reverse:
            if self.bench.large:
                value, bar = self.bench.quick_slopes(question)
            else:
                (value,), (bar,) = self.bench.slopes(question[None])
            value, bar = self.answered.of(value), self.answered.of(bar)
            known = self.xp.isfinite(bar)
            zero = self.xp.zeros_like(bar)
            return Known(self.xp.where(known, value, zero), self.xp.where(known, bar, zero), known * 1.0)
        bars = self._bars
        unknown = ~self.xp.isfinite(bars) & (question != 0)
        weight = 1.0 - 1.0 * unknown.any(1)
        clean = self.xp.where(self.xp.isfinite(bars), bars, self.xp.zeros_like(bars))
        bar = SPREAD * ((clean * clean) @ (question * question)) ** 0.5
        return Known(self._slopes @ question, bar, weight)

    def _right_of_sample(self, question: Array) -> Known:
        answers = [column.answer(question) for column in self._columns]
        known = [math.isfinite(value) and math.isfinite(bar) for value, bar in answers]
        values, bars, weights = (
            self.xp.asarray(numbers, dtype=question.dtype, device=question.device)
            for numbers in (
                [value if here else 0.0 for (value, _), here in zip(answers, known, strict=True)],
                [bar if here else 0.0 for (_, bar), here in zip(answers, known, strict=True)],
                [1.0 * here for here in known],
            )
        )
        return Known(values, bars, weights)

    def through(self, change: Callable[[Array], Array], adjoint: Callable[[Array], Array]) -> tuple[list[Array], int]:
        """The right answers, changed linearly, as far as known; and for how many of the tests.

        Of a long answer a change is seen by measuring along directions that its adjoint gives.
        """
        if self.full:
            return [change(right) for right in self.right_values], self.answered.size
        few = self.tests[: TESTS // 2] if self.sample is None else self._units(TESTS // 2)
        step = 1.0 if self.sample is None else self.bench.step
        directions = self.xp.zeros_like(self.xp.stack([self.bench.subject.point] * few.shape[0]))
        directions[:, self.answered.start : self.answered.stop] = self.xp.stack([step * adjoint(test) for test in few])
        slopes = self.bench.rough_slopes(directions) / step
        return [slopes @ question for question in self.questions], int(few.shape[0])

    def _units(self, count: int) -> Array:
        """Unit vectors at the first few coordinates of the sample."""
        few = self.sample[:count]
        units = self.xp.zeros_like(self.xp.stack([self.claims[0]] * few.shape[0]))
        units[self.xp.arange(0, few.shape[0], device=units.device), few] = 1.0
        return units

    def fit(self, residuals: Sequence[Array], keep: Array | None = None) -> float:
        """How much of the disagreement is explained, where these residuals remain: between 0 and 1.

        `keep` says which of the tests count, where not all do. None fits where those hold little of the disagreement.
        """
        count = residuals[0].shape[0]
        left, whole = [], []
        for number, residual in enumerate(residuals):
            mask = self.known[number].weight[:count] * (1.0 if keep is None else keep[:count])
            beyond = abs(residual) - self._slack(number)[:count]
            left.append(self.xp.where(beyond > 0, beyond, 0.0 * beyond) * mask)
            whole.append(self.errors[number][:count] * mask)
        explained, base = size_of(self.xp, left), size_of(self.xp, whole)
        if not math.isfinite(explained) or not base > 0:
            return 0.0
        if keep is not None and base < 0.5 * self.disagreement:
            return 0.0
        found = max(0.0, 1.0 - explained / base)
        return found if self.sample is None or found > SURE else INEXACT * found

    def fit_asked(self, change: Callable[[Array], Array], part: Part) -> float:
        """How well the right answers to questions that are changed in one tensor explain the claims."""
        residuals: list[Array] = []
        for question, claim in zip(self.questions, self.claimed, strict=True):
            vector = question * 1.0
            vector[part.start : part.stop] = change(part.of(question))
            right = self.right(vector).value
            if self.sample is not None and not bool(right.any()):
                return 0.0  # what the change leaves lies outside the sample
            residuals.append(claim - right)
            if self._is_hopeless(residuals):
                break
        return self.fit(residuals)

    def fit_changed(self, change: Callable[[Array], Array], keep: Array | None = None) -> float:
        """How well the claims, changed, would do as the right answers."""
        residuals: list[Array] = []
        for claim, right in zip(self.claims, self.right_values, strict=True):
            residuals.append(self.seen(change(claim)) - right)
            if self._is_hopeless(residuals):
                break
        return self.fit(residuals, keep)

    def _is_hopeless(self, residuals: list[Array]) -> bool:
        """Whether the first question says enough of a large function, of which every answer takes its time."""
        return self.bench.large and len(residuals) == 1 and self.fit(residuals) < HOPELESS

    def fit_right(self, answers: Sequence[Array]) -> float:
        """How well these would do as the right answers."""
        return self.fit([self.seen(each) - right for each, right in zip(answers, self.right_values, strict=True)])

    def fit_claims(self, explained: Sequence[Array], keep: Array | None = None) -> float:
        """How well these, as far as seen, explain what is claimed."""
        count = explained[0].shape[0]
        pairs = zip(self.claimed, explained, strict=True)
        return self.fit([claim[:count] - each for claim, each in pairs], keep)

    def _slack(self, number: int) -> Array:
        return CAUTION * self.known[number].bar + CLAIM_ACCURACY * abs(self.right_values[number])

    def _weighed(self, vectors: list[Array]) -> float:
        return size_of(self.xp, [vector * known.weight for vector, known in zip(vectors, self.known, strict=True)])

    def _is_small(self) -> bool:
        subject, size = self.bench.subject, self.answered.size
        return size <= COLUMNS and size * max(subject.inputs.size, subject.outputs.size) <= HELD

    def _measure(self) -> None:
        xp, part = self.xp, self.answered
        if self.full:
            direction = self.bench.direction(0)
            directions = xp.zeros_like(xp.stack([direction] * part.size))
            steps = part.of(direction)
            steps = xp.where(steps == 0, xp.zeros_like(steps) + self.bench.step, steps)
            directions[:, part.start : part.stop] = xp.diag(steps)
            slopes, bars = self.bench.slopes(directions)
            self._slopes, self._bars = slopes / steps[:, None], bars / abs(steps)[:, None]
            return
        drawn = [self.bench.direction(k) for k in range(TESTS)]
        directions = xp.zeros_like(xp.stack(drawn))
        directions[:, part.start : part.stop] = xp.stack([part.of(each) for each in drawn])
        self._slopes, self._bars = self.bench.slopes(directions)
        self.tests = part.of(directions)

    @property
    def columns(self) -> tuple[Array, Array]:
        """In reverse mode, where every coordinate was measured: the slopes of all outputs along each, and the bars."""
        return self._slopes, self._bars
