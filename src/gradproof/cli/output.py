"""What the commands print: in characters that the terminal has, and quietly if its reader has left."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

import click

from gradproof.report.characters import in_encoding, without_controls


def say(text: str, *, bold: bool = False) -> None:
    """Print a line on standard output."""
    with reader_may_leave():
        click.secho(in_encoding(text, getattr(sys.stdout, "encoding", None)), bold=bold)


def tell(text: str) -> None:
    """Print a line on standard error, without control characters."""
    click.echo(in_encoding(without_controls(text), getattr(sys.stderr, "encoding", None)), err=True)


@contextlib.contextmanager
def reader_may_leave() -> Iterator[None]:
    """Print to nobody once the reader of standard output has left, as `head -1` does after a line."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        nobody = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nobody, sys.stdout.fileno())
        os.close(nobody)
