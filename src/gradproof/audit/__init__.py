"""Audits: thousands of checks in worker processes, and a journal that survives the end of any of them.

>>> from gradproof.audit import Case, Selection
>>> from functools import partial
>>> import math
>>> cases = [Case(f"sin-{number}", make=partial(math.sin, number), tags=("op=sin",)) for number in range(10)]
>>> [case.name for case in Selection(globs=("*-[12]",)).of(cases)]
['sin-1', 'sin-2']
"""

from gradproof.audit.case import Case, Outcome, Result, Skip
from gradproof.audit.journal import Ended, Journal, JournalError, JournalFailedError
from gradproof.audit.selection import Selection
from gradproof.audit.sweep import sweep

__all__ = [
    "Case",
    "Ended",
    "Journal",
    "JournalError",
    "JournalFailedError",
    "Outcome",
    "Result",
    "Selection",
    "Skip",
    "sweep",
]
