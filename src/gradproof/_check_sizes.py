"""`check_sizes`: one check for each of many sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Unpack

from gradproof._check import check
from gradproof._examine import session
from gradproof._options import CheckOptions
from gradproof._report import Report
from gradproof.errors import InputError

# Nothing, one, primes, and both neighbours of the powers of two that blocks of kernels are made of.
SIZES = (0, 1, 2, 3, 4, 5, 7, 8, 9, 13, 15, 16, 17, 31, 32, 33, 61, 63, 64, 65, 127, 128, 129, 251, 255, 256, 257)


def check_sizes(
    func: Callable[..., Any],
    factory: Callable[[int], Any],
    *,
    sizes: Iterable[int] = SIZES,
    **options: Unpack[CheckOptions],
) -> dict[int, Report]:
    """Check `func` at the inputs that `factory` makes for each size, and return the report of each size.

    Kernels go wrong where a size is no multiple of their block. The default sizes are zero, one, primes, and the
    neighbours of the powers of two up to 256; add those around a larger block.

    >>> import torch
    >>> def factory(size):
    ...     return torch.linspace(0.1, 1, size, dtype=torch.float64).requires_grad_()
    >>> reports = check_sizes(torch.sin, factory, sizes=(0, 1, 7, 8, 9))
    >>> [size for size, report in reports.items() if not report.passed]
    []

    Args:
        func: the function to check, as of `gradproof.check`.
        factory: makes the inputs of one check from a size, with `requires_grad` where it is wanted.
        sizes: the sizes, each checked once.
        options: the options of `gradproof.check`. All sizes share a seed.

    Raises:
        Exception: what `func` or `factory` raises, with a note that names the size.
    """
    wanted = list(dict.fromkeys(sizes))
    if not wanted:
        raise InputError("sizes is empty: pass the sizes to check, or leave it out for the usual ones.")
    options["seed"] = session.chosen_seed(options.get("seed"))
    return {size: _checked(func, factory, size, options) for size in wanted}


def _checked(func: Callable[..., Any], factory: Callable[[int], Any], size: int, options: CheckOptions) -> Report:
    try:
        return check(func, factory(size), **options)
    except Exception as error:
        error.add_note(f"gradproof: raised at size={size}. Leave the size out of sizes= if it is not supported.")
        raise
