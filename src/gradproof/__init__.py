"""Verify gradients with error bars instead of tolerances."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradproof._check import assert_gradients, check
from gradproof._report import Report
from gradproof.engine.results import (
    Cost,
    Culprit,
    Diagnosis,
    Entry,
    Finding,
    HeatMap,
    Place,
    Reading,
    Reason,
    Resolution,
    TaylorPoint,
    Verdict,
)
from gradproof.errors import GradientError, InputError

if TYPE_CHECKING:
    from gradproof.frameworks.torch.gradcheck import GradcheckError, gradcheck, gradgradcheck

__version__ = "0.1.0"
__all__ = [
    "Cost",
    "Culprit",
    "Diagnosis",
    "Entry",
    "Finding",
    "GradcheckError",
    "GradientError",
    "HeatMap",
    "InputError",
    "Place",
    "Reading",
    "Reason",
    "Report",
    "Resolution",
    "TaylorPoint",
    "Verdict",
    "assert_gradients",
    "check",
    "gradcheck",
    "gradgradcheck",
]


def __getattr__(name: str) -> Any:
    """The drop-ins for torch's own checks need torch, which is imported when they are first asked for."""
    if name in ("GradcheckError", "gradcheck", "gradgradcheck"):
        from gradproof.frameworks.torch import gradcheck

        return getattr(gradcheck, name)
    raise AttributeError(f"module 'gradproof' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
