"""Tensors that a function uses without being given them: they shape the result, and a check does not vary them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor, nn

from gradproof.frameworks.torch.arguments import Call
from gradproof.frameworks.torch.graph import nodes


def captured_tensors(call: Call, results: Sequence[Tensor], given: Sequence[Tensor]) -> list[str]:
    """A note for each tensor that requires grad, reaches the results, and is not among the arguments."""
    known = {id(tensor) for tensor in given}
    strays: list[Tensor] = [
        leaf
        for node in nodes(results)
        if (leaf := getattr(node, "variable", None)) is not None and id(leaf) not in known
    ]
    if not strays:
        return []
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
    while isinstance(function, functools.partial):
        function = function.func
    owner = getattr(function, "__self__", None)
    scope: dict[str, Any] = {} if owner is None else {"self": owner}
    try:
        seen = inspect.getclosurevars(inspect.unwrap(getattr(function, "__func__", function)))
    except TypeError:
        seen = None
    if seen is not None:
        scope.update(seen.globals)
        scope.update(seen.nonlocals)
    for name, value in scope.items():
        if isinstance(value, Tensor):
            yield name, value
        elif isinstance(value, nn.Module):
            yield from ((f"{name}.{inner}", tensor) for inner, tensor in value.named_parameters())
        elif hasattr(value, "__dict__"):
            members = [(key, member) for key, member in vars(value).items() if isinstance(member, Tensor)]
            yield from ((f"{name}.{key}", member) for key, member in members)
