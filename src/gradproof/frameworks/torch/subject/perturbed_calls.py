"""Calls of a function at perturbed points: whether their results fit, and whether they need a graph."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from gradproof.engine.subject import Step
from gradproof.frameworks.torch.storage import same_numbers
from gradproof.frameworks.torch.subject.error_messages import dtypes, shapes

if TYPE_CHECKING:
    from gradproof.frameworks.torch.subject.torch_subject import TorchSubject

ROUNDINGS = 64.0  # units of rounding that the smallest step takes, so that it moves every input


class PerturbedCalls:
    """The calls of a subject's function beside its point. They build no graph until one turns out to be needed."""

    def __init__(self, subject: TorchSubject) -> None:
        self._subject: TorchSubject = weakref.proxy(subject)  # a cycle would hold the subject's memory after a check
        self._changed = False

    def change_beside(self, seed: int) -> str:
        """Return how the outputs change shape or dtype however small the step; nothing if they do not."""
        subject = self._subject
        if not self._changed:  # by any step of the check, so that smaller ones need not be tried
            return ""
        self._changed = False
        direction = subject.direction(seed, Step(ROUNDINGS * subject.numbers.precision))
        for t in (1.0, -1.0):
            subject.evaluate(direction, t)
            if self._changed:
                return subject.trouble
        return ""

    def tried(self, moved: Sequence[Tensor]) -> list[Tensor] | None:
        """Return the results; None, with the error in `trouble`, if the function raises or its outputs change shape."""
        subject = self._subject
        try:
            results = subject.results_of(moved)
            if self.fits(results):
                return results
            if not subject.caller.needs_graph:
                results = self._with_graph(moved)
        except Exception as error:
            subject.trouble = f"{type(error).__name__}: {error}"
            return None
        if self.fits(results):
            return results
        described = shapes if not subject.outputs.fits(results) else dtypes
        before, after = described(subject.results), described(results)
        self._changed = True
        subject.trouble = f"the output changed from {before} to {after} when the inputs were perturbed"
        return None

    def fits(self, results: Sequence[Tensor]) -> bool:
        """Return True if results have the shapes, layouts and dtypes of those at the point."""
        subject = self._subject
        return subject.outputs.fits(results) and [one.dtype for one in results] == [
            one.dtype for one in subject.results
        ]

    def need_a_graph(self) -> bool:
        """Return True if calls have other values without a graph than with one; all have one from now on.

        An iteration that is unrolled for autograd may stop elsewhere than one that is not.
        """
        subject = self._subject
        if subject.caller.needs_graph:
            return False
        zeros = torch.zeros(subject.inputs.size, dtype=torch.float64, device=subject.inputs.device)
        if same_numbers(subject.evaluate(zeros, 0.0), subject.centre):
            return False
        subject.caller.needs_graph = True
        subject.caller.needs_graph = same_numbers(subject.evaluate(zeros, 0.0), subject.centre)
        return subject.caller.needs_graph

    def _with_graph(self, moved: Sequence[Tensor]) -> list[Tensor]:
        """Call the function with a graph. If the results fit then, all further calls are made with a graph.

        What a function returns may depend on whether it requires grad: torch's `as_sparse_gradcheck` spreads out what
        does, and leaves sparse what does not.
        """
        subject = self._subject
        subject.caller.needs_graph = True
        fitting = False
        try:
            results = subject.results_of(moved)
            fitting = subject.outputs.fits(results)
        finally:
            subject.caller.needs_graph = fitting
        return results
