"""Documents show real numbers: a duration, or the leading digits of a bar or a resolution, may differ in a test run."""

from __future__ import annotations

import doctest
import importlib.metadata
import importlib.util
import re

import pytest

collect_ignore = [] if importlib.util.find_spec("triton") else ["src/gradproof/frameworks/torch/passes/kernels.py"]
VARIES = (
    (re.compile(r"\b\d+(\.\d+)? m?s\b"), "some ms"),
    (re.compile(r"\b\d+ (?=evaluations?,|pullbacks?,)"), "some "),
    (re.compile(r"\b\d(\.\d+)?e(?=[+-]\d\d\b)"), "#e"),
)


class _Checker(doctest.OutputChecker):
    """Compares what a document shows with what came, durations and leading digits of rough numbers aside."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return super().check_output(_without_what_varies(want), _without_what_varies(got), optionflags)


def _without_what_varies(text: str) -> str:
    for pattern, instead in VARIES:
        text = pattern.sub(instead, text)
    return text


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the checker judge the documents."""
    for item in items:
        if isinstance(item, pytest.DoctestItem) and item.path.suffix == ".md" and item.runner is not None:
            item.runner._checker = _Checker()  # type: ignore[attr-defined]  # doctest has no other way
            if item.path.name == "wrong_derivatives.md":
                item.add_marker(pytest.mark.skipif(not _is_torch("2.13"), reason="other versions have other mistakes"))


def _is_torch(version: str) -> bool:
    return importlib.metadata.version("torch").startswith(f"{version}.")
