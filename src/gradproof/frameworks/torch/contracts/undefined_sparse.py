"""Undefined gradients of sparse tensors: torch replaces them by zeros that store no entry.

A backward that reads the values of its incoming gradient on the pattern of its output fails on those zeros. It is
seldom called without a gradient, so this is a note and not a finding.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from gradproof.engine.subject import DerivativeError
from gradproof.frameworks.torch.contracts.pullbacks import custom_nodes
from gradproof.frameworks.torch.storage import is_sparse
from gradproof.frameworks.torch.subject.torch_subject import TorchSubject

Gradients = tuple[Tensor | None, ...]


def raises_alike_for_empty_zeros(
    subject: TorchSubject,
    error: DerivativeError,
    *,
    ordinary: Callable[[], object],
    undefined: Callable[[], object],
) -> bool:
    """Return True if sparse zeros without entries raise the same error as undefined gradients.

    Torch does not let a hook replace an undefined gradient, so the zeros replace ordinary gradients instead.
    """
    nodes, unused = custom_nodes(subject.results), set[Any]()
    emptied = False

    def see(node: Any, arriving: Gradients) -> None:
        if all(one is None for one in arriving):
            unused.add(node)

    def empty(node: Any, arriving: Gradients) -> Gradients | None:
        nonlocal emptied
        if node not in unused:
            return None
        emptied = emptied or any(one is not None and is_sparse(one) for one in arriving)
        return tuple(one if one is None else _empty(one) for one in arriving)

    with _hooked(nodes, see), contextlib.suppress(DerivativeError):
        undefined()
    try:
        with _hooked(nodes, empty):
            ordinary()
    except DerivativeError as again:
        return emptied and str(again) == str(error)
    return False


def _empty(like: Tensor) -> Tensor:
    """Return zeros as torch makes them: sparse ones store no entry."""
    return torch.zeros(like.shape, dtype=like.dtype, layout=like.layout, device=like.device)


@contextlib.contextmanager
def _hooked(nodes: Sequence[Any], hook: Callable[[Any, Gradients], Gradients | None]) -> Iterator[None]:
    """Register a hook that sees the incoming gradients of some nodes, and may replace them."""
    with contextlib.ExitStack() as stack:
        for node in nodes:
            handle = node.register_prehook(lambda arriving, node=node: hook(node, arriving))
            stack.callback(handle.remove)
        yield
