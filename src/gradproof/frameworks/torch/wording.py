"""What is said of torch's errors, and of tensors that are not what they should be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from gradproof.engine.subject import DerivativeError
from gradproof.frameworks.torch.layouts import name_of
from gradproof.frameworks.torch.makeup import is_plain

ABSENT = (
    "once_differentiable",
    "setup_context",
    "Nested forward mode",
    "is not implemented",
)  # words in the messages of rules that are not there
MEANINGS = {
    "input_is_complex == grad_is_complex": "a complex gradient was given for a real input (return its real part): ",
}  # of words in autograd's own errors


def derivative_error(error: Exception, *, absent: bool = False) -> DerivativeError:
    """An error of autograd's, with a word on what causes it where its own do not say; `absent`: there is no rule."""
    cause = next((meaning for words, meaning in MEANINGS.items() if words in str(error)), "")
    absent = absent or isinstance(error, NotImplementedError) or any(word in str(error) for word in ABSENT)
    return DerivativeError(f"{type(error).__name__}: {cause}{error}", absent=absent)


def shapes(tensors: Sequence[Tensor]) -> str:
    """The shapes of tensors, with their layouts where they are not strided."""
    found = (
        f"{tuple(tensor.shape)}" if is_plain(tensor) else f"{tuple(tensor.shape)} ({name_of(tensor.layout)})"
        for tensor in tensors
    )
    return ", ".join(found) or "nothing"


def kind_of(result: Any) -> str:
    """What a function returned, in a few words."""
    if isinstance(result, Tensor):
        return f"a tensor of {result.dtype}"
    return "None" if result is None else f"a {type(result).__name__}"
