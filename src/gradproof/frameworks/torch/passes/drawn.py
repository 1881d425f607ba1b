"""Random vectors that are drawn where they are used, by position: signs times magnitudes of a few binary digits."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK = 1 << 16  # entries: a table of as many factors stays in a processor's cache
COARSE = 4  # binary digits of a factor: a product has eight, which every half precision holds
FINE = 12  # binary digits of a factor: a product has 24, so that a point plus it is exact in double precision
LEAST = 0.7072  # of the factors of a vector, above √½: products lie in [½, 1]
MEAN_SQUARE = ((1 - 2**-1.5) / (3 - 3 * 2**-0.5)) ** 2  # of entries: the factors are uniform in [√½, 1]


@dataclass(frozen=True, slots=True)
class Drawn:
    """A random vector whose entry i is `outer[i // BLOCK] * inner[i % BLOCK]`.

    `outer` is in double precision, `inner` in single precision, which holds its few digits in half the memory.
    """

    outer: Tensor
    inner: Tensor
    size: int

    @classmethod
    def of(cls, size: int, seed: int, device: torch.device, digits: int) -> Drawn:
        """Draw a vector of signs times magnitudes in [½, 1] with twice as many binary digits."""
        generator = torch.Generator(device).manual_seed(seed)
        blocks = math.ceil(size / BLOCK)
        factors = _factors(blocks + min(size, BLOCK), digits, generator)
        return cls(factors[:blocks], factors[blocks:].to(torch.float32), size)

    def times(self, factor: float) -> Drawn:
        """Return a multiple of the vector."""
        return Drawn(self.outer * factor, self.inner, self.size)

    def blocks(self, low: int, high: int, dtype: torch.dtype = torch.float64) -> Tensor:
        """Return the entries of the blocks from `low` to `high`."""
        piece = self.outer[low:high, None].to(dtype) * self.inner.to(dtype)
        return piece.view(-1)[: min(high * BLOCK, self.size) - low * BLOCK]

    def vector(self, dtype: torch.dtype = torch.float64) -> Tensor:
        """Return the whole vector."""
        return self.blocks(0, len(self.outer), dtype)

    def starts(self, count: int) -> Tensor:
        """Return the first `count` entries of every whole block."""
        whole = self.size // BLOCK
        return (self.outer[:whole, None] * self.inner[:count]).view(-1)


def _factors(count: int, digits: int, generator: torch.Generator) -> Tensor:
    most, least = 1 << digits, math.ceil(LEAST * (1 << digits))
    drawn = torch.randint(2 * least, 2 * most + 2, (count,), generator=generator, device=generator.device)
    return (drawn // 2).mul_(1 - 2 * (drawn % 2)).to(torch.float64).mul_(1 / most)
