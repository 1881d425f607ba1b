"""Recognise errors of memory that has run out, so that they are not taken for errors of the function."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from gradproof.errors import MemoryExhaustedError, OutOfMemoryError
from gradproof.frameworks.torch.storage import components

HELD = 100  # bytes that a check holds for every input entry, beside the function: 12 numbers in double precision
EXPLAINED_FROM = 1 << 24  # entries from which on what is held is worth a sentence
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
def reporting_exhausted_memory(inputs: Sequence[Tensor] = ()) -> Iterator[None]:
    """Turn memory that ran out, in the user's code or in the check, into `OutOfMemoryError`.

    Where a check holds much for the inputs that it is given, the message says how many entries would fit.
    """
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
            f"coverage='probe', explain=False and contracts=().{_what_fits(inputs)}"
        ) from cause


def _what_fits(inputs: Sequence[Tensor]) -> str:
    """Say how much a check holds for large inputs, and how many entries the device has memory for."""
    values = [components(tensor)[-1] for tensor in inputs]  # of a sparse tensor those that are stored
    entries = sum(each.numel() for each in values)
    if entries < EXPLAINED_FROM:
        return ""
    device = max(values, key=Tensor.numel).device
    whole = _memory_of(device)
    if whole is None:
        return ""
    fitting = min(whole // HELD, entries // 2)
    return (
        f" It holds about {HELD} bytes for each of the {entries:,} input entries, {HELD * entries / 1e9:.0f} GB, "
        f"beside what the function holds; {device} has {whole / 1e9:.0f} GB, enough for some "
        f"{float(f'{fitting:.1g}'):,.0f} entries."
    )


def _memory_of(device: torch.device) -> int | None:
    """Return the bytes of a device's memory, if they are known."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    if device.type == "cpu" and hasattr(os, "sysconf"):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None
