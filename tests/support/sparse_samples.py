"""Sparse tensors of every layout, each beside the dense tensor that it means, built entry by entry.

Nothing here asks the code under test, or torch's conversions, where an entry lies.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
from hypothesis import settings
from hypothesis import strategies as st

from support.layouts import LAYOUTS

EXAMPLES_OF_EACH = settings(max_examples=25)

BY_ROW = ("CSR", "BSR")


@dataclass(frozen=True)
class Form:
    """A layout, and how the dimensions of a shape are shared out in it."""

    layout: str
    batch: tuple[int, ...]
    sparse: tuple[int, ...]  # cells, not entries
    block: tuple[int, ...] = ()
    dense: tuple[int, ...] = ()
    index: torch.dtype = torch.int64

    @property
    def shape(self):
        lengths = [length * size for length, size in zip(self.sparse, self.block, strict=True)] if self.block else None
        return (*self.batch, *(lengths or self.sparse), *self.dense)

    @property
    def payload(self):
        return self.block + self.dense

    def cells(self):
        """All cells of one batch, row by row."""
        return list(itertools.product(*map(range, self.sparse)))

    def batches(self):
        return list(itertools.product(*map(range, self.batch)))


@dataclass(frozen=True)
class Sample:
    """A sparse tensor and the dense one that it means; `stored` are the cells of each batch, in the order stored."""

    form: Form
    tensor: torch.Tensor
    dense: torch.Tensor
    stored: list

    def entries(self):
        """The index of every stored entry, in the order of the values."""
        for batch, cells in zip(self.form.batches(), self.stored, strict=True):
            for cell in cells:
                for within in itertools.product(*map(range, self.form.payload)):
                    yield (*batch, *entry(self.form, cell, within))


def entry(form, cell, within):
    """The index in one batch of what lies at a place in a cell."""
    step, rest = within[: len(form.block)], within[len(form.block) :]
    if form.block:
        cell = tuple(place * size + more for place, size, more in zip(cell, form.block, step, strict=True))
    return (*cell, *rest)


def build(form, stored, *, seed=0, dtype=torch.float64, zeros=False):
    """The tensor of a form that stores these cells (one list a batch), with random values, some zero if wanted."""
    generator = torch.Generator().manual_seed(seed)
    stored = [_in_order(form, cells) for cells in stored]
    values = torch.randn((len(stored), len(stored[0]) if stored else 0, *form.payload), generator=generator).to(dtype)
    if dtype.is_complex:
        values = values + 1j * torch.randn(values.shape, generator=generator)
    if zeros and values.shape[1]:
        values[:, 0] = 0
    dense = torch.zeros(form.shape, dtype=dtype)
    for number, (batch, cells) in enumerate(zip(form.batches(), stored, strict=True)):
        for cell, value in zip(cells, values[number], strict=True):
            for within in itertools.product(*map(range, form.payload)):
                dense[(*batch, *entry(form, cell, within))] += value[within]
    make = _coordinates if form.layout == "COO" else _compressed
    return Sample(form, make(form, stored, values.to(dtype)), dense, stored)


def _in_order(form, cells):
    if form.layout == "COO":
        return list(cells)
    return sorted(cells, key=lambda cell: cell if form.layout in BY_ROW else cell[::-1])


def _coordinates(form, stored, values):
    cells = stored[0]
    indices = torch.tensor(cells, dtype=torch.int64).reshape(len(cells), len(form.sparse)).T.contiguous()
    coalesced = cells == sorted(set(cells))
    return torch.sparse_coo_tensor(indices, values[0], form.shape, is_coalesced=coalesced, check_invariants=True)


def _compressed(form, stored, values):
    by_row = form.layout in BY_ROW
    lines = form.sparse[0 if by_row else 1]
    compressed, plain = [], []
    for cells in stored:
        lines_of = [cell[0 if by_row else 1] for cell in cells]
        compressed.append([sum(line < end for line in lines_of) for end in range(lines + 1)])
        plain.append([cell[1 if by_row else 0] for cell in cells])
    count = values.shape[1]
    return torch.sparse_compressed_tensor(
        torch.tensor(compressed, dtype=form.index).reshape(*form.batch, lines + 1),
        torch.tensor(plain, dtype=form.index).reshape(*form.batch, count),
        values.reshape(*form.batch, count, *form.payload),
        form.shape,
        layout=LAYOUTS[form.layout],
        check_invariants=True,
    )


@st.composite
def forms(draw, shape, layout):
    """How a shape may be held in a layout."""
    return draw(_forms(shape, layout))


@st.composite
def _forms(draw, shape, layout):
    if layout == "COO":
        leading = draw(st.integers(1, len(shape)))
        return Form(layout, (), shape[:leading], (), shape[leading:])
    first = draw(st.integers(0, len(shape) - 2))
    matrix, block = shape[first : first + 2], ()
    if layout in ("BSR", "BSC"):
        block = tuple(draw(st.sampled_from([n for n in (1, 2, 3) if length % n == 0])) for length in matrix)
        matrix = tuple(length // size for length, size in zip(matrix, block, strict=True))
    index = draw(st.sampled_from([torch.int32, torch.int64]))
    return Form(layout, shape[:first], matrix, block, shape[first + 2 :], index)


@st.composite
def samples_of(draw, form, *, dtypes=(torch.float64,), duplicates=True):
    """Tensors of a form, with any number of stored cells, explicit zeros, and duplicates where they may be."""
    cells = form.cells()
    count = draw(st.integers(0, min(len(cells), 6)))
    stored = [draw(st.permutations(cells))[:count] for _ in form.batches()]
    if form.layout == "COO":
        if duplicates and count and draw(st.booleans()):
            stored = [stored[0] + draw(st.lists(st.sampled_from(stored[0]), min_size=1, max_size=3))]
        elif draw(st.booleans()):
            stored = [sorted(stored[0])]
    return build(
        form, stored, seed=draw(st.integers(0, 99)), dtype=draw(st.sampled_from(dtypes)), zeros=draw(st.booleans())
    )


def shapes(least=2):
    """Shapes of up to four dimensions, of lengths zero and one too."""
    return st.lists(st.sampled_from([0, 1, 2, 3, 4]), min_size=least, max_size=4).map(tuple)


@st.composite
def samples(draw, layouts=tuple(LAYOUTS), least=2, **options):
    """Tensors of any shape and form."""
    form = draw(forms(draw(shapes(least)), draw(st.sampled_from(layouts))))
    return draw(samples_of(form, **options))


@st.composite
def pairs(draw, one, other):
    """Two tensors of one shape in two layouts."""
    shape = draw(shapes())
    return tuple(draw(samples_of(draw(forms(shape, layout)))) for layout in (one, other))


EXAMPLES = {
    "COO": (Form("COO", (), (4, 6)), [[(0, 1), (0, 5), (2, 2), (3, 0)]]),
    "uncoalesced COO": (Form("COO", (), (4, 6)), [[(2, 2), (0, 1), (3, 5), (0, 1), (0, 0), (2, 2)]]),
    "hybrid COO": (Form("COO", (), (4,), dense=(3,)), [[(0,), (3,)]]),
    "CSR": (Form("CSR", (), (4, 6)), [[(0, 1), (0, 5), (2, 2), (3, 0)]]),
    "int32 CSR": (Form("CSR", (), (4, 6), index=torch.int32), [[(0, 1), (0, 5), (2, 2), (3, 0)]]),
    "hybrid CSR": (Form("CSR", (), (4, 6), dense=(2,)), [[(1, 1), (0, 5), (2, 2)]]),
    "batched CSR": (Form("CSR", (2,), (3, 4)), [[(0, 1), (2, 2)], [(0, 0), (0, 3)]]),
    "CSC": (Form("CSC", (), (4, 6)), [[(0, 1), (0, 5), (2, 2), (3, 0)]]),
    "batched CSC": (Form("CSC", (2,), (3, 4)), [[(0, 1), (2, 2)], [(0, 0), (0, 3)]]),
    "BSR": (Form("BSR", (), (2, 3), (2, 2)), [[(0, 1), (1, 0), (1, 2)]]),
    "batched BSR": (Form("BSR", (2,), (2, 2), (2, 3)), [[(0, 1), (1, 0)], [(0, 0), (0, 1)]]),
    "BSC": (Form("BSC", (), (2, 3), (2, 1)), [[(0, 1), (1, 0), (1, 2)]]),
}


def example(name, **options):
    """One tensor of each kind, by name."""
    form, stored = EXAMPLES[name]
    return build(form, stored, **options)
