"""Each case in a process that is watched: what ends or outlasts the process is a result, and the sweep goes on."""

from __future__ import annotations

import math
import os
import pickle
import signal
import sys
import time
from pathlib import Path

import pytest

from gradproof.audit.case import Outcome, Result
from gradproof.audit.executors.processes import LocalProcesses
from gradproof.audit.worker import Limits
from gradproof.errors import InputError
from support import audit_cases
from support.audit_cases import case

LIMITS = Limits(seconds=60, memory=1 << 30)


@pytest.fixture(scope="module")
def processes():
    made = LocalProcesses(workers=1, limits=LIMITS)
    yield made
    made.close()


def outcome(processes, *cases) -> dict[str, Result]:
    """Run the cases in turn."""
    for each in cases:
        processes.submit(each.name, pickle.dumps(each))
    found: dict[str, Result] = {}
    while len(found) < len(cases):
        found |= {result.name: result for result in processes.finished()}
    return found


@pytest.mark.parametrize(
    ("make", "expected", "says", "printed"),
    [
        (audit_cases.right, Outcome.PASS, "", ""),
        (audit_cases.wrong, Outcome.FAIL, "is wrong in 3 entries", ""),
        (audit_cases.skipped, Outcome.SKIPPED, "nothing to differentiate", ""),
        (audit_cases.raising, Outcome.ERROR, "RuntimeError: the database is gone", "what it printed"),
        (audit_cases.leaving, Outcome.ERROR, "SystemExit: 3", ""),
        (audit_cases.crash, Outcome.CRASH, "SIGABRT", "audit_cases.py"),
        (audit_cases.killed, Outcome.CRASH, "SIGKILL", ""),
        (audit_cases.bomb, Outcome.MEMORY, "allocate memory", ""),
        (audit_cases.short_of_memory, Outcome.MEMORY, "Cannot allocate memory", ""),
        (audit_cases.silent, Outcome.ERROR, "SilentError", ""),
    ],
)
def test_every_end_of_a_case_is_a_result(processes, make, expected, says, printed):
    found = outcome(processes, case(make), case(audit_cases.right, name="afterwards"))

    assert found[make.__name__].outcome is expected
    assert says in found[make.__name__].message
    assert printed in found[make.__name__].output
    assert found["afterwards"].outcome is Outcome.PASS


def test_a_case_that_hangs_is_ended_and_recorded_with_its_stack():
    made = LocalProcesses(workers=1, limits=Limits(seconds=1))
    try:
        found = outcome(made, case(audit_cases.hang))["hang"]
    finally:
        made.close()

    assert found.outcome is Outcome.TIMEOUT
    assert "did not end within 1 seconds" in found.message
    assert "in hang" in found.output


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the end of a process is seen in /proc")
def test_the_processes_that_a_case_started_end_with_it(tmp_path):
    noted = tmp_path / "child"
    made = LocalProcesses(workers=1, limits=Limits(seconds=2))
    try:
        found = outcome(made, case(audit_cases.with_a_child, str(noted)))
    finally:
        made.close()

    assert found["with_a_child"].outcome is Outcome.TIMEOUT
    assert _ends(int(noted.read_text()))


def _ends(process: int) -> bool:
    """Return True if a process ends within ten seconds; one that is not waited for stays as a zombie."""
    for _ in range(100):
        status = Path(f"/proc/{process}/status")
        if not status.exists() or "State:\tZ" in status.read_text():
            return True
        time.sleep(0.1)
    return False


def test_each_device_has_one_process_which_sees_no_other():
    made = LocalProcesses(devices=("3", "5"))
    try:
        found = outcome(made, *(case(audit_cases.on_its_device, number == 2, name=str(number)) for number in range(7)))
    finally:
        made.close()

    assert made.capacity == 4
    assert found.pop("2").outcome is Outcome.CRASH
    assert {result.message for result in found.values()} == {"3", "5"}


def test_nothing_that_a_process_writes_is_left_in_the_file_system(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made = LocalProcesses(limits=LIMITS)
    try:
        found = outcome(made, case(audit_cases.raising))
        left = list(tmp_path.iterdir())
    finally:
        made.close()

    assert "what it printed" in found["raising"].output
    assert left == []


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf, 1e300])
def test_a_time_limit_that_makes_no_sense_is_refused(seconds):
    with pytest.raises(InputError, match="pass a number above 0"):
        Limits(seconds=seconds)


def test_a_case_is_not_blamed_for_what_another_left_behind(processes):
    found = outcome(processes, case(audit_cases.spoil), case(audit_cases.crash_after_others, "x"))

    assert found["crash_after_others"].outcome is Outcome.PASS


def test_a_process_is_replaced_after_its_lifetime():
    made = LocalProcesses(workers=1, limits=LIMITS, lifetime=2)
    try:
        found = outcome(made, *(case(process_id, name=str(number)) for number in range(4)))
    finally:
        made.close()

    used = [int(found[str(number)].message) for number in range(4)]
    assert used[0] == used[1] != used[2] == used[3]


def process_id():
    raise audit_cases.Skip(str(os.getpid()))


def test_an_idle_process_that_is_killed_is_replaced(processes):
    outcome(processes, case(audit_cases.right))
    (idle,) = processes._workers
    os.kill(idle.process.pid, signal.SIGKILL)
    idle.process.join()

    assert outcome(processes, case(audit_cases.right))["right"].outcome is Outcome.PASS


def test_a_comparison_is_a_case(processes):
    assert outcome(processes, case(audit_cases.compared, entry="compare"))["compared"].outcome is Outcome.PASS


def test_a_factory_that_returns_something_else_is_reported_with_what_to_return(processes):
    found = outcome(processes, case(audit_cases.compared))["compared"]

    assert found.outcome is Outcome.ERROR
    assert "return (function, inputs)" in found.message
    unreported = outcome(processes, case(audit_cases.right, entry="report"))["right"]
    assert "return a gradproof.Report" in unreported.message
