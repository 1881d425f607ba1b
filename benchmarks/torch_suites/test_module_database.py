"""First and second derivatives of torch's modules, with its own check: inputs and parameters, in float64."""

from __future__ import annotations

import unittest
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.testing._internal.common_modules import module_db
from torch.testing._internal.common_utils import freeze_rng_state, gradcheck, gradgradcheck
from torch.utils._pytree import tree_flatten, tree_unflatten


def function_of(module: torch.nn.Module, sample: Any) -> tuple[Callable[..., Any], tuple[Tensor, ...]]:
    """Return a module as a function of its inputs and parameters that require grad, and these tensors."""
    leaves, spec = tree_flatten((sample.forward_input.args, sample.forward_input.kwargs))
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor) and leaf.requires_grad]
    parameters = tuple(each for each in module.parameters() if each.requires_grad)

    def function(*tensors: Tensor) -> Any:
        filled = list(leaves)
        for place, tensor in zip(places, tensors, strict=False):
            filled[place] = tensor
        args, kwargs = tree_unflatten(filled, spec)
        with freeze_rng_state():
            found = tree_flatten(module(*args, **kwargs))[0]
        return tuple(each for each in found if isinstance(each, Tensor) and each.is_floating_point())

    return function, (*(leaves[place] for place in places), *parameters)


class Modules(unittest.TestCase):
    """One test for each module and order."""


def _test(info: Any, check: Callable[..., bool]) -> Callable[[Modules], None]:
    def test(self: Modules) -> None:
        torch.manual_seed(0)
        samples = info.module_inputs_func(info, device="cpu", dtype=torch.float64, requires_grad=True, training=False)
        for sample in samples:
            if sample.forward_input is None:
                continue
            given = sample.constructor_input
            module = info.module_cls(*given.args, **given.kwargs).to(torch.float64).eval()
            module(*sample.forward_input.args, **sample.forward_input.kwargs)  # a lazy module now has its parameters
            function, tensors = function_of(module, sample)
            if tensors:
                assert check(function, tensors, fast_mode=True, nondet_tol=info.gradcheck_nondet_tol)

    return test


for _info in module_db:
    if torch.float64 in _info.dtypes:
        _name = _info.name.replace(".", "_")
        setattr(Modules, f"test_first_{_name}", _test(_info, gradcheck))
        if _info.supports_gradgrad:
            setattr(Modules, f"test_second_{_name}", _test(_info, gradgradcheck))
