"""A large PyTorch function in low precision and in double, summed as it comes (see `engine.streaming`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from gradproof.engine.contraction import SampledValues
from gradproof.engine.estimators.extent import Lengths
from gradproof.engine.options import Probing
from gradproof.engine.streaming import SECOND_DIRECTION, GradientSums, Rounding, first_length, judge_streamed
from gradproof.engine.subject import DerivativeError, Numbers, Subject
from gradproof.engine.thresholds import FEW, HANDFUL, LARGE, ROUNDINGS
from gradproof.engine.verdict import Judgement
from gradproof.frameworks.torch.internals import version_of
from gradproof.frameworks.torch.passes import Drawn, beside, change, displaced, enlarged, joined, outside
from gradproof.frameworks.torch.passes.drawn import BLOCK, COARSE, FINE, MEAN_SQUARE
from gradproof.frameworks.torch.storage import is_strided, memory_of
from gradproof.frameworks.torch.subject.arguments import Call
from gradproof.frameworks.torch.subject.graphs import Graph, Way
from gradproof.frameworks.torch.subject.torch_subject import TorchSubject

HALF = 1e-5  # a wider spacing of numbers near one is that of a half precision
ENOUGH_OUTPUTS = 1 << 18  # outputs in the sample whose bars are computed, of more outputs
RAREST = 64  # outputs for one of which the bar is computed, at the most
SEEDS = 1000  # apart: the seeds of tensors of one check, and of further incoming gradients


def judged_as_stream(low: TorchSubject, wide: TorchSubject, seed: int, options: Probing) -> Judgement | None:
    """Return the judgement of a large function that sums verify; None where they do not, or cannot be had."""
    if options.rtol or options.atol or options.nondet_tol or options.step is not None:
        return None
    if low.numbers.precision < HALF or not (_is_plain(low) and _is_plain(wide)):
        return None
    if not all(isinstance(scale, float) for scale in wide.scales):
        return None
    return judge_streamed(_TorchStream(low, wide, seed), seed)


def _is_plain(subject: TorchSubject) -> bool:
    """Return True for a large function of strided tensors that repeats, writes to no input and uses no other tensors.

    Its gradients are computed through one graph.
    """
    return (
        isinstance(subject.call, Call)
        and subject.inputs.size >= LARGE
        and subject.scale.finite
        and not subject.detached
        and subject.graphs.way is Way.SHARED
        and not (subject.call.bypassed or subject.call.freed or subject.keeps_hooks)
        and not any(subject.caller.written)
        and all(map(_is_plain_tensor, (*subject.points, *subject.results)))
    )


def _is_plain_tensor(tensor: Tensor) -> bool:
    return is_strided(tensor) and tensor.is_contiguous() and not tensor.is_complex() and not tensor.is_neg()


class _TorchStream:
    """One direction and one incoming gradient, which low precision can hold, for the function in both precisions."""

    def __init__(self, low: TorchSubject, wide: TorchSubject, seed: int) -> None:
        self._low, self._wide, self._seed = low, wide, seed
        self._lengths = [first_length(scale, wide.numbers.precision) for scale in cast(list[float], wide.scales)]
        self._steps = self._directions(2 * seed)
        self._weights = self._cotangent(2 * seed + 1)
        self._gradients: tuple[list[Tensor], list[Tensor]] | None = None
        self._others, self._sizes = 0, list[Tensor | None]([None] * len(self._steps))

    @property
    def numbers(self) -> Numbers:
        """The number format of the function in low precision."""
        return self._low.numbers

    @property
    def wide(self) -> Subject:
        """The function in double precision."""
        return self._wide

    def gradients(self, rounding: Rounding, others: int) -> GradientSums | None:
        """Return the sums over both gradients, where rounding is known from some other incoming gradients too."""
        try:
            if self._gradients is None:
                self._gradients = self._pulled(self._low, self._weights), self._pulled(self._wide, self._weights)
            while self._others < others:
                self._others += 1
                further = self._pulled(self._low, self._cotangent(2 * (self._seed + SEEDS * self._others) + 1))
                self._sizes = list(map(enlarged, self._sizes, further))
        except (DerivativeError, _UnreadableError):
            return None
        rows = zip(*self._gradients, self._sizes, self._steps, strict=True)
        sums = joined(
            [
                beside(truth, claimed, sizes, step, rounding.share, rounding.least)
                for claimed, truth, sizes, step in rows
                if len(truth)
            ]
        )
        slope, squares, outside, contribution, entry, hidden = sums.tolist()
        self._rounding = rounding
        return GradientSums(
            slope=slope,
            squares=squares,
            contribution=contribution,
            entry=entry,
            outside=round(outside) if math.isfinite(outside) else 1,
            hidden=hidden,
        )

    def explains_outside(self) -> bool:
        """Return True if each entry outside moves as much when the point moves by a rounding: it is ill-conditioned."""
        rounding = self._rounding
        assert self._gradients is not None
        rows = zip(*self._gradients, self._sizes, strict=True)
        found = (outside(truth, claimed, sizes, rounding.share, rounding.least) for claimed, truth, sizes in rows)
        where, gaps, allowed = zip(*found, strict=True)
        squares = torch.zeros_like(torch.cat(gaps))
        for number in range(FEW):
            try:
                nudged = self._pulled_beside(2 * (self._seed + SEEDS * (HANDFUL + number)))
            except (DerivativeError, _UnreadableError):
                return False
            pairs = zip(nudged, self._gradients[0], where, strict=True)
            moved = [one[at].to(torch.float64) - other[at].to(torch.float64) for one, other, at in pairs]
            squares += torch.cat(moved).square()
        return bool((torch.cat(gaps) <= torch.cat(allowed) + ROUNDINGS * (squares / FEW).sqrt()).all())

    def along_another(self) -> GradientSums | None:
        """Turn to another direction, and return the sums over the same gradients; None where they are gone."""
        if self._gradients is None:
            return None
        self._steps = self._directions(2 * (self._seed + SECOND_DIRECTION))
        return self.gradients(self._rounding, self._others)

    def changes(self, steps: Sequence[float]) -> tuple[list[float], SampledValues] | None:
        """Return ⟨u, change in value⟩ at some steps, and a sample of the outputs; None where a call fails."""
        if self._wide.outputs.size > 1:
            self._gradients, self._sizes = None, []  # long vectors, which further directions of one output need
        wide, centre = self._wide, self._flat(self._wide.results)
        one_of = _one_of(wide.outputs.size)
        totals, seen, memory = list[Tensor](), list[Tensor](), self._memory()
        for t in steps:
            rows = zip(self._low.points, self._steps, memory, strict=True)
            moved = [
                displaced(point.reshape(-1), step.times(t), out.view(-1)).view(out.shape) for point, step, out in rows
            ]
            results = wide.tried(moved)
            if results is None or not all(map(_is_plain_tensor, results)):
                return None
            if not memory_of(results).isdisjoint(wide.storages):
                return None  # the values at the point are overwritten
            values = self._flat(results)
            totals.append(sum(map(change, values, centre, self._weights), torch.zeros((), device=wide.inputs.device)))
            seen.append(_sampled(values, one_of))
            del results, values
        weights = torch.cat([_sample_of(each, one_of) for each in self._weights])
        sampled = SampledValues(centre=_sampled(centre, one_of), beside=seen, cotangents=[weights])
        return torch.stack(totals).tolist(), sampled

    def lengths(self) -> Lengths:
        """Return how far the direction reaches."""
        pairs = [(step.size, length) for step, length in zip(self._steps, self._lengths, strict=True) if step.size]
        square = sum(size * length * length for size, length in pairs) * MEAN_SQUARE
        shortest = min(length for _, length in pairs) / 2
        return Lengths(shortest=shortest, reach=math.sqrt(square), moved=self._wide.inputs.size)

    def _directions(self, seed: int) -> list[Drawn]:
        rows = enumerate(zip(self._wide.inputs.parts, self._lengths, strict=True))
        return [
            self._drawn(part.stop - part.start, seed, number, FINE).times(length) for number, (part, length) in rows
        ]

    def _drawn(self, size: int, seed: int, number: int, digits: int) -> Drawn:
        return Drawn.of(size, seed + 2 * SEEDS**2 * number, self._wide.inputs.device, digits)

    def _cotangent(self, seed: int) -> list[Drawn]:
        parts = enumerate(self._wide.outputs.parts)
        return [self._drawn(part.stop - part.start, seed, number, COARSE) for number, part in parts]

    def _pulled_beside(self, seed: int) -> list[Tensor]:
        """Return the gradients in low precision at a point that is a unit of rounding away."""
        low, leaves = self._low, list[Tensor]()
        for number, (point, scale) in enumerate(zip(low.points, self._wide.scales, strict=True)):
            nudge = self._drawn(point.numel(), seed, number, COARSE).vector(point.dtype).view(point.shape)
            leaves.append(point.add(nudge, alpha=low.numbers.precision * cast(float, scale)).requires_grad_())
        try:
            results = low.caller.results(low.caller.differentiably(leaves))
        except Exception as error:
            raise _UnreadableError from error
        if not low.outputs.fits(results):
            raise _UnreadableError
        return self._pulled(low, self._weights, (results, leaves))

    def _pulled(self, subject: TorchSubject, weights: Sequence[Drawn], elsewhere: Graph | None = None) -> list[Tensor]:
        """Return the gradients as vectors of the subject's own precision, zeros for inputs without influence."""
        rows = zip(weights, subject.results, strict=True)
        incoming = [drawn.vector(result.dtype).view(result.shape) for drawn, result in rows]
        versions = [version_of(each) for each in incoming]
        graphs = subject.graphs
        gradients = graphs.gradients(incoming) if elsewhere is None else graphs.gradients_elsewhere(elsewhere, incoming)
        if versions != [version_of(each) for each in incoming]:
            raise _UnreadableError
        vectors = []
        for gradient, point in zip(gradients, subject.points, strict=True):
            found = torch.zeros_like(point) if gradient is None else gradient
            if not is_strided(found) or found.shape != point.shape or found.is_complex():
                raise _UnreadableError
            vectors.append(found.detach().reshape(-1))
        return vectors

    def _flat(self, results: Sequence[Tensor]) -> list[Tensor]:
        return [result.detach().view(-1) for result in results]

    def _memory(self) -> list[Tensor]:
        return [torch.empty_like(point, dtype=torch.float64) for point in self._wide.points]


class _UnreadableError(Exception):
    """A gradient that only whole vectors can judge."""


def _one_of(outputs: int) -> int:
    """Return how many outputs one of the sample stands for, a power of two."""
    return min(RAREST, 1 << max(0, (outputs // ENOUGH_OUTPUTS).bit_length() - 1))


def _sampled(vectors: Sequence[Tensor], one_of: int) -> Tensor:
    """Return the first entries of every block, in double precision."""
    pieces = []
    for vector in vectors:
        whole = len(vector) // BLOCK * BLOCK
        rest = math.ceil((len(vector) - whole) / one_of)
        pieces += [vector[:whole].view(-1, BLOCK)[:, : BLOCK // one_of].reshape(-1), vector[whole : whole + rest]]
    kept = [piece.to(torch.float64) for piece in pieces if len(piece)]
    return kept[0] if len(kept) == 1 else torch.cat(kept)


def _sample_of(weights: Drawn, one_of: int) -> Tensor:
    """Return the weights of the same entries."""
    whole, rest = divmod(weights.size, BLOCK)
    last = weights.blocks(whole, whole + 1)[: math.ceil(rest / one_of)] if rest else weights.inner[:0]
    return torch.cat([weights.starts(BLOCK // one_of), last])
