"""Find the one step of a forward whose derivative, were it changed in one way, would give what is claimed.

A change is named if it gives the claims at the point and at other points, for several incoming gradients, to the
digits of double precision.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice
from pathlib import Path

from gradproof.engine.diagnosis.case import SAME
from gradproof.engine.results import Diagnosis
from gradproof.engine.thresholds import FEW, HANDFUL, MANY, SAMPLE, WORK
from gradproof.frameworks.torch.rederivation.arguments import of_constants, of_operands, of_others, of_selections
from gradproof.frameworks.torch.rederivation.arrangements import (
    REARRANGING,
    of_conjugates,
    of_places,
    of_slices,
    of_sums,
    of_what_it_receives,
)
from gradproof.frameworks.torch.rederivation.mistakes import Family, Mistake
from gradproof.frameworks.torch.rederivation.samples import REFUSALS, ROUNDED, Sample, samples
from gradproof.frameworks.torch.rederivation.slopes import of_factors, of_slopes
from gradproof.frameworks.torch.rederivation.tape import Key, Site
from gradproof.frameworks.torch.subject.torch_subject import TorchSubject

FIRST: tuple[Family, ...] = (
    of_conjugates,
    of_slopes,
    of_slices,
    of_places,
    of_selections,
    of_operands,
    of_what_it_receives,
)
THEN: tuple[Family, ...] = (of_constants, of_others, of_factors)
LAST: tuple[Family, ...] = (of_sums,)
HINT = "Compare this step of the forward with what the backward does for it."


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of a function's forward, beside the claimed gradient of one input."""

    path: str
    samples: list[Sample]

    @classmethod
    def of(cls, subject: TorchSubject, path: str) -> Steps | None:
        """Return the steps; None where the forward is too large, or cannot be differentiated step by step."""
        if max(subject.inputs.size, subject.outputs.size) * HANDFUL > WORK:
            return None
        found = samples(subject, path)
        equations = sum(each.claimed.numel() for each in found)
        return cls(path, found) if equations > FEW and found[0].is_wrong else None

    def likely(self) -> Iterator[Diagnosis]:
        """Yield steps that are left out or multiplied by a number, and those with a changed structure."""
        yield from self._terms()
        yield from self._changed(FIRST)
        yield from self._forwards()
        yield from self._two_terms()

    def possible(self) -> Iterator[Diagnosis]:
        """Yield slopes with a factor too many or too few, and derivatives that read another tensor."""
        yield from self._changed(THEN)

    def remaining(self) -> Iterator[Diagnosis]:
        """Yield steps whose gradient is summed over a dimension."""
        yield from self._changed(LAST)

    def _terms(self) -> Iterator[Diagnosis]:
        """Yield steps that are left out or multiplied by a number, and those that alone are not left out."""
        sizes = [(key, size) for key in self._keys() if (size := self._size(key)) is not None]
        yield from (self._multiplied(key, size) for key, size in sorted(sizes, key=lambda pair: _weight(pair[1])))
        if sizes:
            return
        for key in self._keys():
            if not self._is_whole(key) and all(
                each.explains(each.share(key) - each.rederived) for each in self.samples
            ):
                yield self._diagnosis("missing-term", key, "it is the only term that is not left out")

    def _two_terms(self) -> Iterator[Diagnosis]:
        """Yield two steps that are each left out or multiplied by a whole number."""
        for one, other in islice(combinations(self._keys(), 2), SAMPLE):
            sizes_of_two = self._sizes(one, other)
            if sizes_of_two is not None:
                yield self._of_two(one, other, sizes_of_two)

    def _of_two(self, one: Key, other: Key, sizes: tuple[float, float]) -> Diagnosis:
        name = "missing-term" if sizes == (0, 0) else "wrong-term"
        step = self._step(other)
        text = f"its derivative is {sizes[0]:.6g} times the right one, and that of {step} {sizes[1]:.6g} times"
        return self._diagnosis(name, one, text)

    def _sizes(self, one: Key, other: Key) -> tuple[float, float] | None:
        """Return the whole numbers by which two steps are multiplied, if that is the mistake."""
        here = [each for each in self.samples if each.at_the_point]
        pairs = [(each.share(one), each.share(other), each.error) for each in here]
        a, b, c, x, y = (
            sum(float(first @ second) for first, second in each)
            for each in zip(*(((u, u), (u, v), (v, v), (u, e), (v, e)) for u, v, e in pairs), strict=True)
        )
        determinant = a * c - b * b
        if not determinant > SAME * a * c:
            return None
        sizes = (round(1 + (c * x - b * y) / determinant), round(1 + (a * y - b * x) / determinant))
        if 1 in sizes or max(map(abs, sizes)) > 2:
            return None
        off = ((sizes[0] - 1) * each.share(one) + (sizes[1] - 1) * each.share(other) for each in self.samples)
        return sizes if all(each.explains(part) for each, part in zip(self.samples, off, strict=True)) else None

    def _forwards(self) -> Iterator[Diagnosis]:
        """Yield several steps that are applied themselves, where their transpose should be."""
        first = self.samples[0]
        values, operations = first.tape.recording.values, first.tape.recording.operations
        made = {number: place for place, each in enumerate(operations) for number in each.results}
        ends = [number for number in made if number in first.gradients]
        starts = [*first.tape.recording.inputs, *ends]
        pairs = ((one, other) for other in ends for one in starts if one < other)
        alike = (pair for pair in pairs if values[pair[0]].numel() == values[pair[1]].numel() > 1)
        for start, end in islice(alike, SAMPLE // MANY):
            if all(each.is_forwards(start, end) for each in self.samples):
                between = first.tape.ancestors(end) - first.tape.ancestors(start)
                names = {REARRANGING.get(operations[place].name, "transposed") for place in between}
                name = names.pop() if len(names) == 1 else "transposed"
                text = "the steps before and with it are applied themselves, where their transpose should be"
                also = (each for each in ("transposed", "misplaced", "wrong-term") if each != name)
                yield self._diagnosis(name, (made[end], 0), text, tuple(also))

    def _changed(self, families: Sequence[Family]) -> Iterator[Diagnosis]:
        """Yield steps whose derivative is changed in a way that some families of mistakes know."""
        first, *others = self.samples
        budget = max(HANDFUL, WORK // (HANDFUL * sum(each.numel() for each in first.tape.recording.values)))
        tried = (
            (key, each) for family in families for key in self._keys() for each in _known(family, first.sites[key])
        )
        for key, mistake in islice(tried, min(budget, SAMPLE)):
            if first.is_of(key, mistake.change) and all(each.is_of(key, mistake.change) for each in others):
                yield self._of_mistake(key, mistake)

    def _keys(self) -> list[Key]:
        return list(self.samples[0].sites)

    def _is_whole(self, key: Key) -> bool:
        """Return True if all that the input receives passes through a step."""
        return all(
            float((each.rederived - each.share(key)).norm()) <= FEW * ROUNDED * each.size for each in self.samples
        )

    def _is_branch(self, key: Key) -> bool:
        """Return True if no entry of the gradient has more than one term: those through a step, and the others."""
        return all(
            not bool(((each.share(key) != 0) & (each.rederived != each.share(key))).any()) for each in self.samples
        )

    def _is_factor(self, key: Key) -> bool:
        """Return True if the gradient takes one way from a step to the input, so that it has the step's factor."""
        first = self.samples[0]
        through = first.tape.ancestors(first.sites[key].value)
        return all(self._is_whole(each) for each, site in first.sites.items() if each[0] in through)

    def _size(self, key: Key) -> float | None:
        """Return the number by which a step is multiplied, if that is the mistake."""
        here = [each for each in self.samples if each.at_the_point]
        square = sum(float(each.share(key) @ each.share(key)) for each in here)
        if not 0 < square < math.inf:
            return None
        size = 1 + sum(float(each.error @ each.share(key)) for each in here) / square
        size = round(size) if math.isclose(size, round(size), abs_tol=SAME) else size
        if not _is_usual(size) and here[0].claimed.numel() < FEW:  # a few numbers are a multiple of any others
            return None
        return size if all(each.explains((size - 1) * each.share(key)) for each in self.samples) else None

    def _multiplied(self, key: Key, size: float) -> Diagnosis:
        whole = self._is_whole(key)
        if size == 0:
            text = "its derivative is left out, as if its argument were a constant"
            return self._diagnosis("detached" if whole else "missing-term", key, text)
        if size == -1:
            return self._diagnosis("sign" if whole else "wrong-term", key, "its derivative has the wrong sign")
        text = f"its derivative is {size:.6g} times the right one"
        return self._diagnosis("factor" if whole else "wrong-term", key, text)

    def _of_mistake(self, key: Key, mistake: Mistake) -> Diagnosis:
        name = mistake.name if self._is_whole(key) else mistake.partial
        if name == "wrong-term" and self._is_branch(key):
            name, mistake = mistake.name, replace(mistake, also=(*mistake.also, "mask", name))
        if name == "wrong-factor" and mistake.is_another and not self._is_factor(key):
            name, mistake = mistake.partial, replace(mistake, also=(*mistake.also, name))
        return self._diagnosis(name, key, mistake.text, tuple(each for each in mistake.also if each != name))

    def _diagnosis(self, name: str, key: Key, text: str, also: tuple[str, ...] = ()) -> Diagnosis:
        return Diagnosis(
            name=name,
            message=f"The gradient with respect to {self.path} is right but for one step of the forward, "
            f"{self._step(key)}: {text}.",
            fit=1.0,
            hint=HINT,
            also=also,
        )

    def _step(self, key: Key) -> str:
        operation = self.samples[0].tape.recording.operations[key[0]]
        file, _, line = operation.line.rpartition(":")
        return f"`{operation.name}`" + (f" in line {line} of {Path(file).name}" if file else "")


def _known(family: Family, site: Site) -> list[Mistake]:
    """Return the mistakes of a family at a site; none where it does not apply."""
    try:
        return list(family(site))
    except REFUSALS:
        return []


def _weight(size: float) -> int:
    """Return how complicated a multiple is: nothing, the negative, a whole number, another."""
    return 0 if size == 0 else 1 if size == -1 else 2 if size == round(size) else 3


def _is_usual(size: float) -> bool:
    """Return True for whole numbers and their inverses."""
    return any(math.isclose(each, round(each), abs_tol=SAME) for each in (size, 1 / size if size else 0.0))
