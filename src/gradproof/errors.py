"""Errors about inputs and options. Each message says what was given, why it cannot work, and what to do."""

from __future__ import annotations


class InputError(ValueError):
    """An input, an option or the function is not of a kind that can be checked."""


class NothingToDifferentiateError(InputError):
    """The function returns no tensor that has a derivative."""


class NotCallableError(InputError, TypeError):
    """The function cannot be called."""


class MismatchError(InputError, RuntimeError):
    """Tensors that belong together have different shapes or dtypes; torch raises a RuntimeError for it."""
