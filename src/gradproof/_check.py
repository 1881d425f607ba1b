"""From a function to a report."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from gradproof._options import Options, modes_of
from gradproof._report import Report
from gradproof._session import session
from gradproof.engine.results import Checked, Cost, Verdict
from gradproof.errors import GradientError
from gradproof.report.progress import Bar


def check(
    func: Callable[..., Any],
    inputs: Any,
    *,
    wrt: int | str | Sequence[int | str] | None = None,
    modes: str | Sequence[str] | None = None,
    order: int = 1,
    coverage: str = "probe",
    masked: bool | None = None,
    contracts: Sequence[str] | None = None,
    rtol: float = 0.0,
    atol: float = 0.0,
    nondet_tol: float = 0.0,
    probes: int = 1,
    seed: int | None = None,
    explain: bool = True,
    progress: bool | None = None,
) -> Report:
    """Verify the gradients of `func` at `inputs`, and return the evidence. A wrong gradient is a report, not an error.

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
        order: 1, or 2 for second derivatives, and these alone: every nesting of the modes, of which two give four.
        coverage: "probe" asks about random directions, "full" about every entry.
        masked: the semantics of sparse inputs.
        contracts: which further laws to check, by name; () for none. By default all: an ability that is absent, such as
            vmap, is then a note, where asked for by name it is a failure.
        rtol: an error, relative to the gradient entry, that is accepted on top of the bar.
        atol: an absolute error that is accepted on top of the bar.
        nondet_tol: how far two calls at the same point may differ before the function counts as random.
        probes: the number of random directions. One finds any lone wrong real number above the resolution; errors of
            any other shape, k times the resolution, escape each probe with a probability of about 1/k.
        seed: what the directions are drawn from; a report's seed replays it.
        explain: whether a wrong gradient is also explained: what the mistake looks like, which module or autograd
            Function is wrong by itself, and a heat map of the errors. The verdict and the wrong entries are the same
            without.
        progress: whether to show a bar on long work; by default where someone is looking at a terminal.
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
        progress=progress,
    )
    return examine(func, inputs, wrt=wrt, options=options)


def assert_gradients(func: Callable[..., Any], inputs: Any, **options: Any) -> None:
    """Raise `GradientError`, an `AssertionError`, unless `check` with the same options passes.

    >>> import torch
    >>> assert_gradients(torch.exp, torch.ones(3, dtype=torch.float64, requires_grad=True))
    """
    __tracebackhide__ = True
    report = check(func, inputs, **options)
    if not report.passed:
        raise GradientError(str(report), report)


def examine(func: Callable[..., Any], inputs: Any, *, wrt: Any, options: Options, incoming: Any = None) -> Report:
    """The way from a function to a report, for options that are already valid."""
    from gradproof.frameworks.torch.charts import Semantics
    from gradproof.frameworks.torch.examination import Examination
    from gradproof.frameworks.torch.subject import TorchSubject, differentiating

    began = time.perf_counter()
    seed = session.chosen_seed(options.seed)
    semantics = Semantics(masked=bool(options.masked), complete=options.coverage == "full", seed=seed)
    with (
        differentiating(),
        TorchSubject.of(func, inputs, wrt, semantics) as subject,
        Bar(f"every entry of {subject.name}", options.progress) as bar,
    ):
        examination = Examination(subject, options, seed, incoming, bar)
        judgement = examination.judgement()
    tally = subject.tally
    obstacle = judgement.obstacle if judgement.verdict is Verdict.INCONCLUSIVE else None
    report = Report(
        verdict=judgement.verdict,
        reason=obstacle.reason if obstacle else None,
        message=judgement.message,
        hint=obstacle.hint if obstacle else "",
        findings=judgement.findings,
        notes=judgement.notes,
        resolution=judgement.resolution,
        readings=judgement.readings,
        maps=judgement.maps,
        cost=Cost(
            evaluations=tally.evaluations,
            pullbacks=tally.pullbacks,
            pushforwards=tally.pushforwards,
            seconds=time.perf_counter() - began,
            inside=tally.inside,
        ),
        seed=seed,
        subject=Checked(
            name=subject.name,
            arguments=subject.inputs.labels,
            outputs=subject.outputs.labels,
            coordinates=subject.inputs.entries,
            output_coordinates=subject.outputs.entries,
            derivatives=tuple(examination.derivatives),
            coverage=options.coverage,
        ),
        unsupported=judgement.unsupported,
    )
    return session.tell(report)
