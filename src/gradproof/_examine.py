"""Check one function and build its report: what `check`, `gradcheck` and `check_step` share."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gradproof._options import Options
from gradproof._report import Report
from gradproof.engine.results import Checked, Cost, Verdict
from gradproof.report.progress import Bar

if TYPE_CHECKING:
    from gradproof.engine.verdict import Judgement
    from gradproof.frameworks.torch.subject.timing import Tally


@dataclass(slots=True)
class Session:
    """Settings that apply to every check of a process: a seed, and the listeners that receive every report.

    Both are empty by default. The pytest plugin sets them for the length of a test run.
    """

    seed: int | None = None
    listeners: list[Callable[[Report], None]] = field(default_factory=list)

    def chosen_seed(self, given: int | None) -> int:
        """Return the seed of a check: the one given, else the session's, else a fresh random one."""
        if given is None:
            given = self.seed
        return secrets.randbits(32) if given is None else int(given)


session = Session()


def examine(
    func: Callable[..., Any], inputs: Any, *, options: Options, wrt: Any = None, incoming: Any = None
) -> Report:
    """Check `func` at `inputs` with options that are already validated, and return the published report.

    `incoming` are the incoming gradients of a second-order check (`grad_outputs` of `gradgradcheck`).
    """
    # torch is imported by the first check, and not by `import gradproof`
    from gradproof.frameworks.torch.charts import Semantics
    from gradproof.frameworks.torch.examination.budget import Budget
    from gradproof.frameworks.torch.examination.examination import Examination
    from gradproof.frameworks.torch.introspection.source import source_of
    from gradproof.frameworks.torch.subject.arguments import tensors_in
    from gradproof.frameworks.torch.subject.caller_state import CallerState, with_state_restored
    from gradproof.frameworks.torch.subject.memory import reporting_exhausted_memory
    from gradproof.frameworks.torch.subject.torch_subject import TorchSubject, differentiating

    began = time.perf_counter()
    seed = session.chosen_seed(options.seed)
    semantics = Semantics(masked=options.masked, complete=options.coverage == "full", seed=seed)

    def judged(state: CallerState) -> tuple[TorchSubject, Examination, Judgement]:
        subject = TorchSubject.of(func, inputs, wrt, semantics, state)
        with Bar(subject.name, wanted=options.progress) as bar:
            budget = Budget(options.budget, began=began)
            subject.tally.before_each = bar.pulse if options.budget is None else _each(bar.pulse, budget.check)
            examination = Examination(subject, options, seed, incoming=incoming, progress=bar, budget=budget)
            return subject, examination, examination.judgement()

    with reporting_exhausted_memory(tensors_in(inputs)), differentiating():
        subject, examination, judgement = with_state_restored(func, inputs, judged)
    file, line = source_of(func)
    checked = Checked(
        name=subject.name,
        arguments=subject.inputs.labels,
        outputs=subject.outputs.labels,
        coordinates=subject.inputs.entries,
        output_coordinates=subject.outputs.entries,
        derivatives=examination.derivatives,
        coverage=options.coverage,
        file=file,
        line=line,
    )
    return publish(judgement, checked, tally=subject.tally, seconds=time.perf_counter() - began, seed=seed)


def _each(*actions: Callable[[], None]) -> Callable[[], None]:
    """Return a function that does all of these."""

    def act() -> None:
        for action in actions:
            action()

    return act


def publish(judgement: Judgement, checked: Checked, *, tally: Tally, seconds: float, seed: int) -> Report:
    """Make a report of a judgement, hand it to the listeners of the session, and return it."""
    obstacle = judgement.obstacle_to_pass if judgement.verdict is Verdict.INCONCLUSIVE else None
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
        errors=judgement.errors,
        cost=Cost(
            evaluations=tally.evaluations,
            pullbacks=tally.pullbacks,
            pushforwards=tally.pushforwards,
            seconds=seconds,
            inside=tally.inside,
        ),
        seed=seed,
        subject=checked,
        unsupported=judgement.unsupported,
    )
    for listener in session.listeners:
        listener(report)
    return report
