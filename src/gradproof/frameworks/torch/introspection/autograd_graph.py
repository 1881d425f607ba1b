"""Inspect the autograd graph behind some results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from gradproof.frameworks.torch.internals import function_class

NODES = 20_000  # at most: the graph is inspected for notes and defaults, which are not worth more time


def nodes(results: Sequence[Tensor]) -> Iterator[Any]:
    """Yield the nodes behind these results, each once."""
    waiting = [tensor.grad_fn for tensor in results if tensor.grad_fn is not None]
    seen = set(waiting)
    while waiting and len(seen) < NODES:
        node = waiting.pop()
        yield node
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)


def lone_function(results: Sequence[Tensor]) -> type[torch.autograd.Function] | None:
    """Return the class of the one autograd Function behind the results, if there is no other operation."""
    found = (node for node in nodes(results) if node.name() != "torch::autograd::AccumulateGrad")
    first, second = next(found, None), next(found, None)
    return function_class(first) if second is None else None


def custom_functions(results: Sequence[Tensor]) -> list[type[torch.autograd.Function]]:
    """Return the classes of the user's own autograd Functions behind the results; those of torch are left out."""
    found = (function_class(node) for node in nodes(results))
    return list(dict.fromkeys(kind for kind in found if kind is not None and not _is_of_torch(kind)))


def _is_of_torch(kind: type[torch.autograd.Function]) -> bool:
    return kind.__module__.split(".", 1)[0] == "torch"


def is_compiled(results: Sequence[Tensor]) -> bool:
    """Return True if a function made by torch.compile is behind the results."""
    kinds = (function_class(node) for node in nodes(results))
    return any(kind is not None and _is_of_torch(kind) and kind.__name__ == "CompiledFunction" for kind in kinds)


def has_forward_rule(kind: type[torch.autograd.Function]) -> bool:
    """Return True if a Function defines its own jvp."""
    return kind.jvp is not torch.autograd.Function.jvp


def has_batching_rule(kind: type[torch.autograd.Function]) -> bool:
    """Return True if a Function defines its own vmap."""
    return kind.vmap is not torch.autograd.Function.vmap and not kind.generate_vmap_rule


def refusal(results: Sequence[Tensor]) -> str | None:
    """Return why a backward behind these results, themselves gradients, cannot be differentiated; None if all can.

    The node that refuses raises its message for any incoming gradient.
    """
    refusing = next((node for node in nodes(results) if node.name() == "torch::autograd::Error"), None)
    if refusing is None:
        return None
    try:
        refusing(torch.zeros(()))
    except RuntimeError as error:
        return str(error)
    return "a backward refuses to be differentiated"
