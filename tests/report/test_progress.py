"""The progress bar appears for long work, on a terminal, and leaves nothing behind."""

from __future__ import annotations

import io
import random
import subprocess
import sys
import threading

import pytest
import torch

import gradproof
from gradproof.report import progress
from gradproof.report.progress import Bar
from support.functions import doubled
from support.points import ramp


class Doubled(torch.nn.Module):
    def forward(self, x):
        return doubled(x)


class Terminal(io.StringIO):
    """Standard error that someone is looking at."""

    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """The time in seconds, to be set: clock[0]."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def looked_at(monkeypatch):
    """A terminal in place of standard error, from inside a test: pytest puts its own there before each."""
    found = Terminal()
    monkeypatch.setattr(sys, "stderr", found)
    monkeypatch.setenv("TERM", "xterm-256color")
    return found


def work(clock, wanted, seconds, steps=4):
    with Bar("every entry", wanted=wanted) as bar:
        for step in range(1, steps + 1):
            clock[0] += seconds / steps
            bar(step, steps)


@pytest.mark.parametrize("wanted", [None, True])
def test_long_work_is_shown_on_a_terminal(clock, monkeypatch, wanted):
    terminal = looked_at(monkeypatch)
    work(clock, wanted, seconds=5)

    assert "every entry" in terminal.getvalue()


@pytest.mark.parametrize("wanted", [None, True, False])
def test_short_work_is_silent(clock, monkeypatch, wanted):
    terminal = looked_at(monkeypatch)
    work(clock, wanted, seconds=1.9)

    assert terminal.getvalue() == ""


def test_nothing_is_shown_where_it_is_not_wanted(clock, monkeypatch):
    terminal = looked_at(monkeypatch)
    work(clock, False, seconds=100)

    assert terminal.getvalue() == ""


def test_nothing_is_shown_off_a_terminal(clock, capsys):
    work(clock, None, seconds=100)

    assert capsys.readouterr() == ("", "")


def test_a_bar_that_is_wanted_goes_to_standard_error_and_nowhere_else(clock, capsys):
    work(clock, True, seconds=5)

    assert capsys.readouterr().out == ""


def test_what_the_function_prints_goes_where_it_would(clock, capsys, monkeypatch):
    looked_at(monkeypatch)
    with Bar("every entry", wanted=True) as bar:
        clock[0] += 5
        bar(1, 2)
        print("from the function")

    assert capsys.readouterr().out == "from the function\n"


def test_standard_streams_are_put_back(clock, monkeypatch):
    terminal, out = looked_at(monkeypatch), sys.stdout
    work(clock, True, seconds=5)

    assert sys.stderr is terminal
    assert sys.stdout is out


def test_patience_is_two_seconds():
    assert progress.PATIENCE == 2.0


def test_the_bar_is_cleaned_up(clock, monkeypatch):
    terminal = looked_at(monkeypatch)
    work(clock, True, seconds=5)

    assert terminal.getvalue().endswith("\x1b[2K")
    assert terminal.getvalue().count("\x1b[?25l") == terminal.getvalue().count("\x1b[?25h")


def test_the_bar_is_cleaned_up_after_an_exception(clock, monkeypatch):
    terminal = looked_at(monkeypatch)

    def interrupted():
        with Bar("every entry", wanted=True) as bar:
            clock[0] += 5
            bar(1, 2)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()

    assert terminal.getvalue().count("\x1b[?25l") == terminal.getvalue().count("\x1b[?25h")


def test_an_exception_is_not_swallowed():
    with pytest.raises(KeyError), Bar("every entry", wanted=False):
        raise KeyError


def test_a_bar_that_was_never_called_leaves_nothing(clock, monkeypatch):
    terminal = looked_at(monkeypatch)
    with Bar("every entry", wanted=True):
        clock[0] += 100

    assert terminal.getvalue() == ""


def test_no_thread_stays_alive(clock, monkeypatch):
    looked_at(monkeypatch)
    before = set(threading.enumerate())
    work(clock, True, seconds=5)
    others = set(threading.enumerate()) - before
    for thread in others:
        thread.join(2.0)

    assert not any(thread.is_alive() for thread in others)


def test_a_bar_may_be_used_for_work_of_another_length(clock, monkeypatch):
    terminal = looked_at(monkeypatch)
    with Bar("every entry", wanted=True) as bar:
        clock[0] += 5
        for done, of in [(1, 2), (2, 2), (1, 100), (100, 100), (3, 2)]:
            bar(done, of)

    assert terminal.getvalue()


def test_no_random_numbers_are_drawn(clock, monkeypatch):
    looked_at(monkeypatch)
    random.seed(3)
    state, torchs = random.getstate(), torch.get_rng_state()
    work(clock, True, seconds=5)

    assert random.getstate() == state
    assert torch.equal(torch.get_rng_state(), torchs)


def test_loading_what_draws_the_bar_draws_no_random_numbers():
    program = """
import io, random, sys
from gradproof.report import progress
assert "rich" not in sys.modules
progress.PATIENCE = -1.0
random.seed(3)
state = random.getstate()
with progress.Bar("every entry", wanted=True) as bar:
    bar(1, 2)
assert "rich" in sys.modules
assert random.getstate() == state
"""
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, capture_output=True)


# ── in a check ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_long_check_shows_its_bar(monkeypatch):
    terminal = looked_at(monkeypatch)
    monkeypatch.setattr(progress, "PATIENCE", -1.0)
    gradproof.check(torch.sin, ramp(5), coverage="full", progress=True)

    assert "sin: every entry, reverse" in terminal.getvalue()


def test_a_long_check_shows_each_of_its_stages(monkeypatch):
    terminal = looked_at(monkeypatch)
    monkeypatch.setattr(progress, "PATIENCE", -1.0)
    function = torch.nn.Sequential(torch.nn.Tanh(), Doubled())
    gradproof.check(function, ramp(5), progress=True, seed=0)

    stages = ["probing, reverse", "diagnosing", "drawing where it is wrong", "contracts, reverse", "the part to blame"]
    assert [stage for stage in stages if stage not in terminal.getvalue()] == []


@pytest.mark.parametrize("wanted", [None, True, False])
def test_a_short_check_is_silent(monkeypatch, wanted):
    terminal = looked_at(monkeypatch)
    gradproof.check(torch.sin, ramp(5), coverage="full", progress=wanted)

    assert terminal.getvalue() == ""


def test_a_check_without_progress_is_silent(monkeypatch):
    terminal = looked_at(monkeypatch)
    monkeypatch.setattr(progress, "PATIENCE", -1.0)
    gradproof.check(torch.sin, ramp(5), coverage="full", progress=False)

    assert terminal.getvalue() == ""


def test_a_bar_makes_no_difference_to_the_report(monkeypatch):
    looked_at(monkeypatch)
    monkeypatch.setattr(progress, "PATIENCE", -1.0)
    reports = [
        gradproof.check(torch.sin, ramp(5), coverage="full", progress=wanted, seed=1) for wanted in (True, False)
    ]

    assert reports[0].resolution == reports[1].resolution
    assert reports[0].cost.evaluations == reports[1].cost.evaluations


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("modes", ["reverse", "forward"])
def test_every_kind_of_full_check_shows_its_bar_and_cleans_up(monkeypatch, order, modes):
    terminal = looked_at(monkeypatch)
    monkeypatch.setattr(progress, "PATIENCE", -1.0)
    gradproof.check(torch.sin, ramp(5), coverage="full", progress=True, order=order, modes=modes)

    assert terminal.getvalue().count("\x1b[?25l") == terminal.getvalue().count("\x1b[?25h") == 1


def test_a_function_that_raises_leaves_no_bar(monkeypatch):
    terminal = looked_at(monkeypatch)
    monkeypatch.setattr(progress, "PATIENCE", -1.0)

    def raising(x):
        raise KeyError("from the function")

    with pytest.raises(KeyError):
        gradproof.check(raising, ramp(5), coverage="full", progress=True)

    assert terminal.getvalue().count("\x1b[?25l") == terminal.getvalue().count("\x1b[?25h")


@pytest.mark.parametrize("wanted", ["yes", 2, 0.5])
def test_progress_is_true_false_or_none(wanted):
    with pytest.raises(ValueError, match="progress="):
        gradproof.check(torch.sin, ramp(5), progress=wanted)
