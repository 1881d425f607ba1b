"""Drop-ins for `torch.autograd.gradcheck` and `gradgradcheck`: torch's keywords, gradproof's judgement."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from gradproof._check import examine
from gradproof._options import Options
from gradproof.engine.results import Verdict

# `torch.autograd.gradcheck` is both a module and a function in it; an import statement gives the function.
_torch_gradcheck = importlib.import_module("torch.autograd.gradcheck")


FORGIVING_PROBES = (
    4  # many errors, each forgiven or not by itself, may cancel below what is forgiven along one direction
)


class GradcheckError(_torch_gradcheck.GradcheckError):  # type: ignore[name-defined, misc]  # found at run time
    """A gradient could not be verified. Torch's own error is its base, so existing handlers catch it."""


def gradcheck(
    func: Callable[..., Any],
    inputs: Any,
    *,
    eps: float | None = None,
    atol: float | None = None,
    rtol: float | None = None,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = False,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Verify gradients with torch's keywords: True, or `GradcheckError`, or False with `raise_exception=False`.

    Steps and tolerances are automatic unless given: `eps` then is the size of the step, and `atol` and `rtol` are
    accepted on top of the error bar. Both modes probe and localise.

    >>> import torch
    >>> gradcheck(torch.sin, (torch.ones(2, dtype=torch.float64, requires_grad=True),))
    True
    """
    flags = {
        "check_undefined_grad": check_undefined_grad,
        "check_grad_dtypes": check_grad_dtypes,
        "check_batched_grad": check_batched_grad,
        "check_batched_forward_grad": check_batched_forward_grad,
        "check_forward_ad": check_forward_ad,
    }
    for name, asked in flags.items():
        if asked:
            raise NotImplementedError(f"{name}=True is not built yet. Leave it out, or ask torch.autograd.gradcheck.")
    if not check_backward_ad:
        raise NotImplementedError("check_backward_ad=False leaves nothing to check: forward mode is not built yet.")
    options = Options(
        rtol=rtol or 0.0,
        atol=atol or 0.0,
        nondet_tol=nondet_tol,
        masked=masked,
        step=eps,
        probes=FORGIVING_PROBES if atol or rtol else 1,
    )
    report = examine(func, inputs, wrt=None, options=options)
    if report.verdict is Verdict.PASS:
        return True
    if raise_exception:
        raise GradcheckError(str(report))
    return False


def gradgradcheck(func: Callable[..., Any], inputs: Any, grad_outputs: Any = None, **options: Any) -> bool:
    """Second order, with torch's keywords."""
    raise NotImplementedError("gradgradcheck is not built yet: first order alone is. Use gradcheck.")
