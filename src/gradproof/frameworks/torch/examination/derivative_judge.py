"""Judge one derivative of a function: by the engine, in double precision where that runs, and by contracts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from gradproof._options import CONTRACT_GROUPS, Options
from gradproof.engine.cancellation import without_cancelled_rounding
from gradproof.engine.diagnosis import diagnosed
from gradproof.engine.estimators.steps import first_step
from gradproof.engine.extras import extra
from gradproof.engine.jacobian.cover import judge_fully
from gradproof.engine.judging import judge
from gradproof.engine.options import Probing
from gradproof.engine.pictures import heat_map
from gradproof.engine.precision import judge_rounded
from gradproof.engine.results import Finding, Obstacle, Reason, Verdict
from gradproof.engine.subject import DerivativeError, Step, Subject
from gradproof.engine.thresholds import HANDFUL, MANY
from gradproof.engine.verdict import Judgement
from gradproof.engine.views import in_mode
from gradproof.frameworks.torch.examination.budget import Budget
from gradproof.frameworks.torch.examination.contract_runner import with_contracts
from gradproof.frameworks.torch.examination.progress import Progress
from gradproof.frameworks.torch.examination.streaming import judged_as_stream
from gradproof.frameworks.torch.examination.unsupported import has_raised, is_unsupported, unsupported
from gradproof.frameworks.torch.rederivation.search import Steps
from gradproof.frameworks.torch.subject.graphs import Way, better_way, has_to_be_used
from gradproof.frameworks.torch.subject.numpy_subject import for_the_engine, silence
from gradproof.frameworks.torch.subject.sizes import units_for
from gradproof.frameworks.torch.subject.torch_subject import TorchSubject
from gradproof.frameworks.torch.subject.widening import widened

OF_VALUES = ("wrong-gradient", "non-finite-gradient")  # kinds of findings that values can settle
PATTERN_REASONS = (Reason.JUMP, Reason.DOMAIN, Reason.NONDETERMINISTIC)  # of a function of the pattern, not the values
SEMANTICS = {
    True: "(masked=True: the stored entries are the inputs.)",
    False: "(masked=False: every entry is an input, and zero where nothing is stored.)",
}
PATHS_NOTE = "The function has other values without a graph than with one: every call was given a graph, as in use."
CHANGES = "The outputs change beside the point, however small the step: {change}."
FITTING = "Choose a point around which the outputs keep their shapes and dtypes."
DRAWS_NOTE = (
    "The function draws random numbers, which were held fixed. If it samples by rejection, as Gamma does, its gradient "
    "may be right for the mean over all draws, which no single draw shows. Pass the draws to a function that you check."
)
REPEATS = 4  # pullbacks that are compared to measure nondeterminism
SCATTER_MARGIN = 4.0  # times the largest difference among them: further pullbacks may differ more
UNFINISHED = Judgement()  # of a derivative whose check the budget ended, as the report says in the end
DOUBLE = 1e-15  # the spacing of double-precision numbers near one is below this


class DerivativeJudge:
    """A judge of derivatives: `derivatives` are the labels of those judged so far, `notes` are for the report."""

    def __init__(self, options: Options, seed: int, *, progress: Progress, budget: Budget, draws_maps: bool) -> None:
        self.options, self.seed, self.progress, self.budget = options, seed, progress, budget
        self.draws_maps = draws_maps
        self.notes: list[str] = []
        self.derivatives: dict[str, None] = {}

    def judged(self, subject: TorchSubject, mode: str, label: str) -> Judgement:
        """Judge one derivative, again if the function has to be called or differentiated in another way."""
        self.derivatives[label] = None
        if mode == "reverse" and has_to_be_used(subject):
            return self._as_used(subject, mode, label)
        found = self._once(subject, mode, label)
        if subject.caller.draws and any(each.kind in OF_VALUES for each in found.findings):
            self.notes.append(DRAWS_NOTE)
        if found.verdict is not Verdict.PASS and mode == "reverse":
            way = self.budget.checking("another way", partial(better_way, subject, self.seed), None)
            if way is not None:
                again = subject.as_used() if way is Way.AS_USED else subject.with_single_use_graphs()
                kept = _of_memory(found) if way is Way.AS_USED else ()  # no contract is tested there
                found = self.judged(again, mode, label)
                kept = kept if found.verdict is Verdict.FAIL else ()
                return replace(found, findings=(*found.findings, *kept), notes=(*found.notes, *again.notes))
        if found.verdict is not Verdict.PASS and self.budget.checking(
            "values with a graph", subject.values_need_a_graph, otherwise=False
        ):
            self.notes.append(PATHS_NOTE)
            return self.judged(subject, mode, label)
        return unsupported(found, label) if is_unsupported(subject, mode, found) else _with_semantics(subject, found)

    def _as_used(self, subject: TorchSubject, mode: str, label: str) -> Judgement:
        """Judge the gradients that `loss.backward()` leaves."""
        again = subject.as_used()
        found = self.judged(again, mode, label)
        return replace(found, notes=(*found.notes, *(note for note in again.notes if note not in subject.notes)))

    def _once(self, subject: TorchSubject, mode: str, label: str) -> Judgement:
        """Judge one derivative; one in low precision by the same function in double precision, if that runs."""
        options, seed = self.options, self.seed
        full = options.coverage == "full"
        engine = without_cancelled_rounding(partial(judge_fully, progress=self.progress) if full else judge)
        wide = widened(subject) if subject.numbers.precision > DOUBLE and options.step is None else None
        engine = self._explaining(engine, wide or subject) if options.explain else engine
        own = in_mode(for_the_engine(subject), mode)
        shown = own if wide is None else in_mode(for_the_engine(wide), mode)
        with silence():
            units = units_for(wide or subject, shown)
            own, shown = units.of(own), units.of(shown)
        if wide is not None:
            subject.let_values_go()  # until its own values are needed, which is seldom
        first = engine if wide is None else partial(judge_rounded, wide=shown, judged=engine)
        probing = units.options(self.budget.checking(label, partial(self._probing, subject, mode), options.probing))
        given: dict[str, Any] = {"probes": options.probes, "seed": seed, "options": probing}
        self.progress.enter(f"every entry, {label}" if full else f"probing, {label}")
        with silence():
            if wide is not None and mode == "reverse" and not full and units.ordinary and options.probes == 1:
                quick = partial(judged_as_stream, subject, wide, seed, probing)
                first = _unless(self.budget.checking(label, quick, None), first)
            found = self.budget.checking(label, partial(first, own, **given), UNFINISHED)
            if wide is not None and has_raised(found) and _works(own, seed):
                self.notes.append(f"In double precision the derivative raises: {found.findings[0].message}")
                shown, found = own, self.budget.checking(label, partial(engine, own, **given), UNFINISHED)
            if self.draws_maps and any(each.kind == "wrong-gradient" for each in found.findings):
                self.progress.enter("drawing where it is wrong")
                blocks = HANDFUL if full else MANY
                draw = partial(heat_map, shown, seed, probing, blocks=blocks, measured=found.measured)
                with extra("The heat map", self.notes):
                    found = replace(found, maps=self.budget.explaining("the heat map", draw, ()))
        changes = (each.calls.change_beside(seed) for each in (subject, wide) if each is not None)
        if found.verdict is Verdict.PASS and (change := next(filter(None, changes), "")):
            found = replace(found, obstacle=Obstacle(Reason.JUMP, CHANGES.format(change=change), FITTING))
        self.progress.enter(f"contracts, {label}")
        return with_contracts(units.restored(found), subject, mode, options, seed, self.budget).named(label)

    def _explaining(self, engine: Callable[..., Judgement], own: TorchSubject) -> Callable[..., Judgement]:
        """Return a judge that also diagnoses what it finds wrong, with the steps of the forward in double precision."""

        def judged(subject: Subject, *, seed: int, **options: Any) -> Judgement:
            found, notes = engine(subject, seed=seed, **options), list[str]()
            if found.findings:
                self.progress.enter("diagnosing")
            with extra("The diagnosis", notes):
                found = self.budget.explaining(
                    "the diagnosis", partial(diagnosed, subject, found, seed, partial(Steps.of, own)), found
                )
            return replace(found, notes=(*found.notes, *notes)) if notes else found

        return judged

    def _probing(self, subject: TorchSubject, mode: str) -> Probing:
        """Return the engine's options. A measured nondeterminism of the backward is tolerated in every entry."""
        probing = self.options.probing
        if not probing.nondet_tol or mode != "reverse" or not subject.inputs.size or not subject.outputs.size:
            return probing
        try:
            answers = [subject.pullback(subject.cotangent(self.seed)) for _ in range(REPEATS)]
        except DerivativeError:  # the check itself reports it
            return probing
        width = max(float((answer - answers[0]).abs().max()) for answer in answers[1:])
        if not 0 < width <= probing.nondet_tol:
            return probing
        allowed = min(SCATTER_MARGIN * width, probing.nondet_tol)
        self.notes.append(
            f"The backward is nondeterministic: its gradients differ by {width:.1e} from call to call (nondet_tol="
            f"{probing.nondet_tol:g}). An error of less than {allowed:.1e} in an entry cannot be detected."
        )
        return replace(probing, atol=max(probing.atol, allowed))


def _of_memory(found: Judgement) -> tuple[Finding, ...]:
    """Return the findings of the contracts of kernels: what a function reads of memory makes it seem unrepeatable."""
    return tuple(finding for finding in found.findings if finding.kind in CONTRACT_GROUPS["kernel"])


def _works(subject: Subject, seed: int) -> bool:
    """Return True if the derivative runs in the precision that the function was called with."""
    try:
        if subject.mode == "reverse":
            subject.pullback(subject.cotangent(seed))
        else:
            subject.pushforward(subject.direction(seed, Step(first_step(subject.numbers.precision))))
    except DerivativeError:
        return False
    return True


def _with_semantics(subject: TorchSubject, found: Judgement) -> Judgement:
    """Add to findings about sparse inputs the semantics under which they hold."""
    if subject.inputs.strided:
        return found
    obstacle = found.obstacle
    if obstacle and not found.findings and not subject.semantics.masked and obstacle.reason in PATTERN_REASONS:
        hint = "If the function depends on which entries are stored, only masked=True has a derivative: pass that."
        return replace(found, obstacle=replace(obstacle, hint=f"{obstacle.hint} {hint}"))
    findings = [
        replace(finding, message=f"{finding.message} {SEMANTICS[subject.semantics.masked]}")
        if any(entry.stored is not None for entry in finding.entries)
        else finding
        for finding in found.findings
    ]
    return replace(found, findings=tuple(findings))


def _unless(found: Judgement | None, judged: Callable[..., Judgement]) -> Callable[..., Judgement]:
    """Return a judge that returns what was found, if something was."""
    return judged if found is None else lambda *_, **__: found
