"""Errors about inputs, options and memory. Each message says what was given, why it cannot work, and what to do."""

from __future__ import annotations


class InputError(ValueError):
    """An input, an option or the function is not of a kind that can be checked."""


class NothingToDifferentiateError(InputError):
    """The function returns no tensor that has a derivative."""


class NotCallableError(InputError, TypeError):
    """The function cannot be called."""


class MismatchError(InputError, RuntimeError):
    """Tensors that belong together have different shapes or dtypes; torch raises a RuntimeError for it."""


class InconclusiveWarning(UserWarning):
    """A drop-in of torch's gradcheck passed an inconclusive check by torch's own criterion."""


class OutOfMemoryError(MemoryError):
    """Memory ran out in the function, in its derivative or in the check itself: nothing was concluded."""


class MemoryExhaustedError(BaseException):
    """Memory ran out in the user's code. `OutOfMemoryError` is what users get.

    It is no `Exception`: where any other error of the function would be evidence, this one ends the check.
    """


class OverlapError(InputError, RuntimeError):
    """Entries of an input share memory; torch's gradcheck raises a RuntimeError for it."""
