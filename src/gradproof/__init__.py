"""Verify gradients with error bars instead of tolerances."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gradproof._check import assert_gradients, check
from gradproof._check_sizes import check_sizes
from gradproof._compare import assert_equivalent, compare
from gradproof._report import GradientError, Report, reports_from_json, reports_to_html, reports_to_json
from gradproof.engine.results import (
    Checked,
    Cost,
    Culprit,
    Diagnosis,
    Entry,
    ErrorMap,
    Finding,
    HeatMap,
    Place,
    Reading,
    Reason,
    Resolution,
    TaylorPoint,
    Verdict,
)
from gradproof.errors import InconclusiveWarning, InputError, OutOfMemoryError

if TYPE_CHECKING:
    from gradproof._check_step import check_step
    from gradproof._gradcheck import GradcheckError, MissingRuleError, gradcheck, gradgradcheck, replace_gradcheck

__version__ = "0.1.0"
__all__ = [
    "Checked",
    "Cost",
    "Culprit",
    "Diagnosis",
    "Entry",
    "ErrorMap",
    "Finding",
    "GradcheckError",
    "GradientError",
    "HeatMap",
    "InconclusiveWarning",
    "InputError",
    "MissingRuleError",
    "OutOfMemoryError",
    "Place",
    "Reading",
    "Reason",
    "Report",
    "Resolution",
    "TaylorPoint",
    "Verdict",
    "assert_equivalent",
    "assert_gradients",
    "check",
    "check_sizes",
    "check_step",
    "compare",
    "gradcheck",
    "gradgradcheck",
    "replace_gradcheck",
    "reports_from_json",
    "reports_to_html",
    "reports_to_json",
]

# These modules import torch, so they are imported when one of their names is first used.
_LAZY = {
    "GradcheckError": "_gradcheck",
    "MissingRuleError": "_gradcheck",
    "check_step": "_check_step",
    "gradcheck": "_gradcheck",
    "gradgradcheck": "_gradcheck",
    "replace_gradcheck": "_gradcheck",
}


if not TYPE_CHECKING:  # to a type checker a module with __getattr__ has every name

    def __getattr__(name: str) -> Any:
        """Import the public names that need torch."""
        if name not in _LAZY:
            raise AttributeError(f"module 'gradproof' has no attribute {name!r}")
        return getattr(import_module(f"gradproof.{_LAZY[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
