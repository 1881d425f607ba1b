"""Cases of torch's module database: inputs and parameters of every module, in training where that is determined."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

from gradproof.audit.case import Case, Skip
from gradproof.audit.sources.databases import database, sampling

DTYPES = ("float64", "float32")


def cases() -> Iterator[Case]:
    """Return a case for every module, dtype, order and sample."""
    import torch

    for name, info in _modules().items():
        for dtype in DTYPES:
            if getattr(torch, dtype) not in info.dtypes:
                continue
            for number in range(_count(info, dtype)):
                for order in (1, 2) if info.supports_gradgrad else (1,):
                    yield Case(
                        f"{name}/{dtype}/order {order}/{number}",
                        make=partial(subject, name, dtype, number),
                        options={"order": order, "contracts": (), "nondet_tol": info.gradcheck_nondet_tol},
                        tags=(f"op={name}", f"dtype={dtype}", f"order={order}"),
                    )


def subject(name: str, dtype: str, number: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return a module in evaluation mode as a function of its inputs and parameters, and these.

    >>> function, inputs = subject("nn.Linear", "float64", 0)
    >>> len(inputs)
    3
    """
    import torch
    from torch.utils._pytree import tree_flatten, tree_unflatten

    info = _modules()[name]
    with sampling():
        sample = next(each for place, each in enumerate(_samples(info, dtype)) if place == number)
        if sample.forward_input is None:
            raise Skip("this sample only makes the module")
        made = sample.constructor_input
        module = info.module_cls(*made.args, **made.kwargs).to(getattr(torch, dtype)).eval()
        module(*sample.forward_input.args, **sample.forward_input.kwargs)  # a lazy module now has its parameters
    leaves, spec = tree_flatten((sample.forward_input.args, sample.forward_input.kwargs))
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    named = [key for key, each in module.named_parameters() if each.requires_grad]
    inputs = (*(leaves[place] for place in places), *(module.get_parameter(key) for key in named))
    if not inputs:
        raise Skip("neither an input nor a parameter of this sample requires grad")

    def function(*tensors: Any) -> Any:
        filled = list(leaves)
        for place, tensor in zip(places, tensors, strict=False):
            filled[place] = tensor
        args, kwargs = tree_unflatten(filled, spec)
        parameters = dict(zip(named, tensors[len(places) :], strict=True))
        with torch.random.fork_rng(devices=[]):
            return torch.func.functional_call(module, parameters, args, kwargs)

    function.__name__ = name.rpartition(".")[2]
    return function, inputs


@cache
def _modules() -> dict[str, Any]:
    return {info.name: info for info in database("common_modules").module_db}


def _count(info: Any, dtype: str) -> int:
    """Return the number of samples; one where they cannot be made, so that its case tells why."""
    try:
        with sampling():
            return sum(1 for _ in _samples(info, dtype))
    except Exception:  # it is raised again in the worker, and recorded there
        return 1


def _samples(info: Any, dtype: str) -> Iterator[Any]:
    import torch

    wanted = {"device": "cpu", "dtype": getattr(torch, dtype), "requires_grad": True, "training": False}
    return iter(info.module_inputs_func(info, **wanted))
