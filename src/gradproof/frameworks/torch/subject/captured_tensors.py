"""Tensors that a function captures: it uses them without receiving them as arguments.

A check varies a captured tensor if it is an input too, and notes that the others are not checked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from torch import Tensor

from gradproof.errors import InputError
from gradproof.frameworks.torch.internals import has_gradient_hooks
from gradproof.frameworks.torch.introspection.autograd_graph import nodes
from gradproof.frameworks.torch.introspection.reach import Reach
from gradproof.frameworks.torch.storage import can_hold_other_memory
from gradproof.frameworks.torch.subject.arguments import Call

HOOKED = "{paths}: the hooks that change this gradient were left out. What autograd computes was checked without them."


def captured_tensors(results: Sequence[Tensor], given: Sequence[Tensor]) -> list[Tensor]:
    """Return the tensors that require grad, influence the results, and are not among the arguments."""
    known = {id(tensor) for tensor in given}
    return [
        leaf
        for node in nodes(results)
        if (leaf := getattr(node, "variable", None)) is not None and id(leaf) not in known
    ]


def bypassed_slots(call: Call, varied: Sequence[int], captured: Sequence[Tensor]) -> frozenset[int]:
    """Return the varied slots whose tensors the function captures, and so uses in place of its arguments."""
    known = {id(tensor) for tensor in captured}
    found = [number for number in varied if id(call.slots[number].tensor) in known]
    tensors = [call.slots[number].tensor for number in found]
    for number, tensor in zip(found, tensors, strict=True):
        twice = sum(other is tensor for other in tensors) > 1
        if twice or not can_hold_other_memory(tensor):
            why = (
                "is among the inputs twice"
                if twice
                else f"is {tensor.layout}, whose values torch cannot replace in place"
            )
            raise InputError(
                f"{call.name} uses {call.slots[number].path} directly and not as an argument, and it {why}. Let the "
                "function use its arguments."
            )
    return frozenset(found)


def notes_on(call: Call, others: Sequence[Tensor], reach: Reach, unhooked: Collection[int]) -> list[str]:
    """Return a note for each captured tensor, and one for the arguments that are bypassed.

    `unhooked` are the ids of tensors that go without some of their hooks during the check.
    """
    paths = [call.slots[number].path for number in sorted(call.bypassed) if not call.in_place]
    bypassing = (
        f"{call.name} uses {', '.join(paths[:8])} directly and not as an argument. The tensors themselves were given "
        "other values during each call, and their own values afterwards."
    )
    freed = ", ".join([call.slots[number].path for number in sorted(call.freed)][:8])
    freeing = f"{call.name} frees the memory of {freed}: every call was given a copy of its own."
    own = [slot for slot in call.slots if id(slot.tensor) in unhooked or not call.in_place]  # where hooks are left out
    hooked = ", ".join(
        [slot.path for slot in own if id(slot.tensor) in unhooked or has_gradient_hooks(slot.tensor)][:8]
    )
    return [
        *([HOOKED.format(paths=hooked)] if hooked else []),
        *([freeing] if freed else []),
        *([bypassing] if paths else []),
        *(_notes_on_others(call, others, reach) if others else []),
    ]


def _notes_on_others(call: Call, others: Sequence[Tensor], reach: Reach) -> list[str]:
    names = {id(tensor): name for name, tensor in _named_tensors(reach)}
    notes = []
    for tensor in others[:8]:
        name = names.get(id(tensor), "a tensor")
        shape = tuple(tensor.shape)
        notes.append(
            f"{name} of shape {shape} requires grad and is used by {call.name} without being passed to it: "
            "its gradient is not checked. Pass it as an input."
        )
    if len(others) > 8:
        notes.append(f"and {len(others) - 8} more captured tensors.")
    return notes


def _named_tensors(reach: Reach) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors within reach, by path."""
    yield from reach.tensors.items()
    for path, module in reach.modules.items():
        parameters = module.named_parameters(recurse=False)
        yield from ((f"{path}.{name}" if path else name, tensor) for name, tensor in parameters)
