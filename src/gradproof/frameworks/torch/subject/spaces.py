"""Collections of tensors as one real vector space: coordinates in double precision, a chart for each tensor."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gradproof.engine.results import Place
from gradproof.engine.subject import DerivativeError
from gradproof.frameworks.torch.charts import Chart, Strided
from gradproof.frameworks.torch.internals import is_zero_tensor
from gradproof.frameworks.torch.storage import real_dtype

PYTHON_ENTRIES = 32  # entries for which a call of torch takes longer than Python's own arithmetic
SCALE_SAMPLE = 4096  # entries looked at to learn a tensor's scale
WILD = 30.0  # root mean square over geometric mean, beyond which a tensor has no common scale
LOG_LARGEST = 709.7  # of numbers in double precision
BLOCK = 1 << 16  # random numbers drawn one by one; longer directions are products of two draws


@dataclass(frozen=True, slots=True)
class ChartedTensor:
    """The coordinates of one tensor."""

    path: str
    chart: Chart
    dtype: torch.dtype
    device: torch.device
    start: int
    stop: int

    @property
    def label(self) -> str:
        """The path, dtype and shape of the tensor."""
        words = self.chart.words()
        kind = f"{str(self.dtype).removeprefix('torch.')}{list(self.chart.shape)}"
        return f"{self.path}: {kind}" + (f" ({words})" if words else "")


@functools.cache
def _limits(dtype: torch.dtype) -> tuple[float, float, float]:
    """Return the spacing of numbers near one, the largest number, and the spacing of the smallest numbers."""
    info = torch.finfo(dtype)
    return info.eps, info.max, info.smallest_normal * info.eps


class Space:
    """The coordinates of several named tensors, in order."""

    def __init__(
        self,
        paths: Sequence[str],
        tensors: Sequence[Tensor],
        charts: Sequence[Chart],
        device: torch.device | None = None,
    ) -> None:
        """Hold the coordinates on `device`, by default that of the first tensor."""
        self.parts: list[ChartedTensor] = []
        self.size = 0
        self.precision = 0.0  # the spacing of numbers near one, the coarsest
        self.largest = math.inf  # the largest number that all dtypes can hold
        self.tiny = 0.0  # distance between the smallest numbers
        self.strided = True  # nothing but strided tensors
        for path, tensor, chart in zip(paths, tensors, charts, strict=True):
            start, self.size = self.size, self.size + chart.size
            self.parts.append(ChartedTensor(path, chart, tensor.dtype, tensor.device, start, self.size))
            precision, largest, tiny = _limits(tensor.dtype)
            self.precision, self.tiny = max(self.precision, precision), max(self.tiny, tiny)
            self.largest = min(self.largest, largest)
            self.strided = self.strided and isinstance(chart, Strided)
        self.device = device or (tensors[0].device if tensors else torch.device("cpu"))

    @property
    def spans(self) -> list[tuple[int, int]]:
        """The range of coordinates that each tensor holds."""
        return [(part.start, part.stop) for part in self.parts]

    @property
    def gathered(self) -> bool:
        """Whether coordinates have to be copied from the tensors, as the stored values of sparse tensors have to be."""
        return not self.strided

    @property
    def entries(self) -> int:
        """The number of coordinates without those that are internal to a chart."""
        return self.size - sum([part.chart.hidden for part in self.parts])

    @property
    def labels(self) -> tuple[str, ...]:
        """The path, dtype and shape of each tensor."""
        return tuple([part.label for part in self.parts])

    @property
    def remarks(self) -> list[str]:
        """The notes of the charts."""
        return [remark for part in self.parts for remark in part.chart.remarks(part.path)]

    def fits(self, tensors: Sequence[Tensor]) -> bool:
        """Return True if these tensors have the shapes and layouts of this space."""
        if len(tensors) != len(self.parts):
            return False
        return False not in [part.chart.fits(tensor) for part, tensor in zip(self.parts, tensors, strict=True)]

    def coordinates(self, tensors: Sequence[Tensor | None]) -> Tensor:
        """Return all coordinates as one vector, zeros for None; a single tensor of real doubles shares its memory."""
        pieces = [self._coordinates(part, tensor) for part, tensor in zip(self.parts, tensors, strict=True)]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)

    def read(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return the coordinates of each tensor in its own precision, sharing its memory where they can."""
        return [part.chart.read(tensor) for part, tensor in zip(self.parts, tensors, strict=True)]

    def tensors(self, vector: Tensor) -> list[Tensor]:
        """Return the tensors with these coordinates."""
        return [self._tensor(vector, part) for part in self.parts]

    def rounded(self, vector: Any) -> Any:
        """Return a vector, of torch's or NumPy's, as the tensors' own precision holds it."""
        if isinstance(vector, Tensor):
            return self.coordinates(self.tensors(vector))
        return self.coordinates(self.tensors(torch.from_numpy(vector))).numpy(force=True).copy()

    def displaced(
        self, tensors: Sequence[Tensor], steps: Sequence[Tensor], t: float, memory: Sequence[Tensor] | None
    ) -> list[Tensor]:
        """Return these tensors plus t times a direction, with the same strides, in new memory or in `memory`."""
        outs: Sequence[Tensor | None] = memory or [None] * len(tensors)
        rows = zip(self.parts, tensors, steps, outs, strict=True)
        return [part.chart.moved(tensor, step, t, out) for part, tensor, step, out in rows]

    def random(self, seed: int, size: float = 1.0) -> Tensor:
        """Draw random signs times magnitudes in [½, 1]·size, so that a lone error shows at half its size or more."""
        if self.size <= PYTHON_ENTRIES:
            return torch.tensor(_handful(self.size, seed, size), dtype=torch.float64, device=self.device)
        generator = torch.Generator(self.device if self.device.type == "cuda" else "cpu").manual_seed(seed)
        if self.size > BLOCK:
            outer = _signed((-(-self.size // BLOCK), 1), _ROOT, generator).mul_(size).to(self.device)
            return (outer * _signed((1, BLOCK), _ROOT, generator).to(self.device)).view(-1)[: self.size]
        vector = _signed((self.size,), _HALF, generator)
        return (vector if size == 1 else vector.mul_(size)).to(self.device)

    def direction(self, seed: int, origins: Iterable[Tensor], lengths: Sequence[Tensor | float]) -> Tensor:
        """Draw a random direction with a length for each tensor, such that the origins plus it are representable."""
        common = lengths[0] if len(lengths) == 1 and isinstance(lengths[0], float) else 1.0
        vector = self.random(seed, common)
        for part, origin, length in zip(self.parts, origins, lengths, strict=True):
            piece = vector[part.start : part.stop]
            if length is not common:
                piece.mul_(length)
            point = origin.to(piece.device)
            if point.dtype == piece.dtype:
                piece.add_(point).sub_(point)
            else:
                piece.copy_((point + piece.to(point.dtype)).sub_(point))
        if not math.isfinite(float(vector.sum())):
            vector.copy_(torch.where(torch.isfinite(vector), vector, 0.0))  # infinite inputs stay where they are
        return vector

    def locate(self, coordinate: int) -> Place:
        """Return the tensor and the entry that a coordinate belongs to."""
        part = next(part for part in self.parts if part.start <= coordinate < part.stop)
        offset, component = coordinate - part.start, None
        if part.dtype.is_complex:
            offset, imaginary = divmod(offset, 2)
            component = "imag" if imaginary else "real"
        index, stored = part.chart.index(offset)
        return Place(path=part.path, index=index, part=component, stored=stored)

    def _coordinates(self, part: ChartedTensor, tensor: Tensor | None) -> Tensor:
        if tensor is None:
            return torch.zeros(part.stop - part.start, dtype=torch.float64, device=self.device)
        try:
            read = part.chart.read(tensor).to(self.device, torch.float64)
            return read.clone() if is_zero_tensor(read) else read  # the engine writes to what it is given
        except DerivativeError as error:
            error.path = part.path
            raise

    def _tensor(self, vector: Tensor, part: ChartedTensor) -> Tensor:
        piece = vector[part.start : part.stop].to(device=part.device, dtype=real_dtype(part.dtype))
        return part.chart.make(piece)


def scale_of(coordinates: Tensor, device: torch.device | str = "cpu") -> Tensor | float:
    """Return the scale of coordinates: one for all, or one for each if their sizes differ widely.

    >>> scale_of(torch.tensor([3.0, -4.0])) > 3
    True
    >>> scale_of(torch.tensor([0.0, 1e-9, 1e9])).shape
    torch.Size([3])
    """
    if coordinates.numel() <= PYTHON_ENTRIES and (common := _common_scale(coordinates.tolist())):
        return common
    stride = coordinates.numel() // SCALE_SAMPLE
    sample = (coordinates[::stride] if stride > 1 else coordinates).cpu().to(torch.float64).abs()  # one transfer
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
    """Return the root mean square of a few numbers of similar size; None if some are zero, infinite or far off."""
    if not entries:
        return 1.0
    if not all(entries) or not math.isfinite(sum(map(abs, entries))):
        return None
    largest = max(map(abs, entries))
    root = largest * math.sqrt(math.fsum([(entry / largest) ** 2 for entry in entries]) / len(entries))
    middle = math.exp(math.fsum(map(math.log, map(abs, entries))) / len(entries))
    return root if 0 < root <= WILD * middle and root < math.inf else None


def _sizes(sample: Tensor) -> tuple[float, float]:
    """Return the root mean square and the geometric mean."""
    if not sample.numel():
        return math.nan, 0.0
    greatest = sample.max()
    numbers = torch.stack([greatest, torch.linalg.vector_norm(sample / greatest), sample.log().mean()])  # one transfer
    largest, norm, log = numbers.tolist()
    if not 0 < largest < math.inf:
        return math.nan, 0.0
    return largest * (norm / math.sqrt(sample.numel())), math.exp(min(LOG_LARGEST, log))


def _handful(count: int, seed: int, size: float) -> list[float]:
    draw = random.Random(seed).random
    return [size * (centred + math.copysign(0.5, centred)) for centred in [draw() - 0.5 for _ in range(count)]]


def _signed(shape: tuple[int, ...], least: float, generator: torch.Generator) -> Tensor:
    """Draw random signs times magnitudes in [least, 1] on the generator's device."""
    centred = torch.rand(shape, generator=generator, dtype=torch.float64, device=generator.device).sub_(0.5)
    return centred.sign().mul_(least).add_(centred, alpha=2 * (1 - least))


_HALF, _ROOT = 0.5, math.sqrt(0.5)
