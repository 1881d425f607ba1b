"""`check` and `assert_gradients`: from a function to a report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Unpack

from gradproof._examine import examine
from gradproof._options import CheckOptions, Contracts, Coverage, Modes, Options, Order, modes_of
from gradproof._report import GradientError, Report


def check(
    func: Callable[..., Any],
    inputs: Any,
    *,
    wrt: int | str | Sequence[int | str] | None = None,
    modes: Modes = None,
    order: Order = 1,
    coverage: Coverage = "probe",
    masked: bool = False,
    contracts: Contracts = None,
    rtol: float = 0.0,
    atol: float = 0.0,
    nondet_tol: float = 0.0,
    probes: int = 1,
    seed: int | None = None,
    explain: bool = True,
    min_resolution: float | None = None,
    budget: float | None = None,
    progress: bool | None = None,
) -> Report:
    """Verify the gradients of `func` at `inputs`, and return the evidence. A wrong gradient is reported, not raised.

    >>> import torch
    >>> x = torch.linspace(0.1, 1, 5, dtype=torch.float64, requires_grad=True)
    >>> report = check(torch.sin, x, seed=0)
    >>> report.passed, report.resolution.relative < 1e-8
    (True, True)

    Args:
        func: any callable on tensors or nested tuples, lists, dicts and dataclasses of them, or an `nn.Module`, whose
            parameters are then checked too, by name.
        inputs: one tensor, or a collection that is spread over the function's parameters.
        wrt: the inputs to check, by position, name or path. By default those that require grad.
        modes: "reverse", "forward" or both. By default reverse, and forward where an autograd Function of your own has
            a jvp.
        order: 1 for first derivatives, or 2 for second derivatives alone, in all combinations of the modes: four if
            both are given.
        coverage: "probe" checks random directions, "full" checks every entry.
        masked: the semantics of sparse inputs. True checks the gradient with respect to the stored entries alone;
            False checks the gradient with respect to all entries, where those that are not stored are zeros.
        contracts: which further laws to check, by name; () for none. By default all but those of memory and streams,
            which "kernel" asks for. If a rule that a contract needs is missing, such as vmap, that is a note by
            default, and a failure if the contract was named.
        rtol: the error, relative to the gradient entry, that is tolerated on top of the bar.
        atol: the absolute error that is tolerated on top of the bar.
        nondet_tol: how far two calls at the same point may differ before the function counts as nondeterministic.
        probes: the number of random directions. One finds any single wrong real number above the resolution. Several
            errors may cancel along a direction: if they are k times the resolution, they escape each probe with a
            probability of about 1/k.
        seed: the seed of the random directions; the seed of a report repeats its check.
        explain: whether to diagnose a wrong gradient: what the mistake looks like, which module or autograd Function is
            wrong by itself, and a heat map of the errors. The verdict and the wrong entries do not depend on it.
        min_resolution: the resolution that a pass must reach, relative to the largest entry of the gradient. A check
            that finds no error and would not have caught one of this size is inconclusive, with the reason
            `Reason.RESOLUTION`. By default that is 1 in double precision, unless `rtol` or `atol` is given.
        budget: the seconds that the check may take. When they are spent, the report gives what was found by then: a
            wrong gradient is a failure, perhaps without a diagnosis; all else is inconclusive, with the reason
            `Reason.BUDGET`. The time is looked at before every call of the function, which itself is not interrupted.
        progress: whether to show a progress bar for checks of more than two seconds; by default on a terminal.
    """
    options = Options(
        modes=modes_of(modes),
        order=order,
        coverage=coverage,
        masked=masked,
        contracts=contracts,
        rtol=rtol,
        atol=atol,
        nondet_tol=nondet_tol,
        probes=probes,
        seed=seed,
        explain=explain,
        min_resolution=min_resolution,
        budget=budget,
        progress=progress,
    )
    return examine(func, inputs, wrt=wrt, options=options)


def assert_gradients(func: Callable[..., Any], inputs: Any, **options: Unpack[CheckOptions]) -> None:
    """Raise `GradientError`, an `AssertionError`, unless `check` with the same options passes.

    >>> import torch
    >>> assert_gradients(torch.exp, torch.ones(3, dtype=torch.float64, requires_grad=True))
    """
    __tracebackhide__ = True
    report = check(func, inputs, **options)
    if not report.passed:
        raise GradientError(str(report), report)
