"""Contract: a jvp treats undefined tangents as zeros, and gives zero for zero."""

from __future__ import annotations

from collections.abc import Collection

import torch

from gradproof._options import ContractName
from gradproof.engine.subject import DerivativeError, Step
from gradproof.frameworks.torch.contracts.comparison import KERNEL_ROUNDINGS, largest, tangent_gap
from gradproof.frameworks.torch.contracts.contract import KEPT, Context, Outcome, broken, listed
from gradproof.frameworks.torch.contracts.pullbacks import left_out
from gradproof.frameworks.torch.contracts.pushforwards import pushed
from gradproof.frameworks.torch.internals import zero_tensor_like
from gradproof.frameworks.torch.subject.dual_numbers import NESTED
from gradproof.frameworks.torch.subject.torch_subject import TorchSubject

ADVICE = "After ctx.set_materialize_grads(False) an input that carries no tangent has None for it: treat it as zeros."


def undefined_forward(subject: TorchSubject, context: Context) -> Outcome:
    """Push zeros forward, then leave some tangents undefined, and compare with zeros in their place."""
    if subject.call.nested:
        return KEPT
    outcome = _at_zero(subject)
    for absent in left_out(len(subject.points)):
        if outcome is KEPT:
            outcome = _without(subject, context, absent)
    return outcome


def _at_zero(subject: TorchSubject) -> Outcome:
    """Push zeros without memory forward, as torch has them for tangents never written, or else ordinary zeros."""
    unwritten = [zero_tensor_like(point) for point in subject.points]
    try:
        try:
            found = pushed(subject, unwritten)
        except DerivativeError:  # some of torch's own rules refuse that form when it is handed to them
            found = pushed(subject, [torch.zeros_like(point) for point in subject.points])
    except DerivativeError as error:
        return _raised("For tangents of zeros", error)
    wrong = torch.where(subject.centre.isfinite(), found.abs(), 0.0).nan_to_num(0.0)
    if float(wrong.max()) <= KERNEL_ROUNDINGS * subject.numbers.precision * largest(subject.centre):
        return KEPT
    place = subject.outputs.locate(int(wrong.argmax()))
    return broken(
        ContractName.UNDEFINED_FORWARD,
        f"For tangents of zeros the tangent of {place.path} is not zero ({float(wrong.max()):.3g} at {place}).",
        hint="Multiply by the tangent: the jvp adds something that does not depend on it.",
    )


def _raised(where: str, error: DerivativeError) -> Outcome:
    """Return the outcome of a jvp that raises; kept if the function opens a dual level itself, as torch has one."""
    return (
        KEPT
        if NESTED in str(error)
        else broken(ContractName.UNDEFINED_FORWARD, f"{where} the jvp raised {error}", hint=ADVICE)
    )


def _without(subject: TorchSubject, context: Context, absent: Collection[int]) -> Outcome:
    """Compare inputs without a tangent with zeros in their place."""
    zeroed = subject.direction(context.seed, Step(1.0))
    for number in absent:
        start, stop = subject.inputs.spans[number]
        zeroed[start:stop] = 0.0
    tangents = subject.inputs.tensors(zeroed)
    paths = [subject.inputs.parts[number].path for number in absent]
    names = listed(paths)
    try:
        found = pushed(subject, [None if number in absent else tangent for number, tangent in enumerate(tangents)])
    except DerivativeError as error:
        return _raised(f"Where {names} carries no tangent", error)
    worst = tangent_gap(subject, context, zeroed, subject.pushforward(zeroed), found)
    if worst is None:
        return KEPT
    place = subject.outputs.locate(worst.coordinate)
    return broken(
        ContractName.UNDEFINED_FORWARD,
        f"Where {names} carries no tangent the tangent of {place.path} is not what a tangent of zeros gives "
        f"({worst} at {place}).",
        argument=paths[0],
        hint=ADVICE,
    )
