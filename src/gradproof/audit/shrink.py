"""Look for smaller and simpler inputs at which a case still fails in the same way, and write them as a script."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import gradproof
from gradproof.audit.case import Case
from gradproof.audit.running import seeded
from gradproof.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

ATTEMPTS = 300  # checks, which takes seconds for a small function
Inputs = tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shrunk:
    """The smallest failing inputs that were found, the report there, and a script that repeats it."""

    inputs: Inputs
    report: gradproof.Report
    attempts: int
    script: str


def shrink(case: Case, *, attempts: int = ATTEMPTS) -> Shrunk:
    """Shrink the strided tensors among the inputs of a failing check: sizes, dimensions, then values.

    >>> import torch
    >>> def make():
    ...     x = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)
    ...     return (lambda x: x.sin().detach() / 2 + x.sin() / 2), (x,)
    >>> shrunk = shrink(Case("half", make=make, options={"contracts": ()}))
    >>> shrunk.inputs[0]
    tensor(1., dtype=torch.float64, requires_grad=True)
    """
    if case.entry != "check":
        raise InputError(
            f"The case {case.name!r} is no check of a function at inputs (entry={case.entry!r}): only those are shrunk."
        )
    with seeded(case.seed):
        function, given = case.make()
    best = given if isinstance(given, tuple) else (given,)
    report = _failing(case, function, best, None)
    if report is None:
        raise InputError(f"The case {case.name!r} does not fail here: there is nothing to shrink.")
    made, used = best, 1
    search = _smaller(best)
    while used < attempts and (candidate := next(search, None)):
        used += 1
        found = _failing(case, function, candidate, report.findings[0].kind)
        if found:
            best, report, search = candidate, found, _smaller(candidate)
    return Shrunk(inputs=best, report=report, attempts=used, script=_script(case, made, best))


def _failing(case: Case, function: Callable[..., Any], inputs: Inputs, kind: str | None) -> gradproof.Report | None:
    """Return the report if the check fails, with a finding of this kind first."""
    options = {**case.options, "seed": case.seed, "progress": False, "explain": False}
    try:
        with seeded(case.seed):
            report = gradproof.check(function, inputs, **options)
    except Exception:  # inputs that the function does not take
        return None
    return report if report.findings and kind in (None, report.findings[0].kind) else None


def _smaller(inputs: Inputs) -> Iterator[Inputs]:
    """Return inputs that are each simpler than these in one respect, the boldest first."""
    tensors = {place: value for place, value in enumerate(inputs) if _is_strided(value)}
    for size in sorted({size for tensor in tensors.values() for size in tensor.shape if size > 1}, reverse=True):
        for new in sorted({1, 2, size // 2, size - 1} - {size}):  # in all tensors, since sizes have to fit each other
            yield _with(inputs, {place: _cut(tensor, size, new) for place, tensor in tensors.items()})
    rows = {place: tensor[0] for place, tensor in tensors.items() if tensor.dim() and len(tensor) == 1}
    if rows:
        yield _with(inputs, rows)
    for (place, tensor), simple in product(tensors.items(), SIMPLIFIED):
        changed = simple(tensor)
        if changed is not None and _is_simpler(changed, tensor):
            yield _with(inputs, {place: changed})


def _is_strided(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor) and value.layout == torch.strided and type(value) is torch.Tensor


def _cut(tensor: Tensor, size: int, new: int) -> Tensor:
    for dimension, length in enumerate(tensor.shape):
        if length == size:
            tensor = tensor.narrow(dimension, 0, new)
    return tensor


def _filled(value: float, tensor: Tensor) -> Tensor | None:
    return tensor.detach().new_full(tensor.shape, value) if _is_continuous(tensor) else None


def _rounded(decimals: int, tensor: Tensor) -> Tensor | None:
    import torch

    return torch.round(tensor.detach(), decimals=decimals) if tensor.is_floating_point() else None


# Many a mistake is none at one.
SIMPLIFIED = (*(partial(_filled, value) for value in (1.0, 2.0, 0.5)), partial(_rounded, 0), partial(_rounded, 1))


def _is_continuous(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _is_simpler(changed: Tensor, tensor: Tensor) -> bool:
    return len(str(changed.tolist())) < len(str(tensor.detach().tolist()))


def _with(inputs: Inputs, changed: dict[int, Tensor]) -> Inputs:
    """Return inputs of which some are replaced, by leaves that require grad where the old ones do."""
    values = list(inputs)
    for place, tensor in changed.items():
        values[place] = tensor.detach().clone().requires_grad_(inputs[place].requires_grad)
    return tuple(values)


def _script(case: Case, made: Inputs, best: Inputs) -> str:
    """Return a program that makes the function as the case does, and replaces the tensors that were shrunk."""
    make = case.make if isinstance(case.make, partial) else partial(case.make)
    name = getattr(make.func, "__qualname__", "make")
    call = ", ".join([*map(repr, make.args), *(f"{key}={value!r}" for key, value in make.keywords.items())])
    options = "".join(f", {key}={value!r}" for key, value in {**case.options, "seed": case.seed}.items())
    lines = [
        "from math import inf, nan  # values of tensors may be these",
        "",
        "import torch",
        "",
        "import gradproof",
        f"from {getattr(make.func, '__module__', 'here')} import {name.partition('.')[0]}",
        "",
        f"torch.manual_seed({case.seed})",
        f"function, inputs = {name}({call})",
        "inputs = list(inputs) if isinstance(inputs, tuple) else [inputs]",
    ]
    for place, (old, new) in enumerate(zip(made, best, strict=True)):
        if new is not old:
            grad = ", requires_grad=True" if new.requires_grad else ""
            lines.append(f"inputs[{place}] = torch.tensor({new.tolist()!r}, dtype={new.dtype}{grad})")
    return "\n".join([*lines, f"print(gradproof.check(function, tuple(inputs){options}))"])
