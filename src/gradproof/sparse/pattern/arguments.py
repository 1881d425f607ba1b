"""Checks of the arguments that public functions take: they raise an `InputError` that says what to pass instead."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real

import torch
from torch import Tensor

from gradproof.errors import InputError
from gradproof.sparse.pattern.layouts import is_sparse, name_of, require_tensor


def require_strided(tensor: object, what: str) -> Tensor:
    """Return the strided tensor, or raise with what came instead."""
    tensor = require_tensor(tensor, what)
    if is_sparse(tensor):
        raise InputError(
            f"{what} is a {name_of(tensor.layout)} tensor of shape {list(tensor.shape)}, and has to be strided. Pass "
            "tensor.to_dense()."
        )
    return tensor


def require_choice(value: object, name: str, choices: Sequence[str]) -> str:
    """Return the value if it is one of the choices."""
    if not isinstance(value, str) or value not in choices:
        raise InputError(f"{name}={value!r} is not known. Choose one of {', '.join(choices)}.")
    return value


def require_number(value: object, name: str) -> None:
    """Raise unless the value is a real number, or a tensor with one."""
    if isinstance(value, Tensor):
        is_number = value.ndim == 0 and not is_sparse(value) and not value.is_complex()
    else:
        is_number = isinstance(value, Real)
    if not is_number:
        came = f"a tensor of shape {list(value.shape)}" if isinstance(value, Tensor) else repr(value)
        raise InputError(f"{name} is {came}: pass a number.")


def require_flag(value: object, name: str) -> None:
    """Raise unless the value is true or false."""
    if not isinstance(value, (bool, int)):
        raise InputError(f"{name} is a {type(value).__name__}: pass True or False.")


def require_size(value: object, name: str, *, least: int = 0) -> None:
    """Raise unless the value is an integer that is not too small."""
    if type(value) is not int or value < least:
        came = f"a tensor of shape {list(value.shape)}" if isinstance(value, Tensor) else repr(value)
        raise InputError(f"{name}={came}: pass an integer of {least} or more.")


def require_dtype_of(tensor: Tensor, parameter: Tensor, what: str) -> None:
    """Raise unless a tensor has the dtype of a layer's parameters, or autocast converts both."""
    if tensor.dtype != parameter.dtype and not torch.is_autocast_enabled(tensor.device.type):
        raise InputError(
            f"{what} has dtype {tensor.dtype}, and the layer {parameter.dtype}. Pass {what}.to({parameter.dtype})."
        )
