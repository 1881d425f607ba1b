"""`compare` and `assert_equivalent`: two implementations of one function, such as a kernel and its reference."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from gradproof._examine import publish, session
from gradproof._options import ContractNames, Options
from gradproof._report import GradientError, Report
from gradproof.engine.results import Checked
from gradproof.errors import InputError

if TYPE_CHECKING:
    from gradproof.engine.verdict import Judgement

DRAWS = 4  # of inputs, the given ones first


class CompareOptions(TypedDict, total=False):
    """The keywords of `gradproof.compare`, for functions that pass them on."""

    wrt: int | str | Sequence[int | str] | None
    draws: int
    contracts: ContractNames
    seed: int | None


def compare(
    func: Callable[..., Any],
    reference: Callable[..., Any],
    inputs: Any,
    *,
    wrt: int | str | Sequence[int | str] | None = None,
    draws: int = DRAWS,
    contracts: ContractNames = (),
    seed: int | None = None,
) -> Report:
    """Compare the values and the gradients of two implementations as closely as their precision allows.

    There is no tolerance to choose. `reference` is evaluated in a higher precision, and once more in the precision of
    the inputs. An entry of `func` is wrong if its error exceeds what three things explain together: the scatter of the
    reference if the inputs move by a unit in the last place, the error of the reference in the same precision as
    `func`, and the rounding of the result. A finding's `kind` is "wrong-value" or "wrong-gradient".

    >>> import torch
    >>> x = torch.randn(64, 32).bfloat16().requires_grad_()
    >>> def fused(x):
    ...     return torch.nn.functional.silu(x.float()).to(x.dtype)
    >>> def plain(x):
    ...     return x * torch.sigmoid(x)
    >>> compare(fused, plain, x, seed=0).passed
    True

    Args:
        func: the implementation under test, such as a kernel.
        reference: a differentiable implementation that accepts the inputs in any floating-point precision.
        inputs: one tensor, or a collection that is spread over the parameters of both.
        wrt: the inputs whose gradients are compared, by position, name or path. By default those that require grad.
        draws: the number of points that are compared: the given one, and others a unit in the last place away.
        contracts: further laws of the gradient of `func` to check, by name, as for `gradproof.check`.
        seed: the seed of the draws and of the incoming gradients; the seed of a report repeats its comparison.
    """
    if isinstance(draws, bool) or not isinstance(draws, int) or not 2 <= draws <= 1000:
        raise InputError(f"draws={draws!r}: pass a whole number from 2 to 1,000.")
    options = Options(contracts=contracts, seed=seed)
    # torch is imported by the first comparison, and not by `import gradproof`
    from gradproof.frameworks.torch.comparison.comparing import Comparing
    from gradproof.frameworks.torch.comparison.pair import Pair
    from gradproof.frameworks.torch.examination.contract_runner import with_contracts
    from gradproof.frameworks.torch.introspection.source import source_of
    from gradproof.frameworks.torch.subject.caller_state import CallerState, with_state_restored
    from gradproof.frameworks.torch.subject.memory import reporting_exhausted_memory
    from gradproof.frameworks.torch.subject.torch_subject import TorchSubject, differentiating

    began = time.perf_counter()
    seed = session.chosen_seed(options.seed)

    def judged(state: CallerState) -> tuple[Pair, Judgement]:
        pair = Pair(func, reference, inputs, wrt)
        judgement = Comparing(pair, seed).judgement(draws)
        if contracts and pair.varied:
            subject = TorchSubject.of(func, inputs, wrt, state=state)
            judgement = with_contracts(judgement, subject, "reverse", options, seed)
        return pair, judgement

    with reporting_exhausted_memory(), differentiating():
        pair, judgement = with_state_restored((func, reference), inputs, judged)
    file, line = source_of(func)
    checked = Checked(
        name=pair.kernel.call.name,
        reference=pair.reference.call.name,
        arguments=pair.labels(pair.varied),
        outputs=pair.labels(pair.results),
        coordinates=sum(tensor.numel() for tensor in pair.varied.values()),
        output_coordinates=sum(tensor.numel() for tensor in pair.results.values()),
        coverage="full",
        call="compare",
        file=file,
        line=line,
    )
    return publish(judgement, checked, tally=pair.tally, seconds=time.perf_counter() - began, seed=seed)


def assert_equivalent(
    func: Callable[..., Any], reference: Callable[..., Any], inputs: Any, **options: Unpack[CompareOptions]
) -> None:
    """Raise `GradientError`, an `AssertionError`, unless `compare` with the same options passes.

    >>> import torch
    >>> x = torch.randn(8, 32, requires_grad=True)
    >>> assert_equivalent(lambda x: x.softmax(-1), lambda x: x.exp() / x.exp().sum(-1, keepdim=True), x)
    """
    __tracebackhide__ = True
    report = compare(func, reference, inputs, **options)
    if not report.passed:
        raise GradientError(str(report), report)
