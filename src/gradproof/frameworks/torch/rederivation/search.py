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
from gradproof.engine.thresholds import FEW, HANDFUL, SAMPLE, WORK
from gradproof.frameworks.torch.rederivation.arguments import of_operands, of_others, of_selections
from gradproof.frameworks.torch.rederivation.arrangements import of_conjugates, of_places, of_slices, of_sums
from gradproof.frameworks.torch.rederivation.mistakes import Family, Mistake
from gradproof.frameworks.torch.rederivation.samples import ROUNDED, Sample, samples
from gradproof.frameworks.torch.rederivation.slopes import of_factors, of_slopes
from gradproof.frameworks.torch.rederivation.tape import Key
from gradproof.frameworks.torch.subject.torch_subject import TorchSubject

FIRST: tuple[Family, ...] = (of_conjugates, of_slopes, of_slices, of_places, of_selections, of_operands)
THEN: tuple[Family, ...] = (of_others, of_factors)
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

    def possible(self) -> Iterator[Diagnosis]:
        """Yield slopes with a factor too many or too few, and derivatives that read another tensor."""
        yield from self._changed(THEN)

    def remaining(self) -> Iterator[Diagnosis]:
        """Yield steps whose gradient is summed over a dimension."""
        yield from self._changed(LAST)

    def _terms(self) -> Iterator[Diagnosis]:
        """Yield steps that are left out or multiplied by a number, alone or two together."""
        sizes = [(key, size) for key in self._keys() if (size := self._size(key)) is not None]
        yield from (self._multiplied(key, size) for key, size in sorted(sizes, key=lambda pair: _weight(pair[1])))
        if sizes:
            return
        for key in self._keys():
            if not self._is_whole(key) and all(
                each.explains(each.share(key) - each.rederived) for each in self.samples
            ):
                yield self._diagnosis("missing-term", key, "it is the only term that is not left out")
        for one, other in islice(combinations(self._keys(), 2), SAMPLE):
            for size, text in (
                (-1, "two terms are left out: this one"),
                (-2, "two terms have the wrong sign: this one"),
            ):
                if all(each.explains(size * (each.share(one) + each.share(other))) for each in self.samples):
                    text = f"{text}, and that of {self._step(other)}"
                    yield self._diagnosis("missing-term" if size == -1 else "wrong-term", one, text)

    def _changed(self, families: Sequence[Family]) -> Iterator[Diagnosis]:
        """Yield steps whose derivative is changed in a way that some families of mistakes know."""
        first, *others = self.samples
        budget = max(HANDFUL, WORK // (HANDFUL * sum(each.numel() for each in first.tape.recording.values)))
        tried = ((key, each) for family in families for key in self._keys() for each in family(first.sites[key]))
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


def _weight(size: float) -> int:
    """Return how complicated a multiple is: nothing, the negative, a whole number, another."""
    return 0 if size == 0 else 1 if size == -1 else 2 if size == round(size) else 3


def _is_usual(size: float) -> bool:
    """Return True for whole numbers and their inverses."""
    return any(math.isclose(each, round(each), abs_tol=SAME) for each in (size, 1 / size if size else 0.0))
