"""How pushforwards are computed: by dual numbers, at the point of a subject or beside it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from torch import Tensor

from gradproof.engine.subject import DerivativeError
from gradproof.frameworks.torch.introspection.autograd_graph import is_compiled
from gradproof.frameworks.torch.subject.dual_numbers import push
from gradproof.frameworks.torch.subject.error_messages import UNCOMPILED, derivative_error, shapes

if TYPE_CHECKING:
    from gradproof.frameworks.torch.subject.torch_subject import TorchSubject

BYPASSED = "{name} uses inputs directly and not as arguments, which alone carry tangents. Let it use its arguments."


class Pushforwards:
    """The pushforwards of a subject; whether forward mode has all the rules that it needs is found out once."""

    def __init__(self, subject: TorchSubject) -> None:
        self._subject: TorchSubject = weakref.proxy(subject)  # a cycle would hold the subject's memory after a check
        self._rules_exist = False

    def slopes(self, place: Tensor, direction: Tensor) -> Tensor:
        """Return the claimed slopes of all outputs along a direction, at point + `place`."""
        subject = self._subject
        evaluations = subject.tally.evaluations
        if subject.call.bypassed:
            raise DerivativeError(BYPASSED.format(name=subject.name), absent=True)
        try:
            function = partial(subject.results_of, rest=subject.caller.copies())
            own = [tangent.clone() for tangent in subject.inputs.tensors(direction)]  # a jvp may write to them
            tangents = push(function, subject.moved(place), own, nested=subject.call.nested)
            if subject.outputs.strided and not all(bool(tangent.any()) for tangent in tangents):
                self._require_rules(function, own)
            if subject.outputs.fits(tangents):
                return subject.outputs.coordinates(tangents)
        except Exception as error:
            refused = isinstance(error, NotImplementedError) and is_compiled(subject.results)
            hint = UNCOMPILED if refused else ""
            raise derivative_error(error, absent=subject.call.nested, hint=hint) from error  # torch cannot nest all
        finally:
            subject.tally.evaluations = evaluations  # the call counts as a pushforward
            subject.tally.pushforwards += 1
        raise DerivativeError(f"a tangent of {shapes(tangents)} for an output of {shapes(subject.results)}")

    def _require_rules(self, function: Callable[..., list[Tensor]], tangents: Sequence[Tensor]) -> None:
        """Raise torch's error if an operator has no jvp; it is silent unless its inputs require grad."""
        subject = self._subject
        if self._rules_exist or subject.detached:
            return
        leaves = [point.clone().requires_grad_() for point in subject.points]
        try:
            push(function, leaves, tangents, nested=subject.call.nested)
        except NotImplementedError:
            raise
        except Exception:
            pass  # not every function takes inputs that require grad
        self._rules_exist = True
