"""The seed of a test: given, kept from a failure, or made from the test's name."""

from __future__ import annotations

import zlib
from typing import Any

import pytest

KEY = "gradproof/failing_seeds"


class Seeds:
    """The seeds of the tests of a run.

    A seed that was given to a run and failed is kept in pytest's cache. The next run that is given none uses it, until
    the test passes. Without either, the seed is a checksum of the test's name: it is the same in every run, and other
    tests have other seeds.
    """

    def __init__(self, config: pytest.Config, given: int | None) -> None:
        self.given = given
        self._cache = getattr(config, "cache", None)  # none with -p no:cacheprovider
        self._kept: dict[str, int] = dict(self._cache.get(KEY, {})) if self._cache else {}
        self._before = dict(self._kept)

    def of(self, test: str) -> int:
        """Return the seed of a test."""
        return self._kept.get(test, zlib.crc32(test.encode())) if self.given is None else self.given

    def update(self, report: Any) -> None:
        """Keep the seed of a test that failed, and forget that of one that passed."""
        failed = getattr(report, "gradproof", {}).get("failed_seed")
        if failed is not None:
            self._kept[report.nodeid] = failed
        elif report.when == "call" and report.passed:
            self._kept.pop(report.nodeid, None)

    def save(self) -> None:
        """Write what is kept to pytest's cache."""
        if self._cache is not None and self._kept != self._before:
            self._cache.set(KEY, self._kept)
