"""First and second derivatives of torch's operators, with its own check: every sample of every operator in float64."""

from __future__ import annotations

import unittest
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import gradcheck, gradgradcheck
from torch.utils._pytree import tree_flatten, tree_unflatten


def function_of(op: Any, sample: Any) -> tuple[Callable[..., Any], tuple[Tensor, ...]]:
    """Return an operator as a function of those of a sample's tensors that require grad, and these tensors."""
    leaves, spec = tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor) and leaf.requires_grad]

    def function(*tensors: Tensor) -> Any:
        filled = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            filled[place] = tensor
        first, args, kwargs = tree_unflatten(filled, spec)
        result = sample.output_process_fn_grad(op.gradcheck_wrapper(op, first, *args, **kwargs))
        found = [each for each in tree_flatten(result)[0] if isinstance(each, Tensor)]
        return tuple(each for each in found if each.is_floating_point() or each.is_complex())

    return function, tuple(leaves[place] for place in places)


class Operators(unittest.TestCase):
    """One test for each operator and order."""


def _test(op: Any, check: Callable[..., bool], order: str) -> Callable[[Operators], None]:
    def test(self: Operators) -> None:
        torch.manual_seed(0)
        for sample in op.sample_inputs("cpu", torch.float64, requires_grad=True):
            function, inputs = function_of(op, sample)
            if inputs:
                options = {"fast_mode": True, "nondet_tol": op.gradcheck_nondet_tol, "check_batched_grad": False}
                if order == "first":
                    options["check_forward_ad"] = op.supports_forward_ad
                assert check(function, inputs, **options)

    return test


for _op in op_db:
    _name = f"{_op.name}_{_op.variant_test_name}".replace(".", "_").strip("_")
    if _op.supports_autograd and _op.supports_dtype(torch.float64, "cpu"):
        setattr(Operators, f"test_first_{_name}", _test(_op, gradcheck, "first"))
        if _op.supports_gradgrad:
            setattr(Operators, f"test_second_{_name}", _test(_op, gradgradcheck, "second"))
