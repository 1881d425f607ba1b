"""Many directions or incoming gradients at once: by vmap where the function allows, else one by one.

What comes out of a batch is checked against the plain answer for one of its rows; where they differ, batches are given
up.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from gradproof.engine.subject import DerivativeError
from gradproof.frameworks.torch.duals import push
from gradproof.frameworks.torch.spaces import Space, as_real, real_dtype

if TYPE_CHECKING:
    from gradproof.frameworks.torch.subject import TorchSubject

FEW = 6  # rows up to which a batch is not worth its while
SAME = 1e4  # units of rounding by which a batch may differ from the plain answer


class Batches:
    """The batches of one subject."""

    def __init__(self, subject: TorchSubject) -> None:
        self.subject = subject
        self._refused: set[str] = set()

    def values(self, directions: Tensor, t: float) -> Tensor:
        """The function's values along each direction."""
        subject = self.subject

        def batch() -> Tensor:
            moved = [
                _displaced(point, step, t)
                for point, step in zip(subject.points, stacked(subject.inputs, directions), strict=True)
            ]
            evaluations = subject.tally.evaluations
            fitting = partial(self._fitting, subject.caller.copies())
            found = _rows(_vmapped(fitting, moved), len(directions))
            subject.tally.evaluations = evaluations + len(directions)
            return found

        return self._batched("values", directions, batch, lambda direction: subject.evaluate(direction, t))

    def gradients(self, cotangents: Tensor) -> Tensor:
        """The gradients for each incoming gradient."""
        subject = self.subject

        def pulled(*incoming: Tensor) -> tuple[Tensor, ...]:
            gradients = torch.autograd.grad(
                subject.results, subject.leaves, incoming, retain_graph=True, allow_unused=True
            )
            pairs = zip(subject.leaves, gradients, strict=True)
            return tuple(torch.zeros_like(leaf) if gradient is None else gradient for leaf, gradient in pairs)

        def batch() -> Tensor:
            with subject.caller.timed():
                found = _vmapped(pulled, stacked(subject.outputs, cotangents))
            subject.tally.pullbacks += len(cotangents)
            return _rows(found, len(cotangents))

        if subject.detached:
            return cotangents.new_zeros((len(cotangents), subject.inputs.size))
        return self._batched("gradients", cotangents, batch, subject.pullback)

    def tangents(self, directions: Tensor) -> Tensor:
        """The pushforwards along each direction."""
        subject = self.subject

        def batch() -> Tensor:
            evaluations = subject.tally.evaluations
            primals = [point.clone(memory_format=torch.contiguous_format) for point in subject.points]
            function = partial(subject.results_of, rest=subject.caller.copies())

            def pushed(*tangents: Tensor) -> tuple[Tensor, ...]:
                return tuple(push(function, primals, tangents, nested=True))  # which vmap has a rule for

            found = _rows(_vmapped(pushed, stacked(subject.inputs, directions)), len(directions))
            subject.tally.evaluations = evaluations
            subject.tally.pushforwards += len(directions)
            return found

        return self._batched("tangents", directions, batch, subject.pushforward)

    def _fitting(self, rest: Sequence[Tensor], *moved: Tensor) -> tuple[Tensor, ...]:
        results = self.subject.results_of(moved, rest)
        if not self.subject.outputs.fits(results):
            raise ValueError("the results have another shape in a batch")
        return tuple(results)

    def _batched(
        self, kind: str, rows: Tensor, batch: Callable[[], Tensor], plain: Callable[[Tensor], Tensor]
    ) -> Tensor:
        if len(rows) > FEW and kind not in self._refused and not self.subject.caller.needs_graph:
            try:
                found = batch()
            except DerivativeError:
                raise
            except Exception:  # not every function can be batched, and each says so in its own way
                self._refused.add(kind)
            else:
                if _same(found[-1], plain(rows[-1]), self.subject.precision):
                    return found
                self._refused.add(kind)
        return torch.stack([plain(row) for row in rows])


def stacked(space: Space, rows: Tensor) -> list[Tensor]:
    """The tensors that each row has the coordinates of, stacked along a first dimension."""
    tensors = []
    for part in space.parts:
        piece = rows[:, part.start : part.stop].to(device=part.device, dtype=real_dtype(part.dtype))
        if part.dtype.is_complex:
            tensors.append(torch.view_as_complex(piece.reshape(len(rows), *part.shape, 2).contiguous()))
        else:
            tensors.append(piece.reshape(len(rows), *part.shape))
    return tensors


def _displaced(point: Tensor, steps: Tensor, t: float) -> Tensor:
    if not point.is_complex():
        return torch.add(point, steps, alpha=t)
    return torch.view_as_complex(torch.add(as_real(point), as_real(steps), alpha=t))


def _vmapped(function: Callable[..., Any], stacks: Sequence[Tensor]) -> Sequence[Tensor]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a slow batching rule is nothing to warn a user of
        return torch.func.vmap(function, randomness="same")(*stacks)  # type: ignore[no-any-return]


def _rows(tensors: Sequence[Tensor], count: int) -> Tensor:
    blocks = [as_real(tensor.detach()).reshape(count, -1).to(torch.float64) for tensor in tensors]
    return blocks[0] if len(blocks) == 1 else torch.cat([block.to(blocks[0].device) for block in blocks], 1)


def _same(batched: Tensor, plain: Tensor, precision: float) -> bool:
    """Whether two answers differ by no more than the order of sums may make them."""
    sizes = plain.abs()
    scale = float(torch.where(sizes.isfinite(), sizes, 0.0).max()) if plain.numel() else 0.0
    gap = (batched - plain).abs()
    either_nan = batched.isnan() & plain.isnan()
    return bool(((gap <= SAME * precision * scale) | either_nan | (batched == plain)).all())
