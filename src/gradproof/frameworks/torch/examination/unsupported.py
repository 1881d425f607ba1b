"""Derivatives that torch does not have: alone they are inconclusive, beside others they are a note."""

from __future__ import annotations

from dataclasses import replace

from gradproof.engine.results import Obstacle, Reason
from gradproof.engine.verdict import Judgement, together
from gradproof.frameworks.torch.introspection.autograd_graph import custom_functions, has_forward_rule
from gradproof.frameworks.torch.storage import is_strided
from gradproof.frameworks.torch.subject.torch_subject import TorchSubject

CONVERT = "Differentiate with respect to the stored values, or convert to a layout that torch can differentiate."


def is_unsupported(subject: TorchSubject, mode: str, found: Judgement) -> bool:
    """Return True if a derivative of torch's own raised: torch does not support it, as for many sparse tensors."""
    if not has_raised(found):
        return False
    if _is_refused(found):
        return True
    if all_strided(subject) and all(is_strided(slot.tensor) for slot in subject.slots):
        return False
    if mode == "forward" and not subject.inputs.strided:
        return True  # torch makes no dual numbers of them
    own = custom_functions(subject.results)
    return not (own if mode == "reverse" else [kind for kind in own if has_forward_rule(kind)])


def unsupported(found: Judgement, label: str) -> Judgement:
    """Return the judgement of a derivative that torch does not support."""
    message = f"Torch has no derivative ({label}) of this. {found.findings[0].message}"
    hint = found.findings[0].hint if _is_refused(found) else CONVERT
    return Judgement(obstacle=Obstacle(Reason.UNSUPPORTED, message, hint), notes=found.notes)


def joined(judgements: list[Judgement]) -> Judgement:
    """Join several judgements; a derivative that torch does not support is a note beside those that it does."""
    unavailable = [each for each in judgements if each.obstacle and each.obstacle.reason is Reason.UNSUPPORTED]
    found = [judgement for judgement in judgements if judgement not in unavailable]
    if not found or not unavailable:
        return together(judgements)
    whole = together(found)
    messages = tuple(judgement.message for judgement in unavailable)
    return replace(whole, notes=(*whole.notes, *messages), unsupported=messages)


def has_raised(found: Judgement) -> bool:
    """Return True if the derivative raised, or if there is no rule for it."""
    return any(finding.kind.endswith(("-raised", "-rule", "-refused")) for finding in found.findings)


def _is_refused(found: Judgement) -> bool:
    """Return True if torch said by itself that it does not differentiate this, and what to do instead."""
    return found.findings[0].kind.endswith("-refused")


def all_strided(subject: TorchSubject) -> bool:
    """Return True if the inputs and outputs are strided tensors."""
    return subject.inputs.strided and subject.outputs.strided
