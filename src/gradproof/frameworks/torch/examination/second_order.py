"""Judge second derivatives: the derivatives, in the chosen modes, of the gradient and of the pushforward."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from gradproof.engine.findings import raised
from gradproof.engine.results import Verdict
from gradproof.engine.subject import DerivativeError
from gradproof.engine.verdict import Judgement
from gradproof.engine.views import in_mode
from gradproof.errors import InputError
from gradproof.frameworks.torch.examination.derivative_judge import UNFINISHED, DerivativeJudge
from gradproof.frameworks.torch.examination.unsupported import has_raised, is_unsupported, unsupported
from gradproof.frameworks.torch.introspection.autograd_graph import custom_functions, has_forward_rule, refusal
from gradproof.frameworks.torch.subject.derivatives import Incoming, derivative
from gradproof.frameworks.torch.subject.error_messages import hint_for
from gradproof.frameworks.torch.subject.torch_subject import TorchSubject


class SecondOrder:
    """The second derivatives of one function, at given or random incoming gradients."""

    def __init__(self, subject: TorchSubject, judge: DerivativeJudge, incoming: Incoming) -> None:
        self.subject, self.judge, self.incoming = subject, judge, incoming

    def judgements(self, nestings: dict[str, list[str]]) -> Iterator[Judgement]:
        """Judge every nesting: `nestings` has the outer modes for each inner mode."""
        for inner, outers in nestings.items():
            labels = {outer: f"{outer} over {inner}" for outer in outers}
            if self.subject.detached and (cut := self._cut(inner)) is not None:
                self.judge.derivatives |= dict.fromkeys(labels.values())
                yield from map(cut.named, labels.values())
            else:
                yield from self._of_inner(inner, labels)

    def _of_inner(self, inner: str, labels: dict[str, str]) -> Iterator[Judgement]:
        """Judge the derivatives of one first derivative."""
        begin = partial(derivative, self.subject, inner, self.incoming)
        try:
            derived = self.judge.budget.checking(f"derivatives over {inner}", begin, None)
        except InputError:
            raise
        except Exception as error:
            for label in labels.values():
                failed = _failed(self.subject, label, inner, error)
                yield unsupported(failed, label) if is_unsupported(self.subject, inner, failed) else failed
            return
        if derived is None:
            yield UNFINISHED
            return
        for outer, label in labels.items():
            if outer == "reverse" and (why := refusal(derived.results)) is not None:
                yield _failed(derived, label, outer, NotImplementedError(why))
                continue
            found = self._retried(self.judge.judged(derived, outer, label), inner, outer, label)
            forward = outer == inner == "forward"
            yield self._without_tangents_of_jvps(derived, found, label) if forward else found

    def _cut(self, mode: str) -> Judgement | None:
        """Judge the first derivative of a function without a graph; None if it passes, as of a constant.

        The derivative of a graph that is cut is zero everywhere, and so is the derivative of that.
        """
        found = self.judge.judged(self.subject, mode, mode)
        del self.judge.derivatives[mode]
        return None if found.verdict is Verdict.PASS else found

    def _without_tangents_of_jvps(self, derived: TorchSubject, found: Judgement, label: str) -> Judgement:
        """Judge forward over forward of a Function with a jvp, of which torch takes all second tangents for zeros.

        That is a failure if nothing else was asked for, and a note beside the other nestings.
        """
        derivatives = self.judge.derivatives
        own = [kind.__name__ for kind in custom_functions(self.subject.results) if has_forward_rule(kind)]
        if not own or found.verdict is not Verdict.FAIL or (has_raised(found) and set(derivatives) == {label}):
            return found
        del derivatives[label]
        reason = f"torch ignores second tangents of a Function's jvp ({', '.join(own[:8])})"
        failed = _failed(derived, label, "forward", NotImplementedError(reason))
        return failed if not derivatives else unsupported(failed, label)

    def _retried(self, found: Judgement, inner: str, outer: str, label: str) -> Judgement:
        """Judge reverse over forward again by `torch.func.jvp` if reverse mode cannot differentiate dual numbers."""
        if (outer, inner) != ("reverse", "forward") or not has_raised(found):
            return found
        try:
            again = self.judge.judged(derivative(self.subject, inner, self.incoming, functionally=True), outer, label)
        except Exception:  # not every function can be pushed that way
            return found
        if has_raised(again):
            return found
        note = f"{label}: checked by torch.func.jvp, since dual numbers raised: {found.findings[0].message}"
        return replace(again, notes=(*again.notes, note))


def _failed(subject: TorchSubject, label: str, inner: str, error: Exception) -> Judgement:
    """Judge a first derivative that cannot be computed, and so cannot be differentiated."""
    absent = isinstance(error, NotImplementedError)
    cause = DerivativeError(f"{type(error).__name__}: {error}", absent=absent, hint=hint_for(error))
    finding = raised(in_mode(subject, inner), cause)
    return Judgement(findings=(finding,)).named(label)
