"""One examination: which derivatives of a function are judged, each as a subject in a mode, and what they add up to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from gradproof._options import ContractName, Options
from gradproof.engine.adjoint import adjoint_disagreement
from gradproof.engine.diagnosis import diagnosed
from gradproof.engine.findings import raised
from gradproof.engine.jacobian.cover import Progress, judge_fully
from gradproof.engine.judging import judge
from gradproof.engine.options import Probing
from gradproof.engine.pictures import BLOCKS, FULL_BLOCKS, heat_map
from gradproof.engine.precision import judge_rounded
from gradproof.engine.results import Finding, Obstacle, Reason, Verdict
from gradproof.engine.scales import overshadowed
from gradproof.engine.subject import DerivativeError, Subject
from gradproof.engine.verdict import Judgement
from gradproof.engine.views import in_mode
from gradproof.errors import InputError
from gradproof.frameworks.torch.contracts import CONTRACTS, Context, Contract, Outcome
from gradproof.frameworks.torch.contracts.contract import broken
from gradproof.frameworks.torch.examination.culprits import blamed
from gradproof.frameworks.torch.examination.unsupported import all_plain, available, has_raised, missing, torch_lacks
from gradproof.frameworks.torch.internals import dual_level_is_open
from gradproof.frameworks.torch.introspection.autograd_graph import (
    custom_functions,
    differentiable_once,
    has_forward_rule,
)
from gradproof.frameworks.torch.subject.derivatives import Incoming, derivative
from gradproof.frameworks.torch.subject.numpy_subject import for_the_engine, silence
from gradproof.frameworks.torch.subject.torch_subject import TorchSubject

OF_VALUES = ("wrong-gradient", "non-finite-gradient")  # kinds of findings that values can settle
PATTERN = (Reason.JUMP, Reason.DOMAIN, Reason.NONDETERMINISTIC)  # of a function of the pattern, not the values
SHADOW = (
    "{outputs}: tiny beside other outputs, so that an error in the gradient may be lost in their rounding. Check a "
    "function that returns nothing else."
)
SEMANTICS = {
    True: "(masked=True: the stored entries are the inputs.)",
    False: "(masked=False: every entry is an input, and zero where nothing is stored.)",
}
WAVERINGS, GRANTED = 4, 4.0  # answers that are compared, and how much more others may differ
DOUBLE = 1e-15  # the spacing of double-precision numbers near one is below this


def _silent(_done: int, _of: int) -> None:
    """Show no progress."""


class Examination:
    """All questions about one function at one point."""

    is_whole = True  # a part of a function is examined by `_PartExamination`

    def __init__(
        self,
        subject: TorchSubject,
        options: Options,
        seed: int,
        *,
        incoming: Incoming | None = None,
        progress: Progress = _silent,
    ) -> None:
        self.subject, self.options, self.seed, self.progress = subject, options, seed, progress
        self.mapping = self.is_whole and options.explain
        self.blaming = self.mapping and options.order == 1
        self.incoming = incoming or Incoming()
        self.notes: list[str] = []
        self.derivatives: dict[str, None] = {}

    def judgement(self) -> Judgement:
        """What all answers add up to."""
        if dual_level_is_open() and "forward" in self._asked():
            raise InputError(
                "A forward_ad.dual_level is open, and torch has one at a time: leave it before checking forward mode."
            )
        if self.subject.mutated:
            whole = _mutated(self.subject.mutated)
        else:
            whole = available(list(self._second_order() if self.options.order == 2 else self._first_order()))
            whole = blamed(whole, self.subject, self._part) if self.blaming else whole
        notes = (*dict.fromkeys(whole.notes), *self.subject.notes, *self.notes)
        return whole if notes == whole.notes else replace(whole, notes=notes)

    def _part(self, part: TorchSubject) -> Judgement:
        """A part of the function judged by itself, briefly."""
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
            answers = self._compared(answers)
        if tiny := overshadowed(self.subject):
            self.notes.append(SHADOW.format(outputs=", ".join(tiny[:8])))
        yield from answers.values()

    def _second_order(self) -> Iterator[Judgement]:
        for inner, outers in self._nestings().items():
            try:
                derived = derivative(self.subject, inner, self.incoming)
            except InputError:
                raise
            except Exception as error:
                for label in (f"{outer} over {inner}" for outer in outers):
                    failed = _failed(self.subject, label, inner, error)
                    yield missing(failed, label) if torch_lacks(self.subject, inner, failed) else failed
                continue
            for outer in outers:
                label = f"{outer} over {inner}"
                if outer == "reverse" and differentiable_once(derived.results):
                    reason = NotImplementedError("the backward is marked as once_differentiable")
                    yield _failed(derived, label, outer, reason)
                else:
                    found = self._retried(self._judged(derived, outer, label), inner, outer, label)
                    yield self._as_far_as_told(derived, found, label) if outer == inner == "forward" else found

    def _as_far_as_told(self, derived: TorchSubject, found: Judgement, label: str) -> Judgement:
        """Torch calls a Function's jvp with forward mode off, and takes its tangents for zeros.

        That is a failure where nothing else is asked for, and a note beside the other nestings.
        """
        own = [kind.__name__ for kind in custom_functions(self.subject.results) if has_forward_rule(kind)]
        if not own or found.verdict is not Verdict.FAIL or (has_raised(found) and set(self.derivatives) == {label}):
            return found
        del self.derivatives[label]
        reason = f"torch gives no tangents of a Function's jvp, whatever it computes ({', '.join(own[:8])})"
        failed = _failed(derived, label, "forward", NotImplementedError(reason))
        return failed if not self.derivatives else missing(failed, label)

    def _retried(self, found: Judgement, inner: str, outer: str, label: str) -> Judgement:
        """Reverse mode cannot go back through every dual number; then through `torch.func.jvp`, if that can."""
        if (outer, inner) != ("reverse", "forward") or not has_raised(found):
            return found
        try:
            again = self._judged(derivative(self.subject, inner, self.incoming, functionally=True), outer, label)
        except Exception:  # not every function can be pushed that way
            return found
        if has_raised(again):
            return found
        note = f"{label}: by torch.func.jvp; through dual numbers torch said: {found.findings[0].message}"
        return replace(again, notes=(*again.notes, note))

    def _nestings(self) -> dict[str, list[str]]:
        """For each inner mode the outer ones."""
        if self.options.nestings is None:
            modes = self._modes()
            found = {inner: list(modes) for inner in modes}
            if self.options.modes is None and "forward" in modes:
                found["forward"].remove("forward")
                self.notes.append("Forward over forward was not checked: torch gives no tangents of a Function's jvp.")
            return found
        given: dict[str, list[str]] = {}
        for outer, inner in self.options.nestings:
            given.setdefault(inner, []).append(outer)
        return given

    def _judged(self, subject: TorchSubject, mode: str, label: str) -> Judgement:
        """One derivative judged; in low precision by the same function in double precision, where there is one."""
        self.derivatives[label] = None
        options, seed = self.options, self.seed
        ask = partial(judge_fully, progress=self.progress) if options.coverage == "full" else judge
        ask = _explaining(ask) if options.explain else ask
        wide = subject.widened() if subject.numbers.precision > DOUBLE and options.step is None else None
        judged = shown = in_mode(for_the_engine(subject), mode)
        if wide is not None:
            shown = in_mode(for_the_engine(wide), mode)
            ask = partial(judge_rounded, wide=shown, judged=ask)
        probing = self._probing(subject, mode)
        with silence():
            found = ask(judged, probes=options.probes, seed=seed, options=probing)
            if self.mapping and any(each.kind == "wrong-gradient" for each in found.findings):
                blocks = FULL_BLOCKS if options.coverage == "full" else BLOCKS
                found = replace(found, maps=heat_map(shown, seed, probing, blocks=blocks, measured=found.measured))
        found = self._held_to_contracts(subject, mode, found).named(label)
        return missing(found, label) if torch_lacks(subject, mode, found) else _in_sparse_words(subject, found)

    def _probing(self, subject: TorchSubject, mode: str) -> Probing:
        """What the engine is told; of a backward that may waver, how much it does, which no entry is blamed for."""
        told = self.options.probing
        if not told.nondet_tol or mode != "reverse" or not subject.inputs.size or not subject.outputs.size:
            return told
        try:
            answers = [subject.pullback(subject.cotangent(self.seed)) for _ in range(WAVERINGS)]
        except DerivativeError:  # which is told where it is asked about in earnest
            return told
        width = max(float((answer - answers[0]).abs().max()) for answer in answers[1:])
        if not 0 < width <= told.nondet_tol:
            return told
        granted = min(GRANTED * width, told.nondet_tol)
        self.notes.append(
            f"The backward's answers differ by {width:.1e} from call to call (nondet_tol={told.nondet_tol:g}): an "
            f"error of less than {granted:.1e} in an entry is not told from that."
        )
        return replace(told, atol=max(told.atol, granted))

    def _held_to_contracts(self, subject: TorchSubject, mode: str, found: Judgement) -> Judgement:
        """The judgement, with the contracts of this mode that are broken."""
        asked = self.options.contracts
        if asked is not None and not asked:
            return found
        wanted = [contract for name, contract in CONTRACTS.items() if asked is None or name in asked]
        chosen = [each for each in wanted if each.mode == mode and (asked is not None or each.is_usual(subject))]
        if not chosen or not subject.inputs.size or not subject.outputs.size or _unanswered(found):
            return found
        subject.forget()
        context = Context(
            seed=self.seed,
            nondet_tol=self.options.nondet_tol,
            dtypes=self.options.dtypes,
            full=self.options.coverage == "full",
        )
        findings: list[Finding] = []
        notes: list[str] = []
        for contract in chosen:
            outcome = self._outcome(contract, subject, context)
            findings += outcome.findings
            notes += outcome.notes
            if outcome.absent and self.options.contracts is None:
                notes += [f"Contract '{contract.name}': {outcome.absent}"] if all_plain(subject) else []
            elif outcome.absent:
                findings += broken(contract.name, outcome.absent, hint="Add the rule, or do not ask for it.").findings
        if findings and findings[0].kind == ContractName.DETACHED and found.findings:
            first = found.findings[0]  # one thing, said once
            detached = replace(findings[0], argument=first.argument, entries=first.entries, diagnoses=first.diagnoses)
            findings = [detached, *findings[1:]]
            found = replace(found, findings=())
        return replace(found, findings=(*found.findings, *findings), notes=(*found.notes, *notes))

    @staticmethod
    def _outcome(contract: Contract, subject: TorchSubject, context: Context) -> Outcome:
        try:
            return contract.holds(subject, context)
        except DerivativeError as error:
            return broken(
                contract.name,
                f"The derivative raised {error}",
                hint=f"It was asked about the contract '{contract.name}'; an ordinary question it could answer.",
            )

    def _compared(self, answers: dict[str, Judgement]) -> dict[str, Judgement]:
        """With values, pullback and pushforward at hand: where two of the three agree, the third is wrong."""
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
    """The questions about one part of a function that is wrong: it gets a diagnosis, but no map and no culprits."""

    is_whole = False


def _explaining(ask: Callable[..., Judgement]) -> Callable[..., Judgement]:
    """A judge that also says what a mistake looks like."""

    def judged(subject: Subject, *, seed: int, **terms: Any) -> Judgement:
        return diagnosed(subject, ask(subject, seed=seed, **terms), seed)

    return judged


def _in_sparse_words(subject: TorchSubject, found: Judgement) -> Judgement:
    """What is said of sparse inputs, with the semantics under which it holds."""
    if subject.inputs.plain:
        return found
    obstacle = found.obstacle
    if obstacle and not found.findings and not subject.semantics.masked and obstacle.reason in PATTERN:
        hint = "If the function depends on which entries are stored, only masked=True has an answer: pass that."
        return replace(found, obstacle=replace(obstacle, hint=f"{obstacle.hint} {hint}"))
    findings = [
        replace(finding, message=f"{finding.message} {SEMANTICS[subject.semantics.masked]}")
        if any(entry.stored is not None for entry in finding.entries)
        else finding
        for finding in found.findings
    ]
    return replace(found, findings=tuple(findings))


def _unanswered(found: Judgement) -> bool:
    """Whether there is no derivative to speak of, or one that cannot be read."""
    return has_raised(found) or any(finding.kind == "malformed-gradient" for finding in found.findings)


def _explained(judgement: Judgement, side: str) -> Judgement:
    if has_raised(judgement):
        return judgement
    findings = tuple(
        replace(finding, message=f"{finding.message} {side}") if finding.kind in OF_VALUES else finding
        for finding in judgement.findings
    )
    return replace(judgement, findings=findings)


def _failed(subject: TorchSubject, label: str, inner: str, error: Exception) -> Judgement:
    """The first derivative cannot be had as a function."""
    absent = isinstance(error, NotImplementedError)
    cause = DerivativeError(f"{type(error).__name__}: {error}", absent=absent)
    finding = raised(in_mode(subject, inner), cause)
    return Judgement(findings=(finding,)).named(label)


def _mutated(paths: list[str]) -> Judgement:
    message = f"The function writes to {', '.join(paths)}, so its value at the point is not well defined."
    return Judgement(
        obstacle=Obstacle(Reason.MUTATION, message, "Clone the input inside the function before writing to it.")
    )
