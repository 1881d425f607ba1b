"""Recognise errors of memory that has run out, so that they are not taken for errors of the function."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from gradproof.errors import MemoryExhaustedError, OutOfMemoryError

WORDS = ("DefaultCPUAllocator", "out of memory", "allocate memory", "bad_alloc", "ALLOC_FAILED")  # of RuntimeErrors


def ran_out(error: BaseException | None) -> bool:
    """Return True if an error says that memory ran out; torch on a processor says so in a RuntimeError.

    >>> ran_out(MemoryError()), ran_out(RuntimeError("The shapes differ."))
    (True, False)
    """
    if isinstance(error, (MemoryError, MemoryExhaustedError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(word in str(error) for word in WORDS)


def stop_if_memory_ran_out(error: BaseException | None) -> None:
    """Raise an error that no handler takes for one of the function's own."""
    if ran_out(error) and not isinstance(error, MemoryExhaustedError):
        raise MemoryExhaustedError from error


@contextmanager
def reporting_exhausted_memory() -> Iterator[None]:
    """Turn memory that ran out, in the user's code or in the check, into `OutOfMemoryError`."""
    try:
        yield
    except OutOfMemoryError:
        raise
    except BaseException as error:
        cause = error.__cause__ if isinstance(error, MemoryExhaustedError) else error
        if not ran_out(cause):
            raise
        words = (str(cause) or type(cause).__name__).strip().splitlines()[0]
        raise OutOfMemoryError(
            f"Memory ran out during the check, which concludes nothing: {words} Check smaller inputs, or with "
            "coverage='probe', explain=False and contracts=()."
        ) from cause
