"""PyTorch's own operator database as scenarios: a function, its inputs, and its name."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch

warnings.simplefilter("ignore")

from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402  # warns while it is imported


@dataclass(frozen=True)
class Supports:
    """Which further derivatives the database says that an operator has."""

    forward: bool = True
    reverse_over_reverse: bool = True
    forward_over_reverse: bool = True


@dataclass(frozen=True)
class Scenario:
    """One sample of one operator."""

    name: str
    number: int
    function: Callable[..., Any]
    inputs: tuple[Any, ...]
    nondet_tol: float
    supports: Supports = Supports()


def scenarios(dtype: torch.dtype, samples: int, pattern: str = "") -> Iterator[Scenario]:
    """Up to so many samples of every operator that supports autograd for this dtype."""
    for op in op_db:
        if not op.supports_autograd or dtype not in op.supported_backward_dtypes("cpu"):
            continue
        name = op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")
        if pattern not in name:
            continue
        torch.manual_seed(0)
        for number, sample in enumerate(islice(op.sample_inputs("cpu", dtype, requires_grad=True), samples)):
            scenario = _scenario(op, sample, name, number)
            if scenario is not None:
                yield scenario


def _scenario(op: Any, sample: Any, name: str, number: int) -> Scenario | None:
    listed = isinstance(sample.input, (list, tuple))
    first = tuple(sample.input) if listed else (sample.input,)
    inputs = first + tuple(sample.args) + tuple(sample.kwargs.values())

    def function(*values: Any) -> Any:
        head: tuple[Any, ...] = (list(values[: len(first)]),) if listed else (values[0],)
        args = values[len(first) : len(first) + len(sample.args)]
        kwargs = dict(zip(sample.kwargs, values[len(first) + len(sample.args) :], strict=True))
        return sample.output_process_fn_grad(op.gradcheck_wrapper(op.get_op(), *head, *args, **kwargs))

    if not any(isinstance(value, torch.Tensor) and value.requires_grad for value in inputs):
        return None
    if any(isinstance(value, torch.Tensor) and value.layout != torch.strided for value in inputs):
        return None
    supports = Supports(op.supports_forward_ad, op.supports_gradgrad, op.supports_fwgrad_bwgrad)
    return Scenario(name, number, function, inputs, op.gradcheck_nondet_tol, supports)
