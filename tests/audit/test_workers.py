"""Each case in a process that is watched: what ends or outlasts the process is a result, and the sweep goes on."""

from __future__ import annotations

import math
import os
import pickle
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from gradproof.audit.case import Outcome, Result
from gradproof.audit.executors.processes import LocalProcesses
from gradproof.audit.worker import Limits
from gradproof.errors import InputError
from support import audit_cases
from support.audit_cases import case

LIMITS = Limits(seconds=60, memory=1 << 30)
WARMING = (case(audit_cases.right), case(audit_cases.skipped))  # the first case of a process is slow, the second quick


@pytest.fixture(scope="module")
def processes():
    made = LocalProcesses(workers=1, limits=LIMITS)
    yield made
    made.close()


def outcome(processes, *cases) -> dict[str, Result]:
    """Run the cases in turn, and see that each ends once."""
    for each in cases:
        processes.submit(each.name, pickle.dumps(each))
    found: list[Result] = []
    while len(found) < len(cases):
        found += processes.finished()
    assert sorted(result.name for result in found) == sorted(each.name for each in cases)
    return {result.name: result for result in found}


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

    assert made.capacity % 2 == 0
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


INTERRUPTED = """
import os, signal, time
from multiprocessing import forkserver
from pathlib import Path
from gradproof.audit.executors.processes import LocalProcesses

made = LocalProcesses()
made.submit("x", b"")
server = Path(f"/proc/{forkserver._forkserver._forkserver_pid}/maps")
while "torch" not in server.read_text():
    time.sleep(0.01)
signal.signal(signal.SIGINT, signal.SIG_IGN)
os.killpg(0, signal.SIGINT)
time.sleep(0.5)
made.close()
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="what a process has loaded is seen in /proc")
def test_an_interruption_while_processes_start_prints_nothing():
    """Ctrl-C goes to all processes of a terminal, and their server is importing torch in the first seconds."""
    command = [sys.executable, "-c", INTERRUPTED]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, start_new_session=True, timeout=100)

    assert (done.returncode, done.stderr) == (0, "")


def test_a_fresh_process_has_what_a_check_imports():
    made = LocalProcesses(workers=1, limits=LIMITS)
    try:
        found = outcome(made, case(audit_cases.importing))["importing"]
    finally:
        made.close()

    assert found.message == ""


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


def quick(log, count, start=0):
    return [case(audit_cases.right, str(log), f"quick {n}", name=f"quick {n}") for n in range(start, start + count)]


def runs(log):
    """How often each case ran."""
    return Counter(line.partition(" ")[2] for line in log.read_text().splitlines())


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (audit_cases.crash, Outcome.CRASH),
        (audit_cases.bomb, Outcome.MEMORY),
        (audit_cases.hang, Outcome.TIMEOUT),
        (audit_cases.killed, Outcome.CRASH),
    ],
)
def test_cases_that_wait_behind_one_that_ends_its_process_run_elsewhere_once(tmp_path, make, expected):
    log = tmp_path / "log"
    made = LocalProcesses(workers=1, limits=Limits(seconds=3, memory=1 << 30))
    try:
        outcome(made, *WARMING)
        found = outcome(made, *quick(log, 5), case(make), *quick(log, 5, start=5))
    finally:
        made.close()

    assert found.pop(make.__name__).outcome is expected
    assert {result.outcome for result in found.values()} == {Outcome.PASS}
    assert runs(log) == dict.fromkeys(found, 1)


def test_quick_cases_are_sent_while_another_runs(processes):
    outcome(processes, *WARMING)
    for number in range(8):
        processes.submit(f"{number}", pickle.dumps(case(audit_cases.skipped, name=f"{number}")))
    (worker,) = processes._workers
    sent = len(worker.tasks)
    ended = []
    while len(ended) < 8:
        ended += processes.finished()

    assert sent == 8
    assert [result.name for result in ended] == [f"{number}" for number in range(8)]


def test_nothing_is_sent_to_wait_behind_a_slow_case(processes):
    outcome(processes, case(audit_cases.slow, 0.1))
    for number in range(3):
        processes.submit(f"{number}", pickle.dumps(case(audit_cases.right, name=f"{number}")))
    (worker,) = processes._workers

    assert len(worker.tasks) == 1
    while processes.running():
        processes.finished()


def test_the_time_of_a_case_begins_when_those_before_it_have_ended():
    made = LocalProcesses(workers=1, limits=Limits(seconds=2))
    try:
        outcome(made, *WARMING)
        found = outcome(made, *(case(audit_cases.slow, 0.8, name=f"{number}") for number in range(4)))
    finally:
        made.close()

    assert {result.outcome for result in found.values()} == {Outcome.PASS}


def test_a_large_case_blocks_nobody(processes):
    outcome(processes, *WARMING)
    processes.submit("slow", pickle.dumps(case(audit_cases.slow, 3.0, name="slow")))
    began = time.monotonic()
    processes.submit("large", pickle.dumps(case(audit_cases.large, bytes(1 << 24), name="large")))
    waited = time.monotonic() - began
    ended = []
    while len(ended) < 2:
        ended += processes.finished()

    assert waited < 2
    assert {result.outcome for result in ended} == {Outcome.PASS}


def test_what_a_case_printed_is_its_own(processes):
    outcome(processes, *WARMING)
    raising = [case(audit_cases.raising, name=f"{number}") for number in range(4)]
    found = outcome(processes, *raising, case(audit_cases.silent))

    assert {found[each.name].output for each in raising} == {"what it printed\n"}
    assert found["silent"].output == ""


def test_a_process_that_is_killed_loses_the_case_that_it_runs_alone(tmp_path):
    log = tmp_path / "log"
    made = LocalProcesses(workers=1, limits=LIMITS)
    try:
        outcome(made, *WARMING)
        cases = [*quick(log, 4), case(audit_cases.slow, 0.5, str(log), "slow", name="slow"), *quick(log, 4, start=4)]
        for each in cases:
            made.submit(each.name, pickle.dumps(each))
        time.sleep(0.3)
        os.kill(made._workers[0].process.pid, signal.SIGKILL)
        found = []
        while len(found) < len(cases):
            found += made.finished()
    finally:
        made.close()

    assert {result.outcome for result in found} == {Outcome.PASS}
    assert runs(log) == {each.name: 1 for each in cases}
