"""Sparse tensors that are converted, masked, multiplied and trained, with gradients on their stored entries."""

from gradproof.sparse.autograd.aggregation import aggregate
from gradproof.sparse.autograd.assembly import add, block_diagonal, concatenate, merged, select
from gradproof.sparse.autograd.attention import attention
from gradproof.sparse.autograd.conversions import convert, mask, repack, unpack
from gradproof.sparse.autograd.products import matmul, sampled_matmul
from gradproof.sparse.autograd.reductions import column_sums, multiply, row_softmax, row_sums
from gradproof.sparse.autograd.solve import solve
from gradproof.sparse.nn.dynamic import change_pattern_, drop_and_grow_, full_gradient, prune_
from gradproof.sparse.nn.graph_attention import GraphAttention
from gradproof.sparse.nn.graph_convolution import GraphConvolution
from gradproof.sparse.nn.initialization import fan_in, scaled_by_fan_in_
from gradproof.sparse.nn.linear import SparseLinear
from gradproof.sparse.optim.clipping import clip_grad_norm_, clip_grad_value_
from gradproof.sparse.optim.optimizers import optimizer, values_parameter
from gradproof.sparse.optim.steps import apply_gradient_
from gradproof.sparse.pattern import Pattern

__all__ = [
    "GraphAttention",
    "GraphConvolution",
    "Pattern",
    "SparseLinear",
    "add",
    "aggregate",
    "apply_gradient_",
    "attention",
    "block_diagonal",
    "change_pattern_",
    "clip_grad_norm_",
    "clip_grad_value_",
    "column_sums",
    "concatenate",
    "convert",
    "drop_and_grow_",
    "fan_in",
    "full_gradient",
    "mask",
    "matmul",
    "merged",
    "multiply",
    "optimizer",
    "prune_",
    "repack",
    "row_softmax",
    "row_sums",
    "sampled_matmul",
    "scaled_by_fan_in_",
    "select",
    "solve",
    "unpack",
    "values_parameter",
]
