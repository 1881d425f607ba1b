"""Bugs that authors of custom backwards make, written before the diagnosis that is measured on them.

Each has the names that a diagnosis may give it: most have one. `python -m benchmarks.diagnosis realistic` prints the
table, and what every bug was called that was not named right.
"""

from __future__ import annotations

from benchmarks.realistic.bug import Bug
from benchmarks.realistic.factors import FACTORS
from benchmarks.realistic.index_maps import INDEX_MAPS
from benchmarks.realistic.reductions import REDUCTIONS
from benchmarks.realistic.state import STATE
from benchmarks.realistic.terms import TERMS

__all__ = ["REALISTIC", "Bug"]

REALISTIC: tuple[Bug, ...] = (*INDEX_MAPS, *TERMS, *FACTORS, *REDUCTIONS, *STATE)
