"""The group of commands, through which every run ends: with an exit code and a sentence, and without a traceback."""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import click

from gradproof.cli.exit_codes import ExitCode
from gradproof.cli.output import reader_may_leave, tell
from gradproof.errors import InputError, OutOfMemoryError

NEGATIVE = re.compile(r"-(\.?\d|\(|\w+\()")  # -1.5, -(…), -randn(3): an input, not an option
FRAMEWORK = "torch"
NO_TORCH = "PyTorch is not installed. Install it: pip install 'gradproof[torch]'"


class Misuse(click.ClickException):
    """A request that cannot be fulfilled."""

    exit_code = ExitCode.MISUSE

    def show(self, file: Any = None) -> None:
        """Print the sentence."""
        del file
        tell(f"Error: {self.format_message()}")


class Failed(Misuse):
    """A valid request that failed while it was carried out."""

    exit_code = ExitCode.FAILED


class OnNumbers(click.Command):
    """A command whose arguments may be negative numbers."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put a space before a negative number, so that click does not take it for an option."""
        return super().parse_args(ctx, [f" {each}" if NEGATIVE.match(each) else each for each in args])


class Commands(click.Group):
    """A group of commands. Each returns its exit code, or raises an error that has one."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # click's signature
        **extra: Any,
    ) -> Any:
        """Run a command and end the process."""
        run = partial(super().main, args, prog_name, complete_var, standalone_mode=False, **extra)
        if not standalone_mode:
            return run()
        code = _code_of(run)
        with reader_may_leave():
            pass  # what is left in the buffer
        sys.exit(code)


def _code_of(run: Callable[[], Any]) -> int:
    """Run a command, describe the error that ends it, if one does, and return the exit code."""
    try:
        return int(run() or ExitCode.PASS)
    except (InputError, NotImplementedError) as error:
        return _shown(Misuse(str(error)))
    except OutOfMemoryError as error:
        return _shown(Failed(str(error)))
    except ModuleNotFoundError as error:
        return _shown(Failed(NO_TORCH if error.name == FRAMEWORK else _internal(error)))
    except click.ClickException as error:
        return _shown(error)
    except (click.Abort, KeyboardInterrupt):
        tell("Interrupted.")
        return ExitCode.INTERRUPTED
    except Exception as error:
        return _shown(Failed(_internal(error)))


def _shown(error: click.ClickException) -> int:
    error.show()
    return error.exit_code


def _internal(error: Exception) -> str:
    """Describe an error of gradproof's own, with the place where it was raised."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{where.filename}, line {where.lineno}"
    return f"gradproof itself raised {type(error).__name__} ({place}). Please report it, with the command."
