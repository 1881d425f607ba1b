"""Tensors that a function uses without being given them: a check varies those that are inputs too, and no others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from gradproof.errors import InputError
from gradproof.frameworks.torch.internals import buffers_of
from gradproof.frameworks.torch.introspection.autograd_graph import nodes
from gradproof.frameworks.torch.introspection.closure_inspection import modules_seen_by, seen_by
from gradproof.frameworks.torch.storage import can_hold_other_memory, same_numbers
from gradproof.frameworks.torch.subject.arguments import Call


def captured_tensors(results: Sequence[Tensor], given: Sequence[Tensor]) -> list[Tensor]:
    """The tensors that require grad, reach the results, and are not among the arguments."""
    known = {id(tensor) for tensor in given}
    return [
        leaf
        for node in nodes(results)
        if (leaf := getattr(node, "variable", None)) is not None and id(leaf) not in known
    ]


def bypassed_slots(call: Call, varied: Sequence[int], captured: Sequence[Tensor]) -> frozenset[int]:
    """The varied slots whose own tensors are captured: the function has them by itself, whatever it is given."""
    known = {id(tensor) for tensor in captured}
    found = [number for number in varied if id(call.slots[number].tensor) in known]
    tensors = [call.slots[number].tensor for number in found]
    for number, tensor in zip(found, tensors, strict=True):
        twice = sum(other is tensor for other in tensors) > 1
        if twice or not can_hold_other_memory(tensor):
            why = "stands among the inputs twice" if twice else f"is {tensor.layout}, which torch cannot move in place"
            raise InputError(
                f"{call.name} uses {call.slots[number].path} by itself and not as an argument, and it {why}. Let the "
                "function use what it is given."
            )
    return frozenset(found)


def notes_on(call: Call, strays: Sequence[Tensor]) -> list[str]:
    """A note for each captured tensor, and for the arguments that are bypassed."""
    paths = [call.slots[number].path for number in sorted(call.bypassed)]
    bypassing = (
        f"{call.name} uses {', '.join(paths[:8])} by itself and not as an argument: for the time of each call it was "
        "moved where it is, and put back."
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
    """The tensors that a function can see, by the names that it sees them under."""
    for name, value in seen_by(function).items():
        if isinstance(value, Tensor):
            yield name, value
        elif isinstance(value, nn.Module):
            yield from ((f"{name}.{inner}", tensor) for inner, tensor in value.named_parameters())
        elif hasattr(value, "__dict__"):
            members = [(key, member) for key, member in vars(value).items() if isinstance(member, Tensor)]
            yield from ((f"{name}.{key}", member) for key, member in members)


class HeldBuffers:
    """The buffers of modules that a function can see, as they were: a call may write to them, or put others there."""

    def __init__(self, function: Any) -> None:
        self._held = [
            (buffers_of(part), name, buffer, buffer.clone())
            for module in modules_seen_by(function).values()
            for part in module.modules()
            for name, buffer in buffers_of(part).items()
            if buffer is not None and not is_lazy(buffer) and not buffer.is_inference()
        ]

    def put_back(self) -> None:
        """Leave them as they were found. Their versions tell nothing: torch's own normalisations write unseen."""
        for place, name, buffer, numbers in self._held:
            place[name] = buffer
            if not same_numbers(numbers, buffer):
                with torch.no_grad():
                    buffer.copy_(numbers)
