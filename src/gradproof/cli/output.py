"""Print lines in characters that the terminal can show, and stop quietly once their reader has left."""

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
    """Discard output after a broken pipe: the reader of standard output may leave early, as `head -1` does."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        nobody = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nobody, sys.stdout.fileno())
        os.close(nobody)
