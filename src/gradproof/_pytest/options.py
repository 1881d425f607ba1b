"""The options of the checks of a test: from its markers, from the command line and from the configuration file."""

from __future__ import annotations

import difflib
from typing import Any

import pytest

from gradproof._compare import CompareOptions
from gradproof._options import CheckOptions

KNOWN = CheckOptions.__annotations__ | CompareOptions.__annotations__


def chosen(config: pytest.Config, name: str) -> Any:
    """Return an option of the command line, or of the configuration file; None if neither gives it."""
    given = config.getoption(f"gradproof_{name}")
    return given if given is not None else config.getini(f"gradproof_{name}") or None


def chosen_seed(config: pytest.Config) -> int | None:
    """Return the seed that was given to the run."""
    given = chosen(config, "seed")
    if isinstance(given, str) and not given.isdecimal():
        raise pytest.UsageError(f"gradproof_seed={given}: the seed is a whole number.")
    return None if given is None else int(given)


def chosen_coverage(config: pytest.Config) -> str | None:
    """Return the coverage that was given to the run."""
    given: str | None = chosen(config, "coverage")
    if given not in (None, "probe", "full"):
        raise pytest.UsageError(f"gradproof_coverage={given}: the coverage is probe or full.")
    return given


def options_of(item: pytest.Item | None) -> dict[str, Any]:
    """Return the options of a test's markers, the closest last; a name that no option has is an error."""
    options: dict[str, Any] = {}
    for marker in reversed(list(item.iter_markers("gradproof")) if item else []):
        if marker.args:
            raise pytest.UsageError("@pytest.mark.gradproof takes options by name, such as coverage='full'.")
        for name in marker.kwargs:
            if name not in KNOWN:
                near = difflib.get_close_matches(name, KNOWN, n=1)
                hint = f"Did you mean {near[0]}=?" if near else f"There are: {', '.join(sorted(KNOWN))}."
                raise pytest.UsageError(f"@pytest.mark.gradproof has no option {name}=. {hint}")
        options |= marker.kwargs
    return options
