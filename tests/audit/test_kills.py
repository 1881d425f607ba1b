"""A sweep whose driver and workers are killed at random times, with crashes, hangs and memory bombs among its cases."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from benchmarks.audit import Kills

HERE = Path(__file__).parents[2]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the processes of a sweep are found in /proc")
def test_after_kills_every_case_has_one_row_and_the_outcome_of_its_kind(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), str(HERE / "src")]))
    killed = Kills(tmp_path, 60, seed=3, timeout=10.0)  # the first case of a process takes seconds on a busy machine
    killed.run(kills=3)
    expected = {"right": "pass", "wrong": "fail", "crash": "crash", "hang": "timeout", "bomb": "memory"}

    outcomes = killed.outcomes()
    assert len(outcomes) == 60
    assert {name: expected[name.split()[0]] for name in outcomes} == outcomes
    assert set(outcomes.values()) == set(expected.values())
    assert killed.changed == []
    assert killed.ran_again() == []
