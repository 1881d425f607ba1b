"""Linear functions of a sparse tensor in any layout, whose backward is given: right, or wrong in a way of one's own.

An entry's weight depends on where it is, so that no entry can be taken for another. Where the values of a tensor lie is
learnt from torch's own conversions.
"""

import math
from dataclasses import dataclass

import torch

DENSE, SPARSE = "dense output", "sparse output"


def values_of(tensor):
    tensor = tensor.detach()
    return tensor._values() if tensor.layout == torch.sparse_coo else tensor.values()


def indices_of(tensor):
    if tensor.layout == torch.sparse_coo:
        return (tensor._indices(),)
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return tensor.crow_indices(), tensor.col_indices()
    return tensor.ccol_indices(), tensor.row_indices()


def with_values(tensor, values):
    """The same pattern with other values."""
    indices = indices_of(tensor)
    if tensor.layout == torch.sparse_coo:
        return torch.sparse_coo_tensor(
            *indices, values, tensor.shape, is_coalesced=tensor.is_coalesced(), check_invariants=False
        )
    return torch.sparse_compressed_tensor(*indices, values, tensor.shape, layout=tensor.layout, check_invariants=False)


KNOWN = {}  # the places of a pattern, looked up once


def places_of(tensor):
    """The number, row by row, of the entry that each stored value belongs to."""
    pattern = (tensor.layout, tensor.shape, *(part.numpy().tobytes() for part in indices_of(tensor)))
    if pattern not in KNOWN:
        KNOWN[pattern] = _places(tensor)
    return KNOWN[pattern]


def _places(tensor):
    values = values_of(tensor)
    if tensor.layout == torch.sparse_coo:
        numbers = torch.arange(math.prod(tensor.shape)).reshape(tensor.shape)
        return numbers[tuple(tensor._indices())].reshape(-1)
    order = torch.arange(1, values.numel() + 1, dtype=torch.float64).reshape(values.shape)
    spread = with_values(tensor, order).to_dense().reshape(-1)
    return spread.argsort(descending=True)[: values.numel()].flip(0)


def everywhere(tensor):
    """The tensor's layout with every entry stored."""
    return _like(torch.ones(tensor.shape, dtype=torch.float64), tensor)


def transposed(tensor):
    """The pattern of the last two dimensions exchanged."""
    ones = with_values(once(tensor), torch.ones_like(values_of(once(tensor))))
    return _like(ones.to_dense().transpose(-1, -2), tensor)


def once(tensor):
    """The pattern with every entry stored once."""
    return tensor.detach().coalesce() if tensor.layout == torch.sparse_coo else tensor.detach()


def filled(pattern, dense):
    """What a dense tensor holds on a pattern."""
    return with_values(pattern, dense.reshape(-1)[places_of(pattern)].reshape(values_of(pattern).shape))


def _like(dense, tensor):
    if tensor.layout == torch.sparse_coo:
        return dense.to_sparse(tensor.sparse_dim())
    blocked = tensor.layout in (torch.sparse_bsr, torch.sparse_bsc)
    block = tuple(tensor.values().shape[-2:]) if blocked else None
    return dense.to_sparse(layout=tensor.layout, blocksize=block)


def weights(shape):
    return torch.linspace(0.5, 2.5, math.prod(shape), dtype=torch.float64).reshape(shape)


@dataclass(frozen=True)
class Rule:
    """The weighted entries, or their sums along the last dimension, with a backward.

    `backward(gradient, tensor)` makes what is returned from the dense gradient of all entries, which is right.
    """

    output: str
    backward: callable

    def __call__(self, tensor):
        return _Weighted.apply(tensor, self)


class _Weighted(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, rule):
        ctx.save_for_backward(tensor)
        ctx.rule = rule
        ctx.set_materialize_grads(False)  # torch has no zeros of the blocked layouts
        places = places_of(tensor)
        weighted = weights(tensor.shape).reshape(-1)[places] * values_of(tensor).reshape(-1)
        if rule.output == SPARSE:
            return with_values(tensor, weighted.reshape(values_of(tensor).shape))
        rows = tensor.new_zeros(tensor.shape[:-1], layout=torch.strided).reshape(-1)
        return rows.index_add(0, places // tensor.shape[-1], weighted).reshape(tensor.shape[:-1])

    @staticmethod
    def backward(ctx, incoming):
        if incoming is None:
            return None, None
        (tensor,) = ctx.saved_tensors
        incoming = incoming.to_dense() if ctx.rule.output == SPARSE else incoming.unsqueeze(-1)
        return ctx.rule.backward(weights(tensor.shape) * incoming, tensor), None


def coordinates(indices, values, shape, **options):
    return torch.sparse_coo_tensor(
        indices, torch.as_tensor(values, dtype=torch.float64), shape, check_invariants=True, **options
    )


def compressed(layout, lines, plain, values, shape):
    return torch.sparse_compressed_tensor(
        torch.tensor(lines),
        torch.tensor(plain),
        torch.as_tensor(values, dtype=torch.float64),
        shape,
        layout=layout,
        check_invariants=True,
    )


def blocks(count):
    return torch.linspace(0.4, 1.9, 4 * count, dtype=torch.float64).reshape(count, 2, 2)


POINTS = {  # each beside the entry in which it is to be wrong, which is stored
    "COO": (coordinates([[0, 0, 2, 3], [1, 3, 0, 3]], [0.5, -1.5, 2.0, 0.7], (4, 4), is_coalesced=True), (2, 0)),
    "uncoalesced COO": (coordinates([[2, 0, 0, 2], [0, 3, 1, 0]], [0.5, -1.5, 2.0, 0.7], (4, 4)), (0, 3)),
    "hybrid COO": (coordinates([[0, 3]], torch.linspace(0.5, 2, 8).reshape(2, 4), (4, 4), is_coalesced=True), (3, 1)),
    "CSR": (compressed(torch.sparse_csr, [0, 2, 2, 3, 4], [1, 3, 0, 3], [0.5, -1.5, 2.0, 0.7], (4, 4)), (2, 0)),
    "CSC": (compressed(torch.sparse_csc, [0, 2, 2, 3, 4], [1, 3, 0, 3], [0.5, -1.5, 2.0, 0.7], (4, 4)), (0, 2)),
    "BSR": (compressed(torch.sparse_bsr, [0, 2, 2], [0, 1], blocks(2), (4, 4)), (1, 2)),
    "BSC": (compressed(torch.sparse_bsc, [0, 2, 2], [0, 1], blocks(2), (4, 4)), (3, 1)),
    "batched CSR": (
        compressed(
            torch.sparse_csr,
            [[0, 1, 1, 2], [0, 0, 2, 2]],
            [[1, 0], [0, 2]],
            [[0.5, -1.5], [2.0, 0.7]],
            (2, 3, 3),
        ),
        (1, 1, 2),
    ),
}


def sparse_point(name):
    return POINTS[name][0].clone().requires_grad_()


def stored_indices(tensor):
    """The index of every stored entry, each once."""
    numbers = places_of(tensor).unique()
    return set(zip(*(axis.tolist() for axis in torch.unravel_index(numbers, tensor.shape)), strict=True))


def place_outside(name):
    """The index of an entry that is not stored."""
    tensor = POINTS[name][0]
    numbers = [number for number in range(math.prod(tensor.shape)) if number not in places_of(tensor).tolist()]
    return tuple(int(axis) for axis in torch.unravel_index(torch.tensor(numbers[len(numbers) // 2]), tensor.shape))
