"""Pullbacks for contracts: with other incoming gradients, results or leaves than those of the subject."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from gradproof.engine.subject import DerivativeError
from gradproof.frameworks.torch.internals import function_class
from gradproof.frameworks.torch.introspection.autograd_graph import nodes
from gradproof.frameworks.torch.subject.error_messages import describe
from gradproof.frameworks.torch.subject.torch_subject import TorchSubject

SEVERAL = 8  # outputs or inputs that are left undefined one at a time
FUNCTIONS = 16  # of the user's own that are looked into, at most


def gradients(
    subject: TorchSubject,
    incoming: Sequence[Tensor],
    *,
    results: Sequence[Tensor] | None = None,
    leaves: Sequence[Tensor] | None = None,
) -> list[Tensor | None]:
    """Return the gradients as autograd computes them: None for an input without influence.

    A graph with leaves of its own serves this once; compiled functions may refuse to retain it.
    """
    if results is None and leaves is None:
        return subject.graphs.gradients(incoming)
    subject.tally.pullbacks += 1
    try:
        with subject.caller.timed():
            found = torch.autograd.grad(
                subject.results if results is None else results,
                subject.leaves if leaves is None else leaves,
                incoming,
                retain_graph=not subject.graphs.single_use and (leaves is None or leaves is subject.leaves),
                allow_unused=True,
            )
    except Exception as error:
        raise DerivativeError(describe(error)) from error
    return list(found)


def arriving(subject: TorchSubject, leaf: Tensor, incoming: Sequence[Tensor]) -> Tensor:
    """Return the gradient that a backward accumulates in a leaf.

    Torch adds few sparse layouts. A gradient may have one of those on its way, and the leaf's layout once accumulated.
    """
    subject.tally.pullbacks += 1
    held, leaf.grad = leaf.grad, None
    try:
        with subject.caller.timed():
            torch.autograd.backward(subject.results, incoming, retain_graph=True, inputs=[leaf])
        assert leaf.grad is not None
        return leaf.grad
    except Exception as error:
        raise DerivativeError(describe(error)) from error
    finally:
        leaf.grad = held


def coordinates(subject: TorchSubject, found: Sequence[Tensor | None]) -> Tensor:
    """Return gradients as one vector; zero for an input without influence."""
    return subject.inputs.coordinates(found)


def left_out(count: int) -> list[Sequence[int]]:
    """Return the groups of outputs or inputs to leave undefined: one at a time, or every other one of many.

    >>> left_out(1), left_out(3)
    ([], [(0,), (1,), (2,)])
    """
    if count < 2:
        return []
    everything = range(count)
    return [(number,) for number in everything] if count <= SEVERAL else [everything[::2], everything[1::2]]


def custom_nodes(results: Sequence[Tensor]) -> list[Any]:
    """Return the nodes of autograd Functions written in Python behind the results, up to a few."""
    own = (node for node in nodes(results) if function_class(node) is not None)
    return [node for node, _ in zip(own, range(FUNCTIONS), strict=False)]


def saved_by(own: Sequence[Any]) -> Iterator[tuple[Any, Tensor]]:
    """Yield the tensors that Functions saved, each with its node."""
    for node in own:
        try:
            saved = node.saved_tensors
        except Exception:  # written to since, which is an error when the backward asks for it, and none before
            continue
        yield from ((node, tensor) for tensor in saved if tensor is not None and tensor.layout == torch.strided)


def function_name(node: Any) -> str:
    """Return the name of the Function behind a node."""
    kind = function_class(node)
    assert kind is not None
    return kind.__name__
