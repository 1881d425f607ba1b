"""Collections of tensors as one real vector space.

Here, and only here, complexness, dtype and memory layout are met: a complex entry is two real coordinates, and every
coordinate is held in double precision.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradproof.engine.results import Place

HANDFUL = 32  # entries for which a call of torch takes longer than Python's own arithmetic
SAMPLE = 4096  # entries looked at to learn a tensor's scale
WILD = 30.0  # root mean square over geometric mean, beyond which a tensor has no common scale
SURROUNDINGS = 1 << 16  # entries of a view's base that are copied along with it
BLOCK = 1 << 16  # random numbers drawn one by one; longer directions are products of two draws


@dataclass(frozen=True, slots=True)
class Part:
    """The coordinates of one tensor."""

    path: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    start: int
    stop: int


def real_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of a coordinate before it is widened."""
    return dtype.to_real() if dtype.is_complex else dtype


@functools.cache
def _limits(dtype: torch.dtype) -> tuple[float, float, float]:
    """The spacing of numbers near one, the largest number, and the distance between the smallest."""
    info = torch.finfo(dtype)
    return info.eps, info.max, info.smallest_normal * info.eps


def as_real(tensor: Tensor) -> Tensor:
    """A view with real entries: a complex tensor gains a last dimension of two."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def flat(tensor: Tensor) -> Tensor:
    """One tensor's coordinates."""
    return as_real(tensor.detach()).reshape(-1).to(torch.float64)


class Space:
    """The coordinates of several named tensors, in order."""

    def __init__(self, paths: Sequence[str], tensors: Sequence[Tensor], device: torch.device | None = None) -> None:
        """`device` is where the coordinates are held; by default that of the first tensor."""
        self.parts: list[Part] = []
        start = 0
        for path, tensor in zip(paths, tensors, strict=True):
            stop = start + tensor.numel() * (2 if tensor.is_complex() else 1)
            self.parts.append(Part(path, tuple(tensor.shape), tensor.dtype, tensor.device, start, stop))
            start = stop
        self.size = start
        self.device = device or (tensors[0].device if tensors else torch.device("cpu"))

    @property
    def spans(self) -> list[tuple[int, int]]:
        """The range of coordinates that each tensor holds."""
        return [(part.start, part.stop) for part in self.parts]

    @property
    def labels(self) -> tuple[str, ...]:
        """Each tensor in a few words."""
        return tuple(f"{part.path}: {str(part.dtype).removeprefix('torch.')}{list(part.shape)}" for part in self.parts)

    @property
    def precision(self) -> float:
        """The spacing of numbers near one in the coarsest dtype."""
        return max([_limits(part.dtype)[0] for part in self.parts])

    @property
    def largest(self) -> float:
        """The largest finite number in the dtype that holds the fewest."""
        return min([_limits(part.dtype)[1] for part in self.parts])

    @property
    def tiny(self) -> float:
        """The distance between the smallest numbers of the coarsest dtype."""
        return max([_limits(part.dtype)[2] for part in self.parts])

    def fits(self, tensors: Sequence[Tensor]) -> bool:
        """Whether these tensors have this space's shapes and kinds."""
        return len(tensors) == len(self.parts) and all(
            tensor.shape == part.shape and tensor.is_complex() == part.dtype.is_complex
            for tensor, part in zip(tensors, self.parts, strict=True)
        )

    def coordinates(self, tensors: Sequence[Tensor]) -> Tensor:
        """All coordinates, as one vector; shares memory with a single real double-precision tensor."""
        if len(tensors) == 1:
            return flat(tensors[0]).to(self.device)
        return torch.cat([flat(tensor).to(self.device) for tensor in tensors])

    def tensors(self, vector: Tensor) -> list[Tensor]:
        """The tensors with these coordinates."""
        return [self._tensor(vector, part) for part in self.parts]

    def displaced(
        self, tensors: Sequence[Tensor], steps: Sequence[Tensor], t: float, memory: Sequence[Tensor] | None
    ) -> list[Tensor]:
        """These tensors plus t times a direction, in new memory or in that given, with the strides of these."""
        outs: Sequence[Tensor | None] = memory or [None] * len(tensors)
        return [_displaced(tensor, step, t, out) for tensor, step, out in zip(tensors, steps, outs, strict=True)]

    def random(self, seed: int, size: float = 1.0) -> Tensor:
        """Signs times magnitudes in [½, 1] of a size: they never shrink a lone error much, nor cancel several."""
        generator = torch.Generator("cpu").manual_seed(seed)
        if self.size <= BLOCK:
            vector = _signed((self.size,), _HALF, generator)
            return (vector if size == 1 else vector.mul_(size)).to(self.device)
        outer = _signed((-(-self.size // BLOCK), 1), _ROOT, generator).mul_(size).to(self.device)
        inner = _signed((1, BLOCK), _ROOT, generator).to(self.device)
        return (outer * inner).view(-1)[: self.size]

    def locate(self, coordinate: int) -> Place:
        """The user's name for a coordinate."""
        part = next(part for part in self.parts if part.start <= coordinate < part.stop)
        offset, component = coordinate - part.start, None
        if part.dtype.is_complex:
            offset, imaginary = divmod(offset, 2)
            component = "imag" if imaginary else "real"
        index: list[int] = []
        for length in reversed(part.shape):
            offset, position = divmod(offset, length)
            index.insert(0, position)
        return Place(path=part.path, index=tuple(index), part=component)

    def _tensor(self, vector: Tensor, part: Part) -> Tensor:
        piece = vector[part.start : part.stop].to(device=part.device, dtype=real_dtype(part.dtype))
        if part.dtype.is_complex:
            piece = piece.clone() if piece.storage_offset() % 2 else piece  # a complex number starts at an even place
            return torch.view_as_complex(piece.view(*part.shape, 2))
        return piece.view(part.shape)


def scale_of(tensor: Tensor, device: torch.device | str = "cpu") -> Tensor | float:
    """The size of step that is small but visible: one for the whole tensor, or one an entry where sizes differ wildly.

    >>> scale_of(torch.tensor([3.0, -4.0])) > 3
    True
    >>> scale_of(torch.tensor([0.0, 1e-9, 1e9])).shape
    torch.Size([3])
    """
    coordinates = as_real(tensor.detach()).reshape(-1)
    if coordinates.numel() <= HANDFUL and (common := _common_scale(coordinates.tolist())):
        return common
    stride = coordinates.numel() // SAMPLE
    sample = (coordinates[::stride] if stride > 1 else coordinates).to(torch.float64).abs()
    root, middle = _sizes(sample)
    if not (math.isfinite(root) and middle > 0):
        sample = sample[(sample > 0) & sample.isfinite()]
        if not sample.numel():
            return 1.0
        root, middle = _sizes(sample)
    if root <= WILD * middle:
        return root
    entries = coordinates.to(torch.float64).abs()
    return torch.where((entries > 0) & entries.isfinite(), entries, middle).to(device)


def _common_scale(entries: list[float]) -> float | None:
    """The root mean square of a few numbers of like size; None where there is more to say."""
    if not entries:
        return 1.0
    if not all(entries) or not math.isfinite(sum(map(abs, entries))):
        return None
    root = math.sqrt(math.fsum([entry * entry for entry in entries]) / len(entries))
    middle = math.exp(math.fsum(map(math.log, map(abs, entries))) / len(entries))
    return root if 0 < root <= WILD * middle and root < math.inf else None


def _sizes(sample: Tensor) -> tuple[float, float]:
    """The root mean square and the geometric mean."""
    if not sample.numel():
        return math.nan, 0.0
    root = float(torch.linalg.vector_norm(sample)) / math.sqrt(sample.numel())
    return root, math.exp(min(700.0, float(sample.log().mean())))


def replica(tensor: Tensor) -> Tensor:
    """A copy with private memory and the very same strides, overlapping ones too.

    A view keeps what surrounds it, if that is not much, for functions that look beyond the view.
    """
    tensor = tensor.detach()
    if fills_its_storage(tensor):
        return tensor.clone()
    surroundings = tensor.untyped_storage().nbytes() // tensor.element_size()
    if surroundings <= max(SURROUNDINGS, 2 * tensor.numel()):
        memory = tensor.as_strided((surroundings,), (1,), 0).clone()
        return memory.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
    extent = 1 + sum((length - 1) * stride for length, stride in zip(tensor.shape, tensor.stride(), strict=True))
    memory = tensor.as_strided((extent,), (1,)).clone()
    return memory.as_strided(tensor.shape, tensor.stride(), 0)


def same_numbers(before: Tensor, after: Tensor) -> bool:
    """Whether two tensors are of one form and hold the same numbers, NaN where NaN."""
    if before.shape != after.shape or before.dtype != after.dtype:
        return False
    before, after = as_real(before.detach()), as_real(after.detach())
    return torch.equal(before, after) or bool(((before == after) | ((before != before) & (after != after))).all())


def fills_its_storage(tensor: Tensor) -> bool:
    """Whether the memory holds the tensor's entries in order, and nothing else."""
    return (
        tensor.layout != torch.strided
        or not tensor.numel()
        or (tensor.is_contiguous() and tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size())
    )


def _overlaps(tensor: Tensor) -> bool:
    """Whether two entries may lie in one place: a stride steps over less than the dimensions within it fill."""
    filled = 1
    for stride, length in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if length > 1:
            if stride < filled:
                return True
            filled += stride * (length - 1)
    return False


def _signed(shape: tuple[int, ...], least: Tensor, generator: torch.Generator) -> Tensor:
    centred = torch.rand(shape, generator=generator, dtype=torch.float64, device="cpu").sub_(0.5)
    return torch.copysign(least, centred).add_(centred, alpha=2 * (1 - float(least)))


_HALF = torch.tensor(0.5, dtype=torch.float64, device="cpu")
_ROOT = torch.tensor(math.sqrt(0.5), dtype=torch.float64, device="cpu")


def _displaced(tensor: Tensor, step: Tensor, t: float, out: Tensor | None) -> Tensor:
    if fills_its_storage(tensor) or _overlaps(tensor) or tensor.is_conj() or tensor.is_neg():
        if not tensor.is_complex():
            return torch.add(tensor, step, alpha=t, out=out)
        point, step = as_real(tensor), as_real(step)
        return torch.view_as_complex(torch.add(point, step, alpha=t, out=None if out is None else as_real(out)))
    copy = replica(tensor)
    as_real(copy).add_(as_real(step), alpha=t)
    return copy
