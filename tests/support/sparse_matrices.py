"""Sparse matrices of every layout with the same entries, single and in batches."""

import torch

from support import layouts

LAYOUTS = {name.lower(): layout for name, layout in layouts.LAYOUTS.items()}
BLOCKS = (2, 3)
ROWS, COLUMNS = 4, 6


def dense_matrix(dtype=torch.float64, *, batch=(), dense=()):
    """A matrix with zeros, whole blocks of them, and an empty row; as many entries in each matrix of a batch."""
    mask = torch.tensor(
        [[1, 0, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 1], [1, 0, 0, 1, 1, 0]], dtype=torch.bool
    )
    shape = (*batch, ROWS, COLUMNS, *dense)
    values = torch.randn(shape, dtype=dtype)
    return values * mask.reshape(*[1] * len(batch), ROWS, COLUMNS, *[1] * len(dense))


def sparse_matrix(layout, dtype=torch.float64, *, batch=(), dense=()):
    """A sparse tensor of this layout, a leaf that requires grad."""
    whole = dense_matrix(dtype, batch=batch, dense=dense)
    blocksize = BLOCKS if layout in ("bsr", "bsc") else None
    sparse = whole.to_sparse(layout=LAYOUTS[layout], blocksize=blocksize, dense_dim=len(dense))
    return sparse.coalesce().requires_grad_() if layout == "coo" else sparse.requires_grad_()


def stored_mask(sparse):
    """Where a sparse tensor stores entries, zeros of stored blocks included, by a way that knows no patterns."""
    values = sparse.detach()._values() if sparse.layout == torch.sparse_coo else sparse.detach().values()
    ones = torch.ones_like(values.real if values.is_complex() else values)
    if sparse.layout == torch.sparse_coo:
        marks = torch.sparse_coo_tensor(sparse.detach()._indices(), ones, sparse.shape, check_invariants=True)
    elif sparse.layout in (torch.sparse_csr, torch.sparse_bsr):
        marks = torch.sparse_compressed_tensor(
            sparse.crow_indices(), sparse.col_indices(), ones, sparse.shape, layout=sparse.layout, check_invariants=True
        )
    else:
        marks = torch.sparse_compressed_tensor(
            sparse.ccol_indices(), sparse.row_indices(), ones, sparse.shape, layout=sparse.layout, check_invariants=True
        )
    return marks.to_dense() != 0
