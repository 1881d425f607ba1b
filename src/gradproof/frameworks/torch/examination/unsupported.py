"""What torch itself cannot differentiate: nothing to judge, and a note beside what it can."""

from __future__ import annotations

from dataclasses import replace

from gradproof.engine.results import Obstacle, Reason
from gradproof.engine.verdict import Judgement, together
from gradproof.frameworks.torch.introspection.autograd_graph import custom_functions, has_forward_rule
from gradproof.frameworks.torch.storage import is_plain
from gradproof.frameworks.torch.subject.torch_subject import TorchSubject

REENTRANT = "When use_reentrant=True"  # the first words of a checkpoint that gives no gradient of chosen inputs


def torch_lacks(subject: TorchSubject, mode: str, found: Judgement) -> bool:
    """Whether a derivative raised that is torch's own: one that cannot be asked for, or of sparse or masked tensors."""
    if not has_raised(found):
        return False
    if REENTRANT in found.findings[0].message:
        return True
    if all_plain(subject) and all(is_plain(slot.tensor) for slot in subject.slots):
        return False
    if mode == "forward" and not subject.inputs.plain:
        return True  # torch makes no dual numbers of them
    own = custom_functions(subject.results)
    return not (own if mode == "reverse" else [kind for kind in own if has_forward_rule(kind)])


def missing(found: Judgement, label: str) -> Judgement:
    """There is nothing to judge: torch cannot differentiate this."""
    said = found.findings[0].message
    hint = "Differentiate with respect to the stored values, or convert to a layout that torch can differentiate."
    if REENTRANT in said:
        hint = "Check the function with use_reentrant=False."
    message = f"Torch has no derivative ({label}) of this. {said}"
    return Judgement(obstacle=Obstacle(Reason.UNSUPPORTED, message, hint), notes=found.notes)


def available(judgements: list[Judgement]) -> Judgement:
    """One judgement of several; what torch cannot differentiate is a note beside what it can."""
    lacking = [each for each in judgements if each.obstacle and each.obstacle.reason is Reason.UNSUPPORTED]
    found = [judgement for judgement in judgements if judgement not in lacking]
    if not found or not lacking:
        return together(judgements)
    whole = together(found)
    messages = tuple(judgement.message for judgement in lacking)
    return replace(whole, notes=(*whole.notes, *messages), unsupported=messages)


def has_raised(found: Judgement) -> bool:
    """Whether there is no derivative to hold to anything."""
    return any(finding.kind.endswith(("-raised", "-rule")) for finding in found.findings)


def all_plain(subject: TorchSubject) -> bool:
    """Whether the inputs and outputs are strided tensors."""
    return subject.inputs.plain and subject.outputs.plain
