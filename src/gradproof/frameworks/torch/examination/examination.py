"""Examine one function: choose the derivatives to check, judge each as a subject in a mode, and join the judgements."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from gradproof._options import Options
from gradproof.engine.adjoint import adjoint_disagreement
from gradproof.engine.cancellation import without_cancelled_rounding
from gradproof.engine.diagnosis import diagnosed
from gradproof.engine.estimators.steps import first_step
from gradproof.engine.extras import extra
from gradproof.engine.findings import raised
from gradproof.engine.jacobian.cover import judge_fully
from gradproof.engine.judging import judge
from gradproof.engine.options import Probing
from gradproof.engine.pictures import heat_map
from gradproof.engine.precision import judge_rounded
from gradproof.engine.results import Obstacle, Reason, Verdict
from gradproof.engine.scales import outputs_below_rounding
from gradproof.engine.subject import DerivativeError, Step, Subject
from gradproof.engine.thresholds import HANDFUL, MANY
from gradproof.engine.verdict import Judgement
from gradproof.engine.views import in_mode
from gradproof.errors import InputError
from gradproof.frameworks.torch.examination.budget import Budget
from gradproof.frameworks.torch.examination.contract_runner import with_contracts
from gradproof.frameworks.torch.examination.culprits import with_culprits
from gradproof.frameworks.torch.examination.progress import Progress, Silent
from gradproof.frameworks.torch.examination.unsupported import has_raised, is_unsupported, joined, unsupported
from gradproof.frameworks.torch.internals import dual_level_is_open
from gradproof.frameworks.torch.introspection.autograd_graph import (
    custom_functions,
    has_forward_rule,
    refusal,
)
from gradproof.frameworks.torch.subject.derivatives import Incoming, derivative
from gradproof.frameworks.torch.subject.graphs import Way, better_way
from gradproof.frameworks.torch.subject.numpy_subject import for_the_engine, silence
from gradproof.frameworks.torch.subject.sizes import units_for
from gradproof.frameworks.torch.subject.torch_subject import TorchSubject
from gradproof.frameworks.torch.subject.widening import widened
from gradproof.frameworks.torch.subject.written_inputs import depends_on_writes, replaces_inputs

OF_VALUES = ("wrong-gradient", "non-finite-gradient")  # kinds of findings that values can settle
PATTERN = (Reason.JUMP, Reason.DOMAIN, Reason.NONDETERMINISTIC)  # of a function of the pattern, not the values
TINY_OUTPUTS = (
    "{outputs}: tiny compared with other outputs, whose rounding may hide an error in the gradient. Check a function "
    "that returns these outputs alone."
)
SEMANTICS = {
    True: "(masked=True: the stored entries are the inputs.)",
    False: "(masked=False: every entry is an input, and zero where nothing is stored.)",
}
WRITES = "The function writes to {paths}: every call was given a copy of its own."
PATHS = "The function has other values without a graph than with one: every call was given a graph, as in use."
DRAWS = (
    "The function draws random numbers, which were held fixed. If it samples by rejection, as Gamma does, its gradient "
    "may be right for the mean over all draws, which no single draw shows. Pass the draws to a function that you check."
)
REPEATS = 4  # pullbacks that are compared to measure nondeterminism
MARGIN = 4.0  # times the largest difference among them: further pullbacks may differ more
UNFINISHED = Judgement()  # of a derivative whose check the budget ended, as the report says in the end
DOUBLE = 1e-15  # the spacing of double-precision numbers near one is below this


class Examination:
    """The checks of one function at one point."""

    is_whole = True  # a part of a function is examined by `_PartExamination`

    def __init__(
        self,
        subject: TorchSubject,
        options: Options,
        seed: int,
        *,
        incoming: Incoming | None = None,
        progress: Progress | None = None,
        budget: Budget | None = None,
    ) -> None:
        self.subject, self.options, self.seed = subject, options, seed
        self.progress = progress or Silent()
        self.budget = budget or Budget(None, began=0.0)
        self.draws_maps = self.is_whole and options.explain
        self.finds_culprits = self.draws_maps and options.order == 1
        self.incoming = incoming or Incoming()
        self.notes: list[str] = []
        self.derivatives: dict[str, None] = {}

    def judgement(self) -> Judgement:
        """Judge every derivative that was asked for, and join the judgements."""
        if dual_level_is_open() and "forward" in self._asked():
            raise InputError(
                "A forward_ad.dual_level is open, and torch allows one alone. Leave it before checking forward mode."
            )
        if self.subject.mutated and replaces_inputs(self.subject):
            whole = _mutated(self.subject.mutated)
        else:
            whole = joined(list(self._second_order() if self.options.order == 2 else self._first_order()))
            if self.subject.mutated:
                whole = self.budget.checking("what writes change", partial(self._with_writes, whole), whole)
            if self.finds_culprits:
                self.progress.enter("looking for the part to blame")
                blame = partial(with_culprits, whole, self.subject, self._part)
                with extra("The search for the wrong module", self.notes):
                    whole = self.budget.explaining("the part to blame", blame, whole)
        whole = _resolved_well(self.budget.concluded(whole), self.options.min_resolution)
        notes = (*dict.fromkeys(whole.notes), *self.subject.notes, *self.notes)
        return whole if notes == whole.notes else replace(whole, notes=notes)

    def _with_writes(self, whole: Judgement) -> Judgement:
        """Return the judgement of a function that writes to its inputs; an obstacle if that explains what is wrong."""
        of_values = all(finding.kind in OF_VALUES for finding in whole.findings)
        if whole.verdict is not Verdict.PASS and of_values and depends_on_writes(self.subject, self.seed):
            return _mutated(self.subject.mutated)
        self.notes.append(WRITES.format(paths=", ".join(self.subject.mutated)))
        return whole

    def _part(self, part: TorchSubject) -> Judgement:
        """Judge a part of the function by itself, with one probe and no contracts."""
        brief = replace(self.options, coverage="probe", contracts=(), probes=1, progress=False)
        return _PartExamination(part, brief, self.seed).judgement()

    def _asked(self) -> set[str]:
        return {*(self.options.modes or ()), *(mode for nesting in self.options.nestings or () for mode in nesting)}

    def _modes(self) -> tuple[str, ...]:
        if self.options.modes is not None:
            return self.options.modes
        own = custom_functions(self.subject.results)
        if own and all(map(has_forward_rule, own)) and not self.subject.call.bypassed:
            return ("reverse", "forward")
        if without := [kind.__name__ for kind in own if not has_forward_rule(kind)]:
            self.notes.append(f"{', '.join(without[:8])}: no jvp, so forward mode was not checked.")
        return ("reverse",)

    def _first_order(self) -> Iterator[Judgement]:
        modes = self._modes()
        answers = {mode: self._judged(self.subject, mode, mode) for mode in modes}
        if len(answers) == 2:
            answers = self.budget.checking("both modes beside each other", partial(self._compared, answers), answers)
        small = partial(outputs_below_rounding, self.subject)
        if tiny := self.budget.explaining("outputs of other sizes", small, list[str]()):
            self.notes.append(TINY_OUTPUTS.format(outputs=", ".join(tiny[:8])))
        yield from answers.values()

    def _second_order(self) -> Iterator[Judgement]:
        for inner, outers in self._nestings().items():
            if self.subject.detached and (cut := self._cut(inner)) is not None:
                labels = [f"{outer} over {inner}" for outer in outers]
                self.derivatives |= dict.fromkeys(labels)
                yield from map(cut.named, labels)
                continue
            begin = partial(derivative, self.subject, inner, self.incoming)
            try:
                derived = self.budget.checking(f"derivatives over {inner}", begin, None)
            except InputError:
                raise
            except Exception as error:
                for label in (f"{outer} over {inner}" for outer in outers):
                    failed = _failed(self.subject, label, inner, error)
                    yield unsupported(failed, label) if is_unsupported(self.subject, inner, failed) else failed
                continue
            if derived is None:
                yield UNFINISHED
                continue
            for outer in outers:
                label = f"{outer} over {inner}"
                if outer == "reverse" and (why := refusal(derived.results)) is not None:
                    yield _failed(derived, label, outer, NotImplementedError(why))
                else:
                    found = self._retried(self._judged(derived, outer, label), inner, outer, label)
                    yield (
                        self._without_tangents_of_jvps(derived, found, label) if outer == inner == "forward" else found
                    )

    def _cut(self, mode: str) -> Judgement | None:
        """Judge the first derivative of a function without a graph; None if it passes, as of a constant.

        The derivative of a graph that is cut is zero everywhere, and so is the derivative of that.
        """
        found = self._judged(self.subject, mode, mode)
        del self.derivatives[mode]
        return None if found.verdict is Verdict.PASS else found

    def _without_tangents_of_jvps(self, derived: TorchSubject, found: Judgement, label: str) -> Judgement:
        """Judge forward over forward of a Function with a jvp, of which torch takes all second tangents for zeros.

        That is a failure if nothing else was asked for, and a note beside the other nestings.
        """
        own = [kind.__name__ for kind in custom_functions(self.subject.results) if has_forward_rule(kind)]
        if not own or found.verdict is not Verdict.FAIL or (has_raised(found) and set(self.derivatives) == {label}):
            return found
        del self.derivatives[label]
        reason = f"torch ignores second tangents of a Function's jvp ({', '.join(own[:8])})"
        failed = _failed(derived, label, "forward", NotImplementedError(reason))
        return failed if not self.derivatives else unsupported(failed, label)

    def _retried(self, found: Judgement, inner: str, outer: str, label: str) -> Judgement:
        """Judge reverse over forward again by `torch.func.jvp` if reverse mode cannot differentiate dual numbers."""
        if (outer, inner) != ("reverse", "forward") or not has_raised(found):
            return found
        try:
            again = self._judged(derivative(self.subject, inner, self.incoming, functionally=True), outer, label)
        except Exception:  # not every function can be pushed that way
            return found
        if has_raised(again):
            return found
        note = f"{label}: checked by torch.func.jvp, since dual numbers raised: {found.findings[0].message}"
        return replace(again, notes=(*again.notes, note))

    def _nestings(self) -> dict[str, list[str]]:
        """Return the outer modes for each inner mode."""
        if self.options.nestings is None:
            modes = self._modes()
            found = {inner: list(modes) for inner in modes}
            if self.options.modes is None and "forward" in modes:
                found["forward"].remove("forward")
                self.notes.append(
                    "Forward over forward was not checked: torch ignores second tangents of a Function's jvp."
                )
            return found
        given: dict[str, list[str]] = {}
        for outer, inner in self.options.nestings:
            given.setdefault(inner, []).append(outer)
        return given

    def _judged(self, subject: TorchSubject, mode: str, label: str) -> Judgement:
        """Judge one derivative; one in low precision by the same function in double precision, if that runs."""
        self.derivatives[label] = None
        options, seed = self.options, self.seed
        ask = partial(judge_fully, progress=self.progress) if options.coverage == "full" else judge
        ask = without_cancelled_rounding(ask)
        ask = natively = self._explaining(ask) if options.explain else ask
        wide = widened(subject) if subject.numbers.precision > DOUBLE and options.step is None else None
        judged = in_mode(for_the_engine(subject), mode)
        shown = judged if wide is None else in_mode(for_the_engine(wide), mode)
        with silence():
            units = units_for(wide or subject, shown)
            judged, shown = units.of(judged), units.of(shown)
        if wide is not None:
            ask = partial(judge_rounded, wide=shown, judged=ask)
        probing = units.options(self.budget.checking(label, partial(self._probing, subject, mode), options.probing))
        given: dict[str, Any] = {"probes": options.probes, "seed": seed, "options": probing}
        self.progress.enter(f"every entry, {label}" if options.coverage == "full" else f"probing, {label}")
        with silence():
            found = self.budget.checking(label, partial(ask, judged, **given), UNFINISHED)
            if wide is not None and has_raised(found) and _works(judged, seed):
                self.notes.append(f"In double precision the derivative raises: {found.findings[0].message}")
                shown, found = judged, self.budget.checking(label, partial(natively, judged, **given), UNFINISHED)
            if self.draws_maps and any(each.kind == "wrong-gradient" for each in found.findings):
                blocks = HANDFUL if options.coverage == "full" else MANY
                self.progress.enter("drawing where it is wrong")
                draw = partial(heat_map, shown, seed, probing, blocks=blocks, measured=found.measured)
                with extra("The heat map", self.notes):
                    found = replace(found, maps=self.budget.explaining("the heat map", draw, ()))
        self.progress.enter(f"contracts, {label}")
        found = with_contracts(units.restored(found), subject, mode, options, seed, self.budget).named(label)
        if subject.caller.draws and any(each.kind in OF_VALUES for each in found.findings):
            self.notes.append(DRAWS)
        if found.verdict is not Verdict.PASS and mode == "reverse":
            way = self.budget.checking("another way", partial(better_way, subject, seed), None)
            if way is not None:
                again = subject.as_used() if way is Way.AS_USED else subject.with_single_use_graphs()
                found = self._judged(again, mode, label)
                return replace(found, notes=(*found.notes, *again.notes))
        if found.verdict is not Verdict.PASS and self.budget.checking(
            "values with a graph", subject.values_need_a_graph, otherwise=False
        ):
            self.notes.append(PATHS)
            return self._judged(subject, mode, label)
        return unsupported(found, label) if is_unsupported(subject, mode, found) else _with_semantics(subject, found)

    def _explaining(self, ask: Callable[..., Judgement]) -> Callable[..., Judgement]:
        """Return a judge that also diagnoses what it finds wrong."""

        def judged(subject: Subject, *, seed: int, **options: Any) -> Judgement:
            found, notes = ask(subject, seed=seed, **options), list[str]()
            if found.findings:
                self.progress.enter("diagnosing")
            with extra("The diagnosis", notes):
                found = self.budget.explaining("the diagnosis", partial(diagnosed, subject, found, seed), found)
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
        allowed = min(MARGIN * width, probing.nondet_tol)
        self.notes.append(
            f"The backward is nondeterministic: its gradients differ by {width:.1e} from call to call (nondet_tol="
            f"{probing.nondet_tol:g}). An error of less than {allowed:.1e} in an entry cannot be detected."
        )
        return replace(probing, atol=max(probing.atol, allowed))

    def _compared(self, answers: dict[str, Judgement]) -> dict[str, Judgement]:
        """Compare both modes: of values, pullback and pushforward, the one that contradicts the other two is wrong."""
        reverse, forward = answers["reverse"], answers["forward"]
        if reverse.verdict is Verdict.FAIL and forward.verdict is Verdict.PASS:
            answers["reverse"] = _explained(reverse, "The pushforward agrees with the values: the backward is wrong.")
        elif forward.verdict is Verdict.FAIL and reverse.verdict is Verdict.PASS:
            answers["forward"] = _explained(forward, "The pullback agrees with the values: the jvp is wrong.")
        elif reverse.verdict is Verdict.PASS and forward.verdict is Verdict.PASS:
            finding = adjoint_disagreement(self.subject, self.seed, self.options.probing)
            if finding is not None:
                answers["forward"] = replace(forward, findings=(finding,))
        return answers


class _PartExamination(Examination):
    """The check of one part of a wrong function: with a diagnosis, but without a heat map and without culprits."""

    is_whole = False


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


def _resolved_well(found: Judgement, wanted: float | None) -> Judgement:
    """Return the judgement; one that passes at a coarser resolution than is wanted is inconclusive."""
    relative = found.resolution.relative
    if wanted is None or found.verdict is not Verdict.PASS or relative <= wanted:
        return found
    message = f"No error was found, but one of {relative:.1e} of the largest entry would not have been detected."
    hint = f"min_resolution={wanted:g} asks for more. Check in float64, with more probes=, or one input at a time."
    return replace(found, obstacle=Obstacle(Reason.RESOLUTION, message, hint))


def _with_semantics(subject: TorchSubject, found: Judgement) -> Judgement:
    """Add to findings about sparse inputs the semantics under which they hold."""
    if subject.inputs.plain:
        return found
    obstacle = found.obstacle
    if obstacle and not found.findings and not subject.semantics.masked and obstacle.reason in PATTERN:
        hint = "If the function depends on which entries are stored, only masked=True has a derivative: pass that."
        return replace(found, obstacle=replace(obstacle, hint=f"{obstacle.hint} {hint}"))
    findings = [
        replace(finding, message=f"{finding.message} {SEMANTICS[subject.semantics.masked]}")
        if any(entry.stored is not None for entry in finding.entries)
        else finding
        for finding in found.findings
    ]
    return replace(found, findings=tuple(findings))


def _explained(judgement: Judgement, side: str) -> Judgement:
    if has_raised(judgement):
        return judgement
    findings = tuple(
        replace(finding, message=f"{finding.message} {side}") if finding.kind in OF_VALUES else finding
        for finding in judgement.findings
    )
    return replace(judgement, findings=findings)


def _failed(subject: TorchSubject, label: str, inner: str, error: Exception) -> Judgement:
    """Judge a first derivative that cannot be computed, and so cannot be differentiated."""
    absent = isinstance(error, NotImplementedError)
    cause = DerivativeError(f"{type(error).__name__}: {error}", absent=absent)
    finding = raised(in_mode(subject, inner), cause)
    return Judgement(findings=(finding,)).named(label)


def _mutated(paths: list[str]) -> Judgement:
    message = f"The function writes to {', '.join(paths)}, so its value at the point is not well defined."
    return Judgement(
        obstacle=Obstacle(Reason.MUTATION, message, "Clone the input inside the function before writing to it.")
    )
