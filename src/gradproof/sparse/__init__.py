"""Sparse tensors that train: gradients live on the stored entries, and every step leaves the pattern alone."""

from gradproof.sparse.entries import assemble, entries
from gradproof.sparse.pattern import Pattern
from gradproof.sparse.products import matmul, sampled_matmul
from gradproof.sparse.reductions import column_sums, multiply, row_softmax, row_sums

__all__ = [
    "Pattern",
    "assemble",
    "column_sums",
    "entries",
    "matmul",
    "multiply",
    "row_softmax",
    "row_sums",
    "sampled_matmul",
]
