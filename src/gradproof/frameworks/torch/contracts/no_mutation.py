"""Contract: a backward does not write to inputs, results, saved tensors or its incoming gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gradproof._options import ContractName
from gradproof.frameworks.torch.contracts.contract import KEPT, Context, Outcome, broken
from gradproof.frameworks.torch.contracts.pullbacks import custom_nodes, function_name, gradients, saved_by
from gradproof.frameworks.torch.internals import version_of
from gradproof.frameworks.torch.storage import Fingerprint, refilled, same_numbers
from gradproof.frameworks.torch.subject.calling import LARGE_TENSOR
from gradproof.frameworks.torch.subject.torch_subject import TorchSubject

ADVICE = "Other nodes of the graph still read it: compute out of place, or clone it first."


class Watch:
    """Snapshots of tensors, each with a name, that are compared with the tensors later."""

    def __init__(self) -> None:
        self._seen: list[tuple[str, Tensor, int, Fingerprint]] = []

    def add(self, words: str, tensor: Tensor) -> None:
        """Take a snapshot of a tensor."""
        self._seen.append((words, tensor, version_of(tensor), Fingerprint(tensor)))

    def mutated(self) -> str | None:
        """Return the name of the first tensor that has changed since its snapshot; None if none has."""
        for words, tensor, version, seen in self._seen:
            if version_of(tensor) != version or not seen.is_of(tensor):
                return words
        return None


def no_mutation(subject: TorchSubject, context: Context) -> Outcome:
    """Compare everything that a backward may read before and after its first run."""
    if subject.detached:
        return KEPT
    incoming = context.incoming(subject)
    made = _fresh_call(subject) if custom_nodes(subject.results) else None
    leaves, results, notes = made or (subject.leaves, subject.results, ())
    own, whole = custom_nodes(results), Watch()
    saved = Watch()
    for part, leaf in zip(subject.inputs.parts, leaves, strict=True):
        if part.path not in subject.mutated:  # what forward writes over is its own from then on
            whole.add(part.path, leaf)
    for part, result, piece in zip(subject.outputs.parts, results, incoming, strict=True):
        whole.add(part.path, result)
        whole.add(f"the incoming gradient of {part.path}", piece)
    for node, tensor in saved_by(own):
        saved.add(f"what {function_name(node)} saved for it", tensor)
    written: list[str] = []
    handles = [handle for node in own for handle in _guarded(node, written)]
    try:
        gradients(subject, incoming, results=results, leaves=leaves)
    finally:
        for handle in handles:
            handle.remove()
    words = written[0] if written else whole.mutated()
    if words is not None:
        return broken(ContractName.NO_MUTATION, f"The backward writes to {words}.", hint=ADVICE)
    if (overwritten := saved.mutated()) is not None:
        return Outcome(
            absent=f"The backward writes to {overwritten}: a second backward through the same graph is wrong."
        )
    return Outcome(notes=notes)


def _guarded(node: Any, written: list[str]) -> tuple[Any, Any]:
    """Register hooks around one Function's backward, which compare its incoming gradients."""
    watch = Watch()

    def before(incoming: tuple[Tensor | None, ...]) -> None:
        for gradient in incoming:
            if gradient is not None:
                watch.add(f"the incoming gradient of {function_name(node)}", gradient)

    def after(_: Any, __: Any) -> None:
        if (found := watch.mutated()) is not None:
            written.append(found)

    return node.register_prehook(before), node.register_hook(after)


def _fresh_call(subject: TorchSubject) -> tuple[list[Tensor], list[Tensor], tuple[str, ...]] | None:
    """Return leaves and results of a new call, and a note if the call overwrites what its Functions saved.

    Autograd does not notice that. The probes find out whether it makes the gradient wrong.
    """
    copies: dict[tuple[Any, ...], Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        if tensor.layout == torch.strided and 0 < tensor.numel() < LARGE_TENSOR:
            copies.setdefault(_view(tensor), tensor.detach().clone())
        return tensor

    leaves = [refilled(point).requires_grad_() for point in subject.points]
    try:
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            results = subject.caller.results(subject.caller.differentiably(leaves))
    except Exception:  # a function that cannot be looked into in this way is not wrong for it
        return None
    if not subject.outputs.fits(results) or not all(result.requires_grad for result in results):
        return None
    overwritten = [
        f"What {function_name(node)} saved for its backward is overwritten afterwards, which autograd does not notice "
        "(through .data, NumPy or a kernel of its own)."
        for node, tensor in saved_by(custom_nodes(results))
        if (copy := copies.get(_view(tensor))) is not None
        if copy.shape == tensor.shape and not same_numbers(copy, tensor)
    ]
    return leaves, results, tuple(overwritten[:1])


def _view(tensor: Tensor) -> tuple[Any, ...]:
    """Return a key that two tensors share if they are the same view of the same memory."""
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.is_conj(), tensor.is_neg()
