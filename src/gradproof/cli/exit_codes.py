"""How the process ends: one code for each kind of outcome, whatever the command."""

from __future__ import annotations

import enum
from collections.abc import Iterable

from gradproof.engine.results import Verdict


class ExitCode(enum.IntEnum):
    """The exit codes of `gradproof`."""

    PASS = 0
    WRONG = 1  # a gradient, or a value of a kernel
    MISUSE = 2  # what was asked for cannot be done
    INCONCLUSIVE = 3
    FAILED = 4  # a missing framework, memory that ran out, a file that could not be written, an error of gradproof's
    INTERRUPTED = 130  # as shells say it: 128 and the number of SIGINT


def of_verdicts(verdicts: Iterable[Verdict]) -> ExitCode:
    """Return the code of the worst verdict.

    >>> of_verdicts([Verdict.PASS, Verdict.INCONCLUSIVE]).name
    'INCONCLUSIVE'
    """
    found = set(verdicts)
    if Verdict.FAIL in found:
        return ExitCode.WRONG
    return ExitCode.INCONCLUSIVE if Verdict.INCONCLUSIVE in found else ExitCode.PASS
