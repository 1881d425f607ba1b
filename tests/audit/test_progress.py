"""What an audit says while it runs: counts, rate, and the time left once the cases are counted."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from gradproof.audit import Outcome, Result, Selection
from gradproof.cli import audit_progress
from gradproof.cli.audit_progress import Counting, Progress
from support import audit_cases
from support.audit_driver import InThisProcess

TESTS = Path(__file__).parents[1]
SHARD = Selection(shard=(1, 2))


@pytest.fixture
def counting(monkeypatch):
    """Count the first half of six cases in a process, and wait for it."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS), str(TESTS.parent / "src")]))
    made = Counting("support.audit_cases:passing", SHARD)
    deadline = time.monotonic() + 60
    while made.total() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    yield made
    made.close()


def progress_of(counting, results, monkeypatch):
    monkeypatch.setattr(audit_progress, "COUNTED_AFTER", -1.0)
    progress = Progress(InThisProcess(), counting)
    with progress:
        for case in progress.counted(list(SHARD.of(audit_cases.passing()))[:results]):
            progress.show(Result(name=case.name, outcome=Outcome.PASS))
        return progress.line()


def test_another_process_counts_the_selected_cases_and_the_time_left_follows(counting, monkeypatch):
    selected = list(SHARD.of(audit_cases.passing()))

    assert 1 < len(selected) < 6
    assert counting.total() == len(selected)
    assert f", {len(selected) - 1} more in about " in progress_of(counting, 1, monkeypatch)
    assert ", 0 more in about 0 s" in progress_of(counting, len(selected), monkeypatch)


def test_a_source_that_cannot_be_counted_has_no_time_left(monkeypatch):
    made = Counting("absent_module:cases", Selection())
    try:
        made.total()
        made._process.wait()
        assert made.total() is None
        assert "more in about" not in progress_of(made, 1, monkeypatch)
    finally:
        made.close()
