"""What is said of torch's errors, and of tensors that are not what they should be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from gradproof.engine.subject import DerivativeError
from gradproof.frameworks.torch.layouts import name_of
from gradproof.frameworks.torch.storage import is_plain

ABSENT = (
    "once_differentiable",
    "setup_context",
    "Nested forward mode",
    "is not implemented",
)  # words in the messages of rules that are not there
MEANINGS = {
    "input_is_complex == grad_is_complex": "a complex gradient was given for a real input (return its real part): ",
    "its forward grad to be floating point": "the jvp gave None for the tangent of an output that can be "
    "differentiated (return zeros): ",
    "tangent have the same layout as primal": "the forward returned a view of a tensor of its own, which dual numbers "
    "cannot follow (return a clone() of it): ",
}  # of words in autograd's own errors


def derivative_error(error: Exception, *, absent: bool = False) -> DerivativeError:
    """An error of autograd's, with a word on what causes it where its own do not say; `absent`: there is no rule."""
    absent = absent or isinstance(error, NotImplementedError) or any(word in str(error) for word in ABSENT)
    return DerivativeError(f"{type(error).__name__}: {cause_of(error)}{error}", absent=absent)


def cause_of(error: Exception) -> str:
    """What causes an error of autograd's, where its own words do not say."""
    return next((meaning for words, meaning in MEANINGS.items() if words in str(error)), "")


def shapes(tensors: Sequence[Tensor]) -> str:
    """The shapes of tensors, with what else they are: complex, or of a layout that is not strided."""
    return ", ".join(f"{tuple(tensor.shape)}{_remark(tensor)}" for tensor in tensors) or "nothing"


def _remark(tensor: Tensor) -> str:
    layout = () if is_plain(tensor) else (name_of(tensor.layout),)
    remarks = (*layout, "complex") if tensor.is_complex() else layout
    return f" ({', '.join(remarks)})" if remarks else ""


def kind_of(result: Any) -> str:
    """What a function returned, in a few words."""
    if isinstance(result, Tensor):
        return f"a tensor of {result.dtype}"
    return "None" if result is None else f"a {type(result).__name__}"
