"""One case: the claims of a derivative for some questions, beside what the function's values say.

In reverse mode a case is one input, its questions incoming gradients; in forward mode one input and one output, its
questions directions. Where an answer has few coordinates they are all known from values; of a longer one a few random
combinations are, and of a very long one a few coordinates. `seen` turns an answer into what is known of it, so that a
hypothesis need not mind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from gradproof.engine.contraction import CLAIM_ACCURACY, SPREAD
from gradproof.engine.diagnosis.bench import Bench, size_of, units
from gradproof.engine.diagnosis.parts import Part
from gradproof.engine.diagnosis.samples import Column, chosen, columns
from gradproof.engine.subject import Array
from gradproof.engine.thresholds import CLEARLY

GOOD = 0.95  # a fit below this is none
SURE = 0.99  # fits above this are alike; a fit below it, to the few numbers of a sample, may be an accident
CLOSE = 1e-5  # relative: numbers this near each other are the same
NOTHING = 1e-8  # of the largest entry: zero
QUESTIONS = 4  # and random combinations of a long answer
SMALL = 96  # inputs or outputs up to which every one is measured
VAST = 1 << 23  # coordinates beyond which there is no diagnosis, and numbers that are held at once


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of an answer, and how well; `weight` is zero where nothing is."""

    value: Array
    bar: Array
    weight: Array


class Case:
    """The claims for some questions, and what is known of the right answers.

    It is about one input, and one output or, in reverse mode, all. `asked` is the tensor that questions are restricted
    to, or None for all; `answered` the tensor that is looked at; `worst` are coordinates known to be wrong.
    """

    def __init__(self, bench: Bench, own: Part, output: Part | None, worst: Sequence[int] = ()) -> None:
        self.bench, self.xp, self.reverse = bench, bench.xp, bench.reverse
        self.input, self.worst = own, tuple(worst)
        self.output = output if bench.reverse else output or bench.outputs[0]
        asked, answered = (output, own) if bench.reverse else (own, output or bench.outputs[0])
        self.asked, self.answered = asked, answered
        self.full = not bench.reverse or self._is_small()
        self.tests: Array = None
        self.sample: Array = None
        self._columns: list[Column] = []
        self.slopes: Array = None  # in reverse mode: of all outputs, along every coordinate or along the tests
        self.bars: Array = None
        if bench.reverse and not bench.large:
            self._measure()
        self.questions = [asked.alone(each) if asked else each for each in map(bench.question, range(QUESTIONS))]
        self.whole_claims = [bench.claim(question) for question in self.questions]
        self.claims = [answered.of(claim) for claim in self.whole_claims]
        if bench.reverse and bench.large:
            places = chosen(self.xp, answered, self.unclaimed, self.worst)
            self._columns = columns(bench, answered, places)
            self.full = len(places) == answered.size
            if not self.full:
                self.sample = self.xp.asarray(places, device=self.questions[0].device)
        self.known = [self.right(question) for question in self.questions]
        self.right_values = [known.value for known in self.known]
        self.claimed = [self.seen(claim) for claim in self.claims]
        self.errors = [claim - right for claim, right in zip(self.claimed, self.right_values, strict=True)]
        self.disagreement = self._weighted_norm(self.errors)
        self.noise = self._weighted_norm([self._slack(k) for k in range(QUESTIONS)])

    @property
    def significant(self) -> bool:
        """Whether the disagreement is so much larger than the bars that a good fit cannot be a fit to noise."""
        return math.isfinite(self.disagreement) and 2 * (1 - GOOD) * self.disagreement > self.noise

    @property
    def isolated(self) -> bool:
        """Whether a sample has no wrong entries beyond those known before, and so shows no pattern."""
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
    def given(self) -> str:
        """What a question is, in words."""
        return "incoming gradient" if self.reverse else "tangent"

    @property
    def freedom(self) -> int:
        """How many independent numbers the claims and the values were compared in."""
        asked = self.asked.size if self.asked else sum(part.size for part in self.asked_parts)
        return int(self.claimed[0].shape[0]) * min(asked, QUESTIONS)

    @property
    def asked_parts(self) -> list[Part]:
        """The tensors that questions are made of."""
        return self.bench.outputs if self.reverse else self.bench.inputs

    @property
    def sole(self) -> Part | None:
        """The tensor that questions are about, where there is one."""
        return self.asked or (self.asked_parts[0] if len(self.asked_parts) == 1 else None)

    @property
    def unclaimed(self) -> Array:
        """Which coordinates are claimed to be zero, whatever is asked."""
        zero = self.claims[0] == 0
        for claim in self.claims[1:]:
            zero = zero & (claim == 0)
        return zero

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
        xp = self.xp
        if self._columns:
            answers = [column.answer(question) for column in self._columns]
            value, bar = xp.asarray(answers, dtype=question.dtype, device=question.device).T
        elif not self.reverse:
            found = self.bench.quick_slopes(question) if self.bench.large else self.bench.slopes(question[None])
            value, bar = (self.answered.of(each.reshape(-1)) for each in found)
        else:
            clean = xp.where(xp.isfinite(self.bars), self.bars, xp.zeros_like(self.bars))
            bar = SPREAD * ((clean * clean) @ (question * question)) ** 0.5
            unknown = (~xp.isfinite(self.bars) & (question != 0)).any(1)
            return Known(self.slopes @ question, bar, 1.0 - 1.0 * unknown)
        known = xp.isfinite(bar) & xp.isfinite(value)
        zero = xp.zeros_like(bar)
        return Known(xp.where(known, value, zero), xp.where(known, bar, zero), known * 1.0)

    def through(self, change: Callable[[Array], Array], adjoint: Callable[[Array], Array]) -> list[Array]:
        """The right answers, changed linearly, as far as known: of a long answer, for half of the tests.

        There a change is seen by measuring along directions that its adjoint gives.
        """
        if self.full:
            return [change(right) for right in self.right_values]
        if self.sample is None:
            few, step = self.tests[: QUESTIONS // 2], 1.0
        else:
            few, step = units(self.xp, self.claims[0], self.sample[: QUESTIONS // 2]), self.bench.step
        directions = self.bench.directions(self.answered, [step * adjoint(test) for test in few])
        slopes = self.bench.rough_slopes(directions) / step
        return [slopes @ question for question in self.questions]

    def fit(self, residuals: Iterable[Array], keep: Array | None = None) -> float:
        """How much of the disagreement is explained, where these residuals remain: between 0 and 1.

        `keep` says which of the tests count, where not all do. None fits where those hold little of the disagreement.
        Of a large function, whose every answer takes its time, no more residuals are drawn than it takes to reject.
        """
        left: list[Array] = []
        whole: list[Array] = []
        found = 0.0
        for number, residual in enumerate(residuals):
            count = residual.shape[0]
            mask = self.known[number].weight[:count] * (1.0 if keep is None else keep[:count])
            beyond = abs(residual) - self._slack(number)[:count]
            left.append(self.xp.where(beyond > 0, beyond, 0.0 * beyond) * mask)
            whole.append(self.errors[number][:count] * mask)
            remaining, base = size_of(left), size_of(whole)
            found = max(0.0, 1.0 - remaining / base) if math.isfinite(remaining) and base > 0 else 0.0
            if self.bench.large and found < GOOD:
                return found
        if keep is not None and 2 * base < self.disagreement:
            return 0.0
        return found if self.sample is None or found > SURE else 0.0

    def fit_asked(self, change: Callable[[Array], Array], part: Part) -> float:
        """How well the right answers to questions that are changed in one tensor explain the claims."""

        def residuals() -> Iterator[Array]:
            for question, claim in zip(self.questions, self.claimed, strict=True):
                right = self.right(part.changed(question, change)).value
                outside = self.sample is not None and not bool(right.any())  # what the change leaves is not seen
                yield claim - right + (math.inf if outside else 0.0)

        return self.fit(residuals())

    def fit_right(self, answers: Iterable[Array], keep: Array | None = None) -> float:
        """How well these would do as the right answers."""
        pairs = zip(self.right_values, answers, strict=False)
        return self.fit((self.seen(each) - right for right, each in pairs), keep)

    def fit_claims(self, explained: Iterable[Array], keep: Array | None = None) -> float:
        """How well these, as far as seen, explain what is claimed."""
        pairs = zip(self.claimed, explained, strict=False)
        return self.fit((claim[: each.shape[0]] - each for claim, each in pairs), keep)

    def _slack(self, number: int) -> Array:
        return CLEARLY * self.known[number].bar + CLAIM_ACCURACY * abs(self.right_values[number])

    def _weighted_norm(self, vectors: list[Array]) -> float:
        return size_of(vector * known.weight for vector, known in zip(vectors, self.known, strict=True))

    def _is_small(self) -> bool:
        """Whether every coordinate is measured: a slope and a bar for every output."""
        subject, size = self.bench.subject, self.answered.size
        held = 2 * size * max(subject.inputs.size, subject.outputs.size)
        return not self.bench.large and size <= SMALL and held <= VAST

    def _measure(self) -> None:
        xp, part = self.xp, self.answered
        if self.full:
            places = xp.arange(part.start, part.stop, device=self.bench.subject.point.device)
            self.slopes, self.bars = self.bench.columns(places)
            return
        directions = part.alone(xp.stack([self.bench.direction(k) for k in range(QUESTIONS)]))
        self.slopes, self.bars = self.bench.slopes(directions)
        self.tests = part.of(directions)
