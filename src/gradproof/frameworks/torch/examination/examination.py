"""Examine one function: choose the derivatives to check, have each judged, and join the judgements."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from gradproof._options import Options
from gradproof.engine.adjoint import adjoint_disagreement
from gradproof.engine.extras import extra
from gradproof.engine.results import Obstacle, Reason, Verdict
from gradproof.engine.scales import outputs_below_rounding
from gradproof.engine.thresholds import ENOUGH
from gradproof.engine.verdict import Judgement
from gradproof.errors import InputError
from gradproof.frameworks.torch.examination.budget import Budget
from gradproof.frameworks.torch.examination.culprits import with_culprits
from gradproof.frameworks.torch.examination.derivative_judge import OF_VALUES, DerivativeJudge
from gradproof.frameworks.torch.examination.progress import Progress, Silent
from gradproof.frameworks.torch.examination.second_order import SecondOrder
from gradproof.frameworks.torch.examination.unsupported import has_raised, joined
from gradproof.frameworks.torch.internals import dual_level_is_open
from gradproof.frameworks.torch.introspection.autograd_graph import custom_functions, has_forward_rule
from gradproof.frameworks.torch.subject.derivatives import Incoming
from gradproof.frameworks.torch.subject.torch_subject import TorchSubject
from gradproof.frameworks.torch.subject.written_inputs import depends_on_writes, replaces_inputs

TINY_OUTPUTS = (
    "{outputs}: tiny compared with other outputs, whose rounding may hide an error in the gradient. Check a function "
    "that returns these outputs alone."
)
WRITES = "The function writes to {paths}: every call was given a copy of its own."


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
        explains = self.is_whole and options.explain
        self.finds_culprits = explains and options.order == 1
        self.incoming = incoming or Incoming()
        self._judge = DerivativeJudge(options, seed, progress=self.progress, budget=self.budget, draws_maps=explains)

    @property
    def derivatives(self) -> tuple[str, ...]:
        """The derivatives that were judged: modes, or nestings of them."""
        return tuple(self._judge.derivatives)

    @property
    def notes(self) -> list[str]:
        """Notes for the report."""
        return self._judge.notes

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
        whole = _resolved_well(self.budget.concluded(whole), self.options, self.subject.numbers.precision)
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
        answers = {mode: self._judge.judged(self.subject, mode, mode) for mode in self._modes()}
        if len(answers) == 2:
            answers = self.budget.checking("both modes beside each other", partial(self._compared, answers), answers)
        small = partial(outputs_below_rounding, self.subject)
        if tiny := self.budget.explaining("outputs of other sizes", small, list[str]()):
            self.notes.append(TINY_OUTPUTS.format(outputs=", ".join(tiny[:8])))
        yield from answers.values()

    def _second_order(self) -> Iterator[Judgement]:
        return SecondOrder(self.subject, self._judge, self.incoming).judgements(self._nestings())

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


def _resolved_well(found: Judgement, options: Options, precision: float) -> Judgement:
    """Return the judgement; one that passes at a coarser resolution than is wanted is inconclusive.

    Unless the user says otherwise, an error as large as the gradient itself must have been seen in double precision. A
    gradient of zero has no size to compare with.
    """
    relative, wanted = found.resolution.relative, options.min_resolution
    hint = f"min_resolution={wanted or 1:g} asks for more. Check in float64, with more probes=, or one input at a time."
    if wanted is None and precision < ENOUGH and relative < math.inf and not (options.rtol or options.atol):
        wanted = 1.0
        hint = "Check at a point where the gradient is larger beside the rounding of the values."
    if wanted is None or found.verdict is not Verdict.PASS or relative <= wanted:
        return found
    message = f"No error was found, but one of {relative:.1e} of the largest entry would not have been detected."
    return replace(found, obstacle=Obstacle(Reason.RESOLUTION, message, hint))


def _explained(judgement: Judgement, side: str) -> Judgement:
    if has_raised(judgement):
        return judgement
    findings = tuple(
        replace(finding, message=f"{finding.message} {side}") if finding.kind in OF_VALUES else finding
        for finding in judgement.findings
    )
    return replace(judgement, findings=findings)


def _mutated(paths: list[str]) -> Judgement:
    message = f"The function writes to {', '.join(paths)}, so its value at the point is not well defined."
    return Judgement(
        obstacle=Obstacle(Reason.MUTATION, message, "Clone the input inside the function before writing to it.")
    )
