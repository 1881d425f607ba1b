"""Tensors that a function captures: it uses them without receiving them as arguments.

A check varies a captured tensor if it is an input too, and notes that the others are not checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from gradproof.errors import InputError
from gradproof.frameworks.torch.internals import buffers_of
from gradproof.frameworks.torch.introspection.autograd_graph import nodes
from gradproof.frameworks.torch.introspection.closure_inspection import visible_modules, visible_objects
from gradproof.frameworks.torch.storage import can_hold_other_memory, same_numbers
from gradproof.frameworks.torch.subject.arguments import Call


def captured_tensors(results: Sequence[Tensor], given: Sequence[Tensor]) -> list[Tensor]:
    """Return the tensors that require grad, influence the results, and are not among the arguments."""
    known = {id(tensor) for tensor in given}
    return [
        leaf
        for node in nodes(results)
        if (leaf := getattr(node, "variable", None)) is not None and id(leaf) not in known
    ]


def bypassed_slots(call: Call, varied: Sequence[int], captured: Sequence[Tensor]) -> frozenset[int]:
    """Return the varied slots whose tensors the function captures, so that it ignores the arguments in their place."""
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


def notes_on(call: Call, strays: Sequence[Tensor]) -> list[str]:
    """Return a note for each captured tensor, and one for the arguments that are bypassed."""
    paths = [call.slots[number].path for number in sorted(call.bypassed)]
    bypassing = (
        f"{call.name} uses {', '.join(paths[:8])} directly and not as an argument. The tensors themselves were given "
        "other values during each call, and their own values afterwards."
    )
    return [*([bypassing] if paths else []), *(_notes_on_strays(call, strays) if strays else [])]


def _notes_on_strays(call: Call, strays: Sequence[Tensor]) -> list[str]:
    names = {id(tensor): name for name, tensor in _named_tensors(call.function)}
    notes = []
    for stray in strays[:8]:
        name = names.get(id(stray), "a tensor")
        shape = tuple(stray.shape)
        notes.append(
            f"{name} of shape {shape} requires grad and is used by {call.name} without being passed to it: "
            "its gradient is not checked. Pass it as an input."
        )
    if len(strays) > 8:
        notes.append(f"and {len(strays) - 8} more captured tensors.")
    return notes


def _named_tensors(function: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors that a function captures, with the names it uses for them."""
    for name, value in visible_objects(function).items():
        if isinstance(value, Tensor):
            yield name, value
        elif isinstance(value, nn.Module):
            yield from ((f"{name}.{inner}", tensor) for inner, tensor in value.named_parameters())
        elif hasattr(value, "__dict__"):
            members = [(key, member) for key, member in vars(value).items() if isinstance(member, Tensor)]
            yield from ((f"{name}.{key}", member) for key, member in members)


class HeldBuffers:
    """Copies of the buffers of modules that a function captures, since a call may write to them or replace them."""

    def __init__(self, function: Any) -> None:
        self._held = [
            (buffers_of(part), name, buffer, buffer.clone())
            for module in visible_modules(function).values()
            for part in module.modules()
            for name, buffer in buffers_of(part).items()
            if buffer is not None and not is_lazy(buffer) and not buffer.is_inference()
        ]

    def restore(self) -> None:
        """Restore the buffers. Their values are compared, since batch normalization writes without a new version."""
        for place, name, buffer, numbers in self._held:
            place[name] = buffer
            if not same_numbers(numbers, buffer):
                with torch.no_grad():
                    buffer.copy_(numbers)
