"""Messages about errors of torch, and about tensors of unexpected shapes and layouts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from gradproof.engine.subject import DerivativeError
from gradproof.frameworks.torch.storage import is_strided
from gradproof.sparse.pattern.layouts import name_of

LONG = 200  # characters: a longer error is cut to its first sentence
NO_RULE = (
    "once_differentiable",
    "setup_context",
    "Nested forward mode",
    "is not implemented",
)  # words in the messages of rules that are not there
UNCOMPILED = "Check the function uncompiled."
HINTS = {
    "When use_reentrant=True": "Check the function with use_reentrant=False.",
    "torch.compile with aot_autograd does not currently support double backward": UNCOMPILED,
}  # what to do, by words of the errors by which torch refuses a derivative
MEANINGS = {
    "input_is_complex == grad_is_complex": "a complex gradient was given for a real input (return its real part): ",
    "its forward grad to be floating point": "the jvp gave None for the tangent of an output that can be "
    "differentiated (return zeros): ",
    "tangent have the same layout as primal": "the forward returned a view of a tensor of its own, which dual numbers "
    "cannot follow (return a clone() of it): ",
}  # of words in autograd's own errors


def derivative_error(error: Exception, *, absent: bool = False, hint: str = "") -> DerivativeError:
    """Wrap an error of autograd with an explanation of its cause; `absent` says that there is no rule to raise.

    A `hint` says that torch refuses to differentiate, and what to do.
    """
    absent = absent or isinstance(error, NotImplementedError) or any(word in str(error) for word in NO_RULE)
    return DerivativeError(
        f"{type(error).__name__}: {cause_of(error)}{error}", absent=absent, hint=hint or hint_for(error)
    )


def hint_for(error: BaseException) -> str:
    """Return what to do about an error by which torch refuses to differentiate; empty for others."""
    return next((hint for words, hint in HINTS.items() if words in str(error)), "")


def cause_of(error: BaseException) -> str:
    """Return an explanation of an error of autograd whose message does not give its cause; empty for others."""
    return next((meaning for words, meaning in MEANINGS.items() if words in str(error)), "")


def describe(error: BaseException) -> str:
    """Describe an error in one line: the first sentence of a long message, such as torch's list of its backends.

    >>> describe(ValueError("This does not work. " + 50 * "Whatever. "))
    'ValueError: This does not work.'
    """
    first = str(error).strip().split("\n", 1)[0]
    if len(first) > LONG and ". " in first:
        first = first[: first.index(". ") + 1]
    return f"{type(error).__name__}: {cause_of(error)}{first}"


def shapes(tensors: Sequence[Tensor]) -> str:
    """Describe the shapes of tensors, and which are complex or not strided."""
    return ", ".join(f"{tuple(tensor.shape)}{_remark(tensor)}" for tensor in tensors) or "nothing"


def dtypes(tensors: Sequence[Tensor]) -> str:
    """Name the dtypes of tensors."""
    return ", ".join(str(tensor.dtype) for tensor in tensors) or "nothing"


def _remark(tensor: Tensor) -> str:
    layout = () if is_strided(tensor) else (name_of(tensor.layout),)
    remarks = (*layout, "complex") if tensor.is_complex() else layout
    return f" ({', '.join(remarks)})" if remarks else ""


def kind_of(result: Any) -> str:
    """Describe what a function returned."""
    if isinstance(result, Tensor):
        return f"a tensor of {result.dtype}"
    return "None" if result is None else f"a {type(result).__name__}"
