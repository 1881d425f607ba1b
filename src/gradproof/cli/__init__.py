"""The command line: `gradproof check`, `compare`, `report`, `audit`, `demo` and `doctor`."""

from gradproof.cli.commands import main

__all__ = ["main"]
