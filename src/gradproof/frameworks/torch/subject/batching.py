"""Evaluate many directions or incoming gradients at once: by vmap if the function allows it, else one by one.

One row of a batch is compared with the same evaluation without vmap. If they differ, vmap is not used again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from gradproof.errors import MemoryExhaustedError
from gradproof.frameworks.torch.charts import densified
from gradproof.frameworks.torch.exclusion import without_warnings
from gradproof.frameworks.torch.storage import as_real, fills_its_storage, real_dtype
from gradproof.frameworks.torch.subject.dual_numbers import push
from gradproof.frameworks.torch.subject.spaces import Space

if TYPE_CHECKING:
    from gradproof.frameworks.torch.subject.torch_subject import TorchSubject

LOOPED_ROWS = 24  # rows: up to this many a loop is faster than a batch
BATCH_ROUNDINGS = 1e4  # units of rounding by which a row of a batch may differ from a single evaluation


class Batches:
    """Batched evaluations of one subject, in which the kinds that cannot be batched are recorded."""

    def __init__(self, subject: TorchSubject) -> None:
        self.subject = subject
        self.strided = subject.inputs.strided and subject.outputs.strided

    def values(self, directions: Tensor, t: float) -> Tensor:
        """Return the function's values along each direction."""
        subject, count = self.subject, directions.shape[0]

        def moved() -> list[Tensor]:
            steps = stacked(subject.inputs, directions)
            return [_displaced(point, step, t) for point, step in zip(subject.points, steps, strict=True)]

        def batch() -> Tensor:
            evaluations = subject.tally.evaluations
            found = _vmapped(partial(self._fitting, subject.caller.copies()), moved())
            subject.tally.evaluations = evaluations + count
            return _rows(subject.outputs, found, count)

        def singly() -> Tensor:
            return torch.stack([subject.evaluate(direction, t) for direction in directions])

        def one_by_one() -> Tensor:
            if not self.strided or not all(map(fills_its_storage, subject.points)):
                return singly()  # which keeps the strides of the inputs
            with torch.no_grad():
                return by_rows()

        def by_rows() -> Tensor:
            found, storages = [], subject.storages.copy()
            for row in zip(*(stack.unbind(0) for stack in moved()), strict=True):
                try:
                    with_own_memory = [piece.clone() for piece in row]
                    found.append(self._fitting(None, *with_own_memory))
                except (Exception, MemoryExhaustedError):
                    return singly()  # which says what is undefined
                here = {tensor.untyped_storage().data_ptr() for tensor in found[-1]}
                if not here.isdisjoint(storages):
                    return singly()  # which copies results that come in the same memory again
                storages |= here
            stacks = [torch.stack(results) for results in zip(*found, strict=True)]
            return _rows(subject.outputs, stacks, count)

        return self._batched("values", count, batch, lambda: subject.evaluate(directions[-1], t), one_by_one)

    def gradients(self, cotangents: Tensor) -> Tensor:
        """Return the gradients for each incoming gradient."""
        subject, count = self.subject, cotangents.shape[0]
        if subject.detached:
            return cotangents.new_zeros((count, subject.inputs.size))

        def pulled(*incoming: Tensor) -> tuple[Tensor, ...]:
            found = subject.graphs.gradients(incoming)
            return tuple(
                torch.zeros_like(leaf) if gradient is None else densified(gradient)
                for leaf, gradient in zip(subject.leaves, found, strict=True)
            )

        def batch() -> Tensor:
            pullbacks = subject.tally.pullbacks
            found = _vmapped(pulled, _own(stacked(subject.outputs, cotangents)))
            subject.tally.pullbacks = pullbacks + count
            return _rows(subject.inputs, found, count)

        def one_by_one() -> Tensor:
            if not self.strided:
                return torch.stack([subject.pullback(cotangent) for cotangent in cotangents])
            stacks = (stack.unbind(0) for stack in _own(stacked(subject.outputs, cotangents)))
            found = [pulled(*incoming) for incoming in zip(*stacks, strict=True)]
            whole = [torch.stack(gradients) for gradients in zip(*found, strict=True)]
            return _rows(subject.inputs, whole, count)

        return self._batched("gradients", count, batch, lambda: subject.pullback(cotangents[-1]), one_by_one)

    def tangents(self, directions: Tensor) -> Tensor:
        """Return the pushforwards along each direction."""
        subject, count = self.subject, directions.shape[0]

        def batch() -> Tensor:
            evaluations = subject.tally.evaluations
            primals = [point.clone(memory_format=torch.contiguous_format) for point in subject.points]
            function = partial(subject.results_of, rest=subject.caller.copies())

            def pushed(*tangents: Tensor) -> tuple[Tensor, ...]:
                return tuple(push(function, primals, tangents, nested=True))  # which vmap has a rule for

            found = _vmapped(pushed, _own(stacked(subject.inputs, directions)))
            subject.tally.evaluations = evaluations
            subject.tally.pushforwards += count
            return _rows(subject.outputs, found, count)

        def one_by_one() -> Tensor:
            return torch.stack([subject.pushforward(direction) for direction in directions])

        return self._batched("tangents", count, batch, lambda: subject.pushforward(directions[-1]), one_by_one)

    def _fitting(self, rest: Sequence[Tensor] | None, *moved: Tensor) -> tuple[Tensor, ...]:
        results = self.subject.results_of(moved, rest)
        if not self.subject.calls.fits(results):
            raise ValueError("the results have another shape or dtype here")
        return tuple(results)

    def _batched(
        self,
        kind: str,
        rows: int,
        batch: Callable[[], Tensor],
        single: Callable[[], Tensor],
        one_by_one: Callable[[], Tensor],
    ) -> Tensor:
        refused = self.subject.refused
        if rows > LOOPED_ROWS and self.strided and kind not in refused and not self.subject.caller.needs_graph:
            try:
                found = batch()
            except (Exception, MemoryExhaustedError):  # not every function can be batched, or fits into memory then
                refused.add(kind)
            else:
                if _same(found[-1], single(), self.subject.numbers.precision):
                    return found
                refused.add(kind)
        return one_by_one()


def stacked(space: Space, rows: Tensor) -> list[Tensor]:
    """Return the tensors of all rows of coordinates, stacked along a first dimension."""
    tensors, count = [], rows.shape[0]
    for part in space.parts:
        piece = rows[:, part.start : part.stop].to(device=part.device, dtype=real_dtype(part.dtype))
        if part.dtype.is_complex:
            tensors.append(torch.view_as_complex(piece.reshape(count, *part.chart.shape, 2).contiguous()))
        else:
            tensors.append(piece.reshape(count, *part.chart.shape))
    return tensors


def _displaced(point: Tensor, steps: Tensor, t: float) -> Tensor:
    if not point.is_complex():
        return torch.add(point, steps, alpha=t)
    return torch.view_as_complex(torch.add(as_real(point), as_real(steps), alpha=t))


def _own(stacks: list[Tensor]) -> list[Tensor]:
    """Return copies, since a rule may write to its arguments."""
    return [stack.clone() for stack in stacks]


def _vmapped(function: Callable[..., Any], stacks: Sequence[Tensor]) -> Sequence[Tensor]:
    with without_warnings():  # torch warns about slow batching rules, which is no concern of the user's here
        return torch.func.vmap(function, randomness="same")(*stacks)  # type: ignore[no-any-return]  # it wraps a function of ours


def _rows(space: Space, tensors: Sequence[Tensor], count: int) -> Tensor:
    blocks = [as_real(tensor.detach()).reshape(count, -1).to(space.device, torch.float64) for tensor in tensors]
    return blocks[0] if len(blocks) == 1 else torch.cat(blocks, 1)


def _same(batched: Tensor, single: Tensor, precision: float) -> bool:
    """Return True if two vectors differ by no more than another order of summation explains."""
    sizes = single.abs()
    scale = float(torch.where(sizes.isfinite(), sizes, 0.0).max()) if single.numel() else 0.0
    gap = (batched - single).abs()
    either_nan = batched.isnan() & single.isnan()
    return bool(((gap <= BATCH_ROUNDINGS * precision * scale) | either_nan | (batched == single)).all())
