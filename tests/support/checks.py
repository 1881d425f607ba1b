"""Ways to check that tests of the torch room share: from one seed, without contracts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradproof import Report, check

BOTH = ("reverse", "forward")
NESTINGS = {"reverse over reverse", "forward over reverse", "reverse over forward", "forward over forward"}


def full(function: Callable[..., Any], inputs: Any, mode: str | Sequence[str] = "reverse", **options: Any) -> Report:
    """Check every entry of the Jacobian."""
    return check(function, inputs, **({"coverage": "full", "modes": mode, "seed": 0, "contracts": ()} | options))


def pushed(
    function: Callable[..., Any], *inputs: Any, modes: Sequence[str] | None = ("forward",), **options: Any
) -> Report:
    """Check in forward mode, unless other modes are given."""
    return check(function, inputs, modes=modes, **({"seed": 0, "contracts": ()} | options))


def second_order(
    function: Callable[..., Any], *inputs: Any, modes: Sequence[str] | None = ("reverse",), **options: Any
) -> Report:
    """Check the derivative of the derivative, reverse over reverse unless other modes are given."""
    return check(function, inputs, modes=modes, order=2, **({"seed": 0, "contracts": ()} | options))
