"""Contract: a gradient has the dtype, shape, device, layout and sparse dimensions of its input.

Autograd casts and sums what a Function returns. So the Function's own gradients are inspected too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from gradproof._options import ContractName
from gradproof.engine.results import Finding
from gradproof.frameworks.torch.contracts.contract import KEPT, Context, Outcome
from gradproof.frameworks.torch.contracts.pullbacks import arriving, custom_nodes, function_name, gradients
from gradproof.frameworks.torch.internals import gradient_metadata
from gradproof.frameworks.torch.storage import is_sparse
from gradproof.frameworks.torch.subject.arguments import differentiable
from gradproof.frameworks.torch.subject.torch_subject import TorchSubject
from gradproof.sparse.pattern.layouts import name_of


def attributes(subject: TorchSubject, context: Context) -> Outcome:
    """Compare each gradient with its input, and what the user's own Functions return with what they were given."""
    if subject.detached:
        return KEPT
    received: list[tuple[Any, tuple[Tensor | None, ...]]] = []
    sent = context.incoming(subject)
    own = custom_nodes(subject.results) if context.dtypes else ()
    handles = [node.register_prehook(_recorder(node, received)) for node in own]
    try:
        found = gradients(subject, sent)
    finally:
        for handle in handles:
            handle.remove()
    findings: list[Finding] = []
    notes: list[str] = []
    for part, leaf, gradient in zip(subject.inputs.parts, subject.leaves, found, strict=True):
        if gradient is not None:
            if _changes_layout(leaf, gradient):
                gradient = arriving(subject, leaf, sent)
            findings += _findings(part.path, leaf, gradient, layouts=context.layouts)
            notes += _notes(part.path, leaf, gradient)
    for node, incoming in received:
        for finding, note in _raw(subject, node, incoming):
            findings += [finding] if finding else []
            notes += [note] if note else []
    return Outcome(findings=tuple(findings), notes=tuple(dict.fromkeys(notes)))


def _recorder(node: Any, received: list[tuple[Any, tuple[Tensor | None, ...]]]) -> Any:
    return lambda incoming: received.append((node, incoming))


def _changes_layout(leaf: Tensor, gradient: Tensor) -> bool:
    return is_sparse(gradient) and is_sparse(leaf) and gradient.layout != leaf.layout


def _findings(path: str, leaf: Tensor, gradient: Tensor, *, layouts: bool) -> Iterator[Finding]:
    pairs = {
        "dtype": (gradient.dtype, leaf.dtype),
        "size": (tuple(gradient.shape), tuple(leaf.shape)),
        "device": (gradient.device, leaf.device),
    }
    if is_sparse(gradient) and (layouts or is_sparse(leaf)):
        pairs["layout"] = (gradient.layout, leaf.layout)
        if is_sparse(leaf) and gradient.layout == leaf.layout:
            pairs["sparse_dim"] = (gradient.sparse_dim(), leaf.sparse_dim())
            pairs["dense_dim"] = (gradient.dense_dim(), leaf.dense_dim())
    for name, (has, wants) in pairs.items():
        if has != wants:
            yield Finding(
                kind=ContractName.ATTRIBUTES.value,
                message=f"The gradient with respect to {path} has {name} {has}, where the input has {wants}.",
                argument=path,
                hint="Return a gradient of the input's kind from the backward.",
            )


def _notes(path: str, leaf: Tensor, gradient: Tensor) -> Iterator[str]:
    if (gradient.layout == torch.strided) != (leaf.layout == torch.strided):
        yield (
            f"The gradient with respect to {path} is {name_of(gradient.layout)}, and the input {name_of(leaf.layout)}."
        )
    if (
        gradient.layout == leaf.layout == torch.sparse_coo
        and is_sparse(leaf)
        and leaf.is_coalesced()
        and not gradient.is_coalesced()
    ):
        yield f"The gradient with respect to {path} is not coalesced, and the input is."


def _raw(
    subject: TorchSubject, node: Any, incoming: tuple[Tensor | None, ...]
) -> Iterator[tuple[Finding | None, str | None]]:
    """Yield findings and notes about what a Function returned, before autograd casts it."""
    if any(gradient is None for gradient in incoming):
        return
    try:
        with torch.no_grad(), subject.caller.timed():
            returned = node.apply(*(gradient.clone() for gradient in incoming if gradient is not None))
        returned = returned if isinstance(returned, tuple) else (returned,)
        needed = [piece for piece, needs in zip(returned, node.needs_input_grad, strict=False) if needs]
        edges = [edge for edge in node.next_functions if edge[0] is not None]
        wanted = [gradient_metadata(following, number) for following, number in edges]
    except Exception:  # autograd itself gave a gradient, so a failure of this direct call proves nothing
        return
    for piece, meta in zip(needed, wanted, strict=True) if len(needed) == len(wanted) else ():
        if isinstance(piece, Tensor):
            yield _narrowed(function_name(node), piece, meta), _mended(function_name(node), piece, meta)


def _narrowed(name: str, piece: Tensor, meta: Any) -> Finding | None:
    if not differentiable(piece) or torch.finfo(piece.dtype).eps <= torch.finfo(meta.dtype).eps:
        return None
    return Finding(
        kind=ContractName.ATTRIBUTES.value,
        message=f"The backward of {name} returns a gradient of {piece.dtype} for an input of {meta.dtype}: autograd "
        "widens it, and the digits are lost.",
        hint="Compute the gradient in the input's dtype.",
    )


def _mended(name: str, piece: Tensor, meta: Any) -> str | None:
    shape = tuple(meta.shape)
    if tuple(piece.shape) != shape:
        return f"The backward of {name} returns size {tuple(piece.shape)} for an input of {shape}; autograd sums it."
    if piece.dtype != meta.dtype:
        return f"The backward of {name} returns {piece.dtype} for an input of {meta.dtype}; autograd casts it."
    return None
