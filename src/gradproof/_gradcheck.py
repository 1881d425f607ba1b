"""Drop-ins for `torch.autograd.gradcheck` and `gradgradcheck`, with torch's keywords."""

from __future__ import annotations

import importlib
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from gradproof._examine import examine
from gradproof._options import MODES, ContractName, Options
from gradproof.engine.results import Reason, Verdict
from gradproof.errors import InconclusiveWarning, InputError, NothingToDifferentiateError, OverlapError
from gradproof.frameworks.torch import trees
from gradproof.frameworks.torch.charts import Semantics
from gradproof.frameworks.torch.examination.central_differences import Tolerance, within_tolerance
from gradproof.frameworks.torch.subject.caller_state import CallerState, with_state_restored
from gradproof.frameworks.torch.subject.derivatives import Incoming, derivative
from gradproof.frameworks.torch.subject.memory import reporting_exhausted_memory
from gradproof.frameworks.torch.subject.torch_subject import TorchSubject, differentiating
from gradproof.report.terminal import plain

# `torch.autograd.gradcheck` is both a module and a function in it; an import statement gives the function.
_torch_gradcheck = importlib.import_module("torch.autograd.gradcheck")


TOLERANT_PROBES = 4  # errors of several entries may cancel to less than the tolerance along one direction
# An inconclusive check with one of these reasons is decided by torch's own criterion.
UNCLEAR = frozenset(Reason) - {Reason.NONDETERMINISTIC, Reason.MUTATION, Reason.UNSUPPORTED}
PASSED = (
    "The check is inconclusive: {message} It passes all the same, since every entry is within atol and rtol of a "
    "central difference, which is the criterion of torch's gradcheck."
)
MISSING = ("no-forward-rule", "no-backward-rule")  # kinds of findings


class GradcheckError(_torch_gradcheck.GradcheckError):  # type: ignore[name-defined, misc]  # found at run time
    """A gradient could not be verified. Torch's own error is its base, so existing handlers catch it."""

    __module__ = "gradproof"  # the name that users import it by, which tracebacks then show


class MissingRuleError(GradcheckError, NotImplementedError):
    """There is no derivative of the mode asked for, for which torch raises a NotImplementedError."""

    __module__ = "gradproof"


def gradcheck(
    func: Callable[..., Any],
    inputs: Any,
    *,
    eps: float | None = None,
    atol: float | None = None,
    rtol: float | None = None,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
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
    accepted on top of the error bar. `fast_mode` checks random directions; otherwise every entry of the Jacobian is
    checked.

    >>> import torch
    >>> gradcheck(torch.sin, (torch.ones(2, dtype=torch.float64, requires_grad=True),))
    True
    """
    __tracebackhide__ = True
    _refuse_what_torch_refuses(inputs, forward=check_forward_ad)
    if not (check_forward_ad or check_backward_ad):
        raise AssertionError("check_forward_ad and check_backward_ad are both False: there is nothing to check.")
    if check_batched_grad and not check_backward_ad:
        raise AssertionError("check_batched_grad=True is about backward mode: set check_backward_ad=True too.")
    if check_batched_forward_grad and not check_forward_ad:
        raise AssertionError("check_batched_forward_grad=True is about forward mode: set check_forward_ad=True too.")
    contracts = {
        ContractName.LINEAR: True,
        ContractName.REPEATABLE: True,
        ContractName.UNDEFINED: check_undefined_grad,
        ContractName.ATTRIBUTES: True,
        ContractName.BATCHED: check_batched_grad,
        ContractName.UNDEFINED_FORWARD: check_undefined_grad,
        ContractName.BATCHED_FORWARD: check_batched_forward_grad,
    }
    options = Options(
        modes=tuple(mode for mode, asked in zip(MODES, (check_backward_ad, check_forward_ad), strict=True) if asked),
        coverage="probe" if fast_mode else "full",
        contracts=tuple(name for name, asked in contracts.items() if asked),
        masked=bool(masked),
        nondet_tol=nondet_tol,
        dtypes=check_grad_dtypes,
        layouts=True,
        **_accuracy(eps, atol, rtol),
    )
    return _verified(func, inputs, options, raise_exception=raise_exception)


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float | None = None,
    atol: float | None = None,
    rtol: float | None = None,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """Verify the gradients of gradients, with respect to the inputs and to `grad_outputs`, with torch's keywords.

    `grad_outputs` are random unless given; of those given the ones that require grad are checked.

    >>> import torch
    >>> gradgradcheck(torch.sin, (torch.ones(2, dtype=torch.float64, requires_grad=True),))
    True
    """
    __tracebackhide__ = True
    _refuse_what_torch_refuses(inputs, forward=check_fwd_over_rev)
    if not (check_fwd_over_rev or check_rev_over_rev):
        raise AssertionError("check_fwd_over_rev and check_rev_over_rev are both False: there is nothing to check.")
    for flag, asked in (("check_undefined_grad", check_undefined_grad), ("check_batched_grad", check_batched_grad)):
        if asked and not check_rev_over_rev:
            raise AssertionError(f"{flag}=True is about reverse mode: set it to False, or check_rev_over_rev=True too.")
    contracts = {
        ContractName.LINEAR: True,
        ContractName.REPEATABLE: True,
        ContractName.UNDEFINED: check_undefined_grad,
        ContractName.ATTRIBUTES: check_grad_dtypes,
        ContractName.DETACHED: check_rev_over_rev,
        ContractName.BATCHED: check_batched_grad,
    }
    options = Options(
        order=2,
        nestings=tuple(
            (outer, "reverse")
            for outer, asked in zip(MODES, (check_rev_over_rev, check_fwd_over_rev), strict=True)
            if asked
        ),
        coverage="probe" if fast_mode else "full",
        contracts=tuple(name for name, asked in contracts.items() if asked),
        masked=masked,
        nondet_tol=nondet_tol,
        **_accuracy(eps, atol, rtol),
    )
    incoming = Incoming(grad_outputs, gapped=gen_non_contig_grad_outputs)
    return _verified(func, inputs, options, raise_exception=raise_exception, incoming=incoming)


@contextmanager
def replace_gradcheck() -> Iterator[None]:
    """Replace `torch.autograd.gradcheck` and `gradgradcheck` by gradproof's while the context is open.

    Code that calls torch's checks, and imports their names inside the context, is then checked by gradproof. For a
    whole test suite set `gradproof_replace_gradcheck = true` in pytest's configuration.

    >>> import torch
    >>> with replace_gradcheck():
    ...     torch.autograd.gradcheck is gradcheck
    True
    >>> torch.autograd.gradcheck is gradcheck
    False
    """
    with ExitStack() as stack:
        for replacement in (gradcheck, gradgradcheck):
            for module in (_torch_gradcheck, torch.autograd):
                stack.enter_context(patch.object(module, replacement.__name__, replacement))
        yield


def _refuse_what_torch_refuses(inputs: Any, *, forward: bool) -> None:
    """Raise for inputs that torch's check refuses, whatever `raise_exception` is."""
    for path, leaf in trees.leaves(inputs, "inputs"):
        if not (isinstance(leaf, Tensor) and leaf.requires_grad):
            continue
        if leaf.is_mkldnn:
            if forward:
                raise InputError(
                    f"{path} is an MKLDNN tensor, of which torch makes no dual numbers. Pass its to_dense()."
                )
        elif leaf.layout is torch.strided and any(
            size > 1 and not step for size, step in zip(leaf.shape, leaf.stride(), strict=True)
        ):
            raise OverlapError(
                f"{path} has a dimension with stride 0: its entries share memory, and none can be varied by itself. "
                "Pass its clone()."
            )


def _accuracy(eps: float | None, atol: float | None, rtol: float | None) -> dict[str, Any]:
    probes = TOLERANT_PROBES if atol or rtol else 1
    return {"step": eps, "atol": atol or 0.0, "rtol": rtol or 0.0, "probes": probes}


def _verified(
    func: Callable[..., Any], inputs: Any, options: Options, *, raise_exception: bool, incoming: Incoming | None = None
) -> bool:
    __tracebackhide__ = True
    try:
        report = examine(func, inputs, options=options, incoming=incoming)
    except NothingToDifferentiateError:
        return True  # outputs of integers have no derivative: torch's check passes too
    without_a_rule = bool(report.unsupported)  # each of torch's flags asks for one derivative, which must exist
    if report.verdict is Verdict.PASS and not without_a_rule:
        return True
    if not without_a_rule and report.reason in UNCLEAR and _passes_by_differences(func, inputs, options, incoming):
        warnings.warn(PASSED.format(message=report.message), InconclusiveWarning, stacklevel=3)
        return True
    if raise_exception:
        missing = without_a_rule or (
            bool(report.findings) and all(finding.kind in MISSING for finding in report.findings)
        )
        # tests look for words in it, such as those of an error that a backward raised: no line is broken
        raise (MissingRuleError if missing else GradcheckError)(plain(report, unbroken=True))
    return False


def _passes_by_differences(func: Callable[..., Any], inputs: Any, options: Options, incoming: Incoming | None) -> bool:
    """Apply torch's own criterion, with the step and the tolerances given, or with torch's by default.

    Torch's fast mode steps by `eps` along a unit vector, and so by far less in each of many entries.
    """
    given = {"eps": options.step, "atol": options.atol, "rtol": options.rtol}
    tolerance = Tolerance(**{name: value for name, value in given.items() if value})
    semantics = Semantics(masked=options.masked, complete=options.coverage == "full", seed=options.seed or 0)

    def accepted(subject: TorchSubject, mode: str) -> bool:
        if within_tolerance(subject, mode, tolerance):
            return True
        shorter = replace(tolerance, eps=tolerance.eps / math.sqrt(subject.inputs.size))
        return options.coverage == "probe" and within_tolerance(subject, mode, shorter)

    def answered(state: CallerState) -> bool:
        subject = TorchSubject.of(func, inputs, None, semantics, state)
        if options.order == 1:
            return all(accepted(subject, mode) for mode in options.modes or ())
        gradient = derivative(subject, "reverse", incoming or Incoming())
        return all(accepted(gradient, outer) for outer, _ in options.nestings or ())

    with reporting_exhausted_memory(), differentiating():
        return with_state_restored(func, inputs, answered)
