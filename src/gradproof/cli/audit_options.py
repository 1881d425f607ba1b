"""The options of `gradproof audit`: what their texts mean, and those that several commands share."""

from __future__ import annotations

import os
from collections.abc import Callable

import click

from gradproof.cli.exit_codes import ExitCode

UNITS = {"K": 10, "M": 20, "G": 30, "T": 40}  # binary exponents


def size(text: str) -> int:
    """Return a number of bytes.

    >>> size("4G") == size("4GiB") == 4 * 2**30
    True
    """
    number = text.upper().removesuffix("B").removesuffix("I")
    try:
        found = int(float(number.rstrip("KMGT")) * 2 ** UNITS.get(number[-1], 0))
    except (ValueError, OverflowError):
        found = 0
    if found <= 0:
        raise click.BadParameter(f"{text!r} is not a size: write a number with K, M, G or T, such as 4G.")
    return found


def shard(text: str) -> tuple[int, int]:
    """Return the number of a part and how many there are.

    >>> shard("3/16")
    (3, 16)
    """
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal()):
        raise click.BadParameter(f"{text!r} is not a shard: write its number and how many there are, such as 3/16.")
    return int(number), int(count)


def devices(text: str) -> tuple[str, ...]:
    """Return the devices that are named, as CUDA_VISIBLE_DEVICES takes them, or all that are visible.

    >>> devices("0,3")
    ('0', '3')
    """
    named = tuple(name.strip() for name in (_visible() if text == "all" else text).split(","))
    if not all(named) or len(set(named)) < len(named):
        raise click.BadParameter(f"{text!r} names no devices, or one twice: write their numbers, such as 0,1.")
    return named


def _visible() -> str:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        import torch

        visible = ",".join(map(str, range(torch.cuda.device_count())))
    return visible


SELECTING = (
    click.option(
        "--tag", "tags", multiple=True, metavar="TAG", help="Only cases with this tag, such as dtype=float64."
    ),
    click.option("--only", "globs", multiple=True, metavar="GLOB", help="Only cases whose name fits, such as 'conv*'."),
    click.option(
        "--sample", type=float, default=1.0, metavar="FRACTION", help="A random part of the cases, such as 0.05."
    ),
    click.option("--seed", type=int, default=0, show_default=True, help="The seed of the sample."),
    click.option("--shard", type=shard, default="1/1", metavar="I/N", help="One part of the cases, such as 3/16."),
)


def selecting(command: Callable[..., ExitCode]) -> Callable[..., ExitCode]:
    """Give a command the options that select cases."""
    for option in reversed(SELECTING):
        command = option(command)
    return command
