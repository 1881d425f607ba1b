"""Claimed gradients beside rederived ones, at the point and at other points, for a few incoming gradients."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from gradproof.engine.estimators.steps import first_step
from gradproof.engine.subject import DerivativeError, Step
from gradproof.engine.thresholds import ALIKE, FEW, SLIGHT, TRACE
from gradproof.frameworks.torch.charts import Strided
from gradproof.frameworks.torch.rederivation.expansions import EXPANSIONS
from gradproof.frameworks.torch.rederivation.mistakes import Change
from gradproof.frameworks.torch.rederivation.recording import Recording, UnrecordableError
from gradproof.frameworks.torch.rederivation.tape import Gradients, Key, Site, Tape
from gradproof.frameworks.torch.subject.spaces import ChartedTensor
from gradproof.frameworks.torch.subject.torch_subject import TorchSubject

EXACT = 1e-6  # relative to the error of the claim: of two gradients that are computed in double precision
ROUNDED = 1e-11  # relative to the gradient: thousands of roundings of double precision
PLACES = (0.0, SLIGHT, ALIKE)  # relative to the point: itself, one near it, one further away
SEED = 7_919  # of directions and incoming gradients that no probe has drawn
REFUSALS = (RuntimeError, LookupError, TypeError, ValueError, NotImplementedError)


@dataclass(eq=False)
class Sample:
    """The claimed gradient of one input, and the rederived one, at one point for one incoming gradient."""

    tape: Tape
    part: ChartedTensor
    source: int  # the number of the input's value
    at_the_point: bool
    incoming: list[Tensor]
    claimed: Tensor
    _shares: dict[Key, Tensor] = field(default_factory=dict)

    @cached_property
    def _sites(self) -> tuple[Gradients, dict[Key, Site]]:
        return self.tape.sites(self.incoming)

    @property
    def gradients(self) -> Gradients:
        """The rederived gradients of all values, by their numbers."""
        return self._sites[0]

    @property
    def sites(self) -> dict[Key, Site]:
        """The steps that gradients pass through on their way to any input, by their place in the forward."""
        return self._sites[1]

    @cached_property
    def rederived(self) -> Tensor:
        """The gradient of the recorded forward, as coordinates."""
        return self._coordinates(self.gradients.get(self.source))

    @cached_property
    def error(self) -> Tensor:
        """The claimed gradient less the rederived one."""
        return self.claimed - self.rederived

    @cached_property
    def size(self) -> float:
        """The norm of the rederived gradient."""
        return float(self.rederived.norm())

    @property
    def is_wrong(self) -> bool:
        """Whether the claim is off at all."""
        return float(self.error.norm()) > EXACT * self.size

    def share(self, key: Key) -> Tensor:
        """Return what the input receives through one step."""
        if key not in self._shares:
            site = self.sites.get(key)
            self._shares[key] = self._received(site.value, site.right) if site else torch.zeros_like(self.claimed)
        return self._shares[key]

    def explains(self, explained: Tensor) -> bool:
        """Return True if this is the claim's error."""
        allowed = EXACT * float(self.error.norm()) + ROUNDED * self.size
        return float((self.error - explained).norm()) <= allowed

    def is_of(self, key: Key, change: Change) -> bool:
        """Return True if the error is that of a changed derivative of one step."""
        site = self.sites.get(key)
        try:
            gradient = None if site is None else change(site)
        except REFUSALS:
            return False
        if site is None or gradient is None or gradient.shape != site.right.shape:
            return False
        if not self._is_plausible(site, gradient):
            return False
        return self.explains(self._received(site.value, gradient) - self.share(key))

    def is_forwards(self, start: int, end: int) -> bool:
        """Return True if the error is that of the steps between two values, applied forwards to the latter's gradient.

        All of the former's gradient has to come from the latter.
        """
        here, there = self.gradients.get(start), self.gradients.get(end)
        try:
            found = None if here is None or there is None else self.tape.between(start, end, there)
        except REFUSALS:
            return False
        if here is None or found is None or not bool(torch.allclose(found[0], here, EXACT, ROUNDED)):
            return False
        return self.explains(self._received(start, found[1] - here))

    def _is_plausible(self, site: Site, gradient: Tensor) -> bool:
        """Compare the error along one direction alone, which takes no backward."""
        tangent = self.tape.tangent(site.value, self.source, self._along)
        if tangent is None or tangent.is_complex() or gradient.is_complex():
            return True
        explained, error = float((tangent * (gradient - site.right)).sum()), self._error_along
        return abs(explained - error) <= EXACT * float(self.error.norm()) * self._length + ROUNDED * self.size

    @cached_property
    def _along(self) -> Tensor:
        value = self.tape.recording.values[self.source]
        generator = torch.Generator(value.device).manual_seed(SEED)
        return torch.randn(value.shape, dtype=value.dtype, device=value.device, generator=generator)

    @cached_property
    def _error_along(self) -> float:
        return float(self._coordinates(self._along) @ self.error)

    @cached_property
    def _length(self) -> float:
        return float(self._along.abs().norm())

    def _received(self, value: int, gradient: Tensor) -> Tensor:
        return self._coordinates(self.tape.contribution(value, gradient, self.source))

    def _coordinates(self, gradient: Tensor | None) -> Tensor:
        return torch.zeros_like(self.claimed) if gradient is None else self.part.chart.read(gradient).to(torch.float64)


def samples(subject: TorchSubject, path: str) -> list[Sample]:
    """Return samples for one input, the wrong ones first; none where the forward cannot be differentiated step by step.

    A point at which the function takes another path, or does not run, is left out.
    """
    if subject.call.bypassed or not all(isinstance(part.chart, Strided) for part in subject.inputs.parts):
        return []
    found: list[Sample] = []
    for number, length in enumerate(PLACES):
        place = torch.zeros_like(subject.point) if not length else subject.direction(SEED + number, Step(length))
        try:
            here = list(_samples(subject, path, place, at_the_point=not length))
        except (*REFUSALS, UnrecordableError, DerivativeError):
            here = []
        if not length and not (here and _is_right(subject, here)):
            return []
        found += [each for each in here if not found or each.tape.signature == found[0].tape.signature]
    return sorted(found, key=lambda each: not each.is_wrong)


def _samples(subject: TorchSubject, path: str, place: Tensor, *, at_the_point: bool) -> Iterator[Sample]:
    number = [part.path for part in subject.inputs.parts].index(path)
    part, moved = subject.inputs.parts[number], subject.moved(place)
    with _nothing_recompiled(), Recording(moved, EXPANSIONS) as recording:
        results = subject.caller.results(subject.caller.beside(moved))
    if not subject.outputs.fits(results):
        return
    tape = Tape(recording, [recording.number_of(each) for each in results])
    for draw in range(FEW):
        cotangent = subject.cotangent(SEED + draw)
        claimed = subject.pullback(cotangent, None if at_the_point else place)[part.start : part.stop].clone()
        sample = Sample(tape, part, recording.inputs[number], at_the_point, subject.outputs.tensors(cotangent), claimed)
        if bool(torch.isfinite(claimed).all()) and bool(torch.isfinite(sample.rederived).all()):
            yield sample


def _nothing_recompiled() -> AbstractContextManager[Any]:
    """Return a context in which compiled functions run as they are written, and stay compiled for later calls."""
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()


def _is_right(subject: TorchSubject, here: list[Sample]) -> bool:
    """Return True if rederived gradients are those that two values of the function show, where claimed ones are not."""
    wrong = [each for each in here if each.is_wrong]
    if not wrong:
        return False
    part, step = wrong[0].part, first_step(subject.numbers.precision)
    direction = subject.direction(SEED, Step(step))
    along = torch.zeros_like(direction)
    along[part.start : part.stop] = direction[part.start : part.stop]
    change = (subject.evaluate(along, 1.0) - subject.evaluate(along, -1.0)) / 2
    for sample in wrong:
        slope = float(subject.outputs.coordinates(sample.incoming) @ change)
        piece = along[part.start : part.stop]
        allowed = SLIGHT * abs(float(sample.error @ piece)) + TRACE * SLIGHT * abs(slope)
        if not abs(float(sample.rederived @ piece) - slope) <= allowed:
            return False
    return True
