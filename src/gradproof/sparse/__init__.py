"""Sparse tensors that are converted, masked, multiplied and trained, with gradients on their stored entries."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gradproof.sparse.autograd.conversions import convert, mask, repack, unpack
    from gradproof.sparse.autograd.products import matmul, sampled_matmul
    from gradproof.sparse.autograd.reductions import column_sums, multiply, row_softmax, row_sums
    from gradproof.sparse.nn.graph_convolution import GraphConvolution
    from gradproof.sparse.nn.initialization import fan_in, scaled_by_fan_in_
    from gradproof.sparse.nn.linear import SparseLinear
    from gradproof.sparse.optim.clipping import clip_grad_norm_, clip_grad_value_
    from gradproof.sparse.optim.optimizers import optimizer, values_parameter
    from gradproof.sparse.optim.steps import apply_gradient_
    from gradproof.sparse.pattern import Pattern
    from gradproof.sparse.step_check import StepReport, check_step

__all__ = [
    "GraphConvolution",
    "Pattern",
    "SparseLinear",
    "StepReport",
    "apply_gradient_",
    "check_step",
    "clip_grad_norm_",
    "clip_grad_value_",
    "column_sums",
    "convert",
    "fan_in",
    "mask",
    "matmul",
    "multiply",
    "optimizer",
    "repack",
    "row_softmax",
    "row_sums",
    "sampled_matmul",
    "scaled_by_fan_in_",
    "unpack",
    "values_parameter",
]
_MODULES = {
    "autograd.conversions": ("convert", "mask", "repack", "unpack"),
    "autograd.products": ("matmul", "sampled_matmul"),
    "autograd.reductions": ("column_sums", "multiply", "row_softmax", "row_sums"),
    "nn.graph_convolution": ("GraphConvolution",),
    "nn.initialization": ("fan_in", "scaled_by_fan_in_"),
    "nn.linear": ("SparseLinear",),
    "optim.clipping": ("clip_grad_norm_", "clip_grad_value_"),
    "optim.optimizers": ("optimizer", "values_parameter"),
    "optim.steps": ("apply_gradient_",),
    "pattern": ("Pattern",),
    "step_check": ("StepReport", "check_step"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for: checks need `sparse.pattern` alone, and layers take a while."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
