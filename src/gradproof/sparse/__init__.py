"""Sparse tensors that are converted, masked, multiplied and trained, with gradients on their stored entries."""

from gradproof.sparse.clipping import clip_grad_norm_, clip_grad_value_
from gradproof.sparse.conversion import Form, convert, mask, repack, unpack
from gradproof.sparse.entries import assemble, entries
from gradproof.sparse.graphs import GraphConvolution
from gradproof.sparse.initialisation import fan_in, scaled_by_fan_in_
from gradproof.sparse.layers import SparseLinear
from gradproof.sparse.optimisers import optimiser, values_parameter
from gradproof.sparse.pattern import Pattern
from gradproof.sparse.products import matmul, sampled_matmul
from gradproof.sparse.reductions import column_sums, multiply, row_softmax, row_sums
from gradproof.sparse.steps import apply_gradient_

__all__ = [
    "Form",
    "GraphConvolution",
    "Pattern",
    "SparseLinear",
    "apply_gradient_",
    "assemble",
    "clip_grad_norm_",
    "clip_grad_value_",
    "column_sums",
    "convert",
    "entries",
    "fan_in",
    "mask",
    "matmul",
    "multiply",
    "optimiser",
    "repack",
    "row_softmax",
    "row_sums",
    "sampled_matmul",
    "scaled_by_fan_in_",
    "unpack",
    "values_parameter",
]
