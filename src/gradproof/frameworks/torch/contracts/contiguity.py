"""Contract: the gradient does not depend on the strides of inputs and incoming gradients."""

from __future__ import annotations

import torch
from torch import Tensor

from gradproof._options import ContractName
from gradproof.engine.subject import DerivativeError
from gradproof.frameworks.torch.contracts.comparison import Gap, gap, gradient_gap
from gradproof.frameworks.torch.contracts.contract import KEPT, Context, Outcome, broken
from gradproof.frameworks.torch.contracts.pullbacks import coordinates, gradients
from gradproof.frameworks.torch.storage import is_strided, replica
from gradproof.frameworks.torch.subject.torch_subject import TorchSubject

INCOMING = "a non-contiguous incoming gradient"
INPUTS = "inputs of other strides, at the same value,"
ADVICE = {
    INCOMING: "Incoming gradients are often views, or expanded: use reshape instead of view, and contiguous() before a "
    "kernel that indexes memory itself.",
    INPUTS: "Look for memory that the backward reads or fills in another tensor's order.",
}


def contiguity(subject: TorchSubject, context: Context) -> Outcome:
    """Test incoming gradients with strides of zero and two, then inputs with other strides."""
    if subject.detached:
        return KEPT
    for circumstance, compare in ((INCOMING, _for_incoming), (INPUTS, _for_inputs)):
        try:
            worst = compare(subject, context)
        except DerivativeError as error:
            return broken(
                ContractName.CONTIGUITY, f"For {circumstance} the backward raised {error}", hint=ADVICE[circumstance]
            )
        if worst is not None:
            place = subject.inputs.locate(worst.coordinate)
            return broken(
                ContractName.CONTIGUITY,
                f"For {circumstance} the gradient with respect to {place.path} differs ({worst} at {place}).",
                argument=place.path,
                hint=ADVICE[circumstance],
            )
    return KEPT


def _for_incoming(subject: TorchSubject, context: Context) -> Gap | None:
    if all(result.numel() < 2 or not is_strided(result) for result in subject.results):
        return None
    incoming = [_expanded(piece) for piece in subject.outputs.tensors(context.cotangent(subject))]
    cotangent = subject.outputs.coordinates(incoming).clone()
    expected = subject.pullback(cotangent)
    found = coordinates(subject, gradients(subject, incoming))
    return gradient_gap(subject, context, cotangent, expected, found)


def _for_inputs(subject: TorchSubject, context: Context) -> Gap | None:
    if not any(map(is_strided, subject.points)):
        return None
    leaves = [_laid_out_otherwise(point).requires_grad_() for point in subject.points]
    pairs = zip(leaves, subject.points, strict=True)
    if all(leaf.stride() == point.stride() for leaf, point in pairs if is_strided(point)):
        return None
    try:
        results = subject.caller.results(subject.caller.differentiably(leaves))
    except Exception:  # a forward may ask for contiguous inputs
        return None
    if not subject.outputs.fits(results) or not all(result.requires_grad for result in results):
        return None
    if gap(subject.centre, subject.outputs.coordinates(results), precision=subject.numbers.precision) is not None:
        return None
    expected = context.gradient(subject)
    found = coordinates(subject, gradients(subject, context.incoming(subject), results=results, leaves=leaves))
    return gradient_gap(subject, context, context.cotangent(subject), expected, found)


def _expanded(tensor: Tensor) -> Tensor:
    """Return a tensor whose rows share the memory of the first row, with gaps of NaN between the entries."""
    if not tensor.dim() or not is_strided(tensor):
        return tensor.clone()
    memory = torch.full((2 * tensor.numel() + 1,), torch.nan, dtype=tensor.dtype, device=tensor.device)
    strides = [0] * (tensor.dim() - 1) + [2]
    view = memory.as_strided(tensor.shape, strides, 1)
    if tensor.numel():
        row = tensor[(0,) * (tensor.dim() - 1)]
        memory.as_strided(row.shape, (2,), 1).copy_(row)
    return view


def _laid_out_otherwise(tensor: Tensor) -> Tensor:
    """Return a copy with other strides: gaps and reversed dimensions, or contiguous if the tensor is not."""
    if not is_strided(tensor):
        return replica(tensor)
    if not tensor.is_contiguous() or tensor.is_conj() or tensor.is_neg():
        return tensor.detach().clone(memory_format=torch.contiguous_format)
    if not tensor.dim():
        return tensor.detach().clone()
    backwards = torch.full((*reversed(tensor.shape), 2), torch.nan, dtype=tensor.dtype, device=tensor.device)
    return backwards[..., 0].permute(*reversed(range(tensor.dim()))).copy_(tensor.detach())
