"""Pushforwards through dual numbers."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.autograd import forward_ad

from gradproof.frameworks.torch.exclusion import DUAL_LEVEL, PROCESS, Exclusion, without_warnings
from gradproof.frameworks.torch.internals import is_zero_tensor
from gradproof.frameworks.torch.storage import is_strided, overlaps

NESTED = "Nested forward mode"  # torch's words where a function makes dual numbers of its own
Function = Callable[[Sequence[Tensor]], Sequence[Tensor]]


def push(
    function: Function, primals: Sequence[Tensor], tangents: Sequence[Tensor], *, nested: bool = False
) -> list[Tensor]:
    """Return the tangents of a function's results; zeros for a result that carries none.

    Torch's dual numbers have one level, so a function that makes some itself is pushed by `torch.func.jvp`, which nests
    but does not take every function.
    """
    _prepare()
    if not nested:
        try:
            return push_level(function, primals, tangents)
        except RuntimeError as error:
            if NESTED not in str(error):
                raise
    with Exclusion([PROCESS, DUAL_LEVEL]), torch.enable_grad():
        points = tuple(map(apart, primals))
        return list(torch.func.jvp(lambda *values: tuple(function(values)), points, tuple(tangents))[1])


def push_level(function: Function, primals: Sequence[Tensor], tangents: Sequence[Tensor | None]) -> list[Tensor]:
    """Return the tangents through torch's one level of dual numbers; a primal whose tangent is None gets none."""
    _prepare()
    with Exclusion([PROCESS, DUAL_LEVEL]), torch.enable_grad(), forward_ad.dual_level():
        return [_tangent(result) for result in function([_dual(*pair) for pair in zip(primals, tangents, strict=True)])]


def _dual(primal: Tensor, tangent: Tensor | None) -> Tensor:
    if tangent is None:
        return primal
    dual: Tensor = forward_ad.make_dual(apart(primal), tangent)  # type: ignore[no-untyped-call]  # torch's own
    return dual


def apart(primal: Tensor) -> Tensor:
    """Return a primal without overlapping entries, since torch gives the tangent the same strides."""
    return primal.clone(memory_format=torch.contiguous_format) if is_strided(primal) and overlaps(primal) else primal


@functools.cache
def _prepare() -> None:
    """Make torch load its forward rules, and suppress the warnings that it raises about itself."""
    with without_warnings():
        importlib.import_module("torch._decomp.decompositions_for_jvp")


def _tangent(result: Tensor) -> Tensor:
    primal, tangent = forward_ad.unpack_dual(result)  # type: ignore[no-untyped-call]  # torch's own
    return torch.zeros_like(primal) if tangent is None or is_zero_tensor(tangent) else tangent
