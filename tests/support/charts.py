"""The coordinates of a chart, as tests of charts read them."""

import torch

from gradproof.frameworks.torch.charts import Semantics

DTYPES = (torch.float64, torch.complex128)
MASKED, FULL = Semantics(masked=True), Semantics(masked=False)


def drawn(size, seed=0):
    return torch.randn(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def width(tensor):
    return 2 if tensor.is_complex() else 1


def places(chart, tensor):
    """The index of every coordinate, and whether it is stored."""
    return [chart.index(offset) for offset in range(chart.size // width(tensor))]


def entries(coordinates, tensor):
    """Coordinates as numbers of the tensor's kind."""
    if tensor.is_complex():
        return torch.view_as_complex(coordinates.reshape(-1, 2))
    return coordinates
