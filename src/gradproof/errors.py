"""What gradproof raises. Each says what came, why it cannot work, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gradproof._report import Report


class InputError(ValueError):
    """The question itself cannot be asked: an input, an option or the function is not of a kind that can be checked."""


class NothingToDifferentiateError(InputError):
    """The function returns tensors, and none of them has a derivative."""


class NotCallableError(InputError, TypeError):
    """What should be a function is none."""


class MismatchError(InputError, RuntimeError):
    """Tensors that belong together do not fit; torch has a RuntimeError for it."""


class GradientError(AssertionError):
    """A gradient could not be verified. `report` holds the evidence."""

    def __init__(self, message: str, report: Report) -> None:
        super().__init__(message)
        self.report = report
