"""A check ends when its budget is spent, and gives the best answer until then."""

from __future__ import annotations

import time

import pytest
import torch

from gradproof import InputError, Reason, Verdict, check
from support.functions import doubled, wrong_sine
from support.points import point


@pytest.fixture
def clock(monkeypatch):
    """A clock that goes on by a second with every call of the function."""
    now = [0.0]
    monkeypatch.setattr("gradproof.frameworks.torch.examination.budget.time.perf_counter", lambda: now[0])
    return now


def slow(clock, function=torch.sin, seconds=1.0):
    def called(x):
        clock[0] += seconds
        return function(x)

    return called


def test_a_check_within_its_budget_is_the_check_without_one(clock):
    report, usual = (check(slow(clock), point(5), seed=0, budget=budget) for budget in (1e6, None))

    assert report.passed
    assert (report.resolution, report.notes) == (usual.resolution, usual.notes)


def test_a_budget_that_is_spent_before_anything_is_known_leaves_the_check_inconclusive(clock):
    report = check(slow(clock), point(5), seed=0, budget=2)

    assert (report.verdict, report.reason) == (Verdict.INCONCLUSIVE, Reason.BUDGET)
    assert report.message.startswith("The budget of 2 s was spent before the end. Unfinished: reverse")
    assert "agrees" not in report.message
    assert report.cost.evaluations <= 3


def test_a_budget_that_is_spent_on_contracts_says_what_agrees(clock):
    needed = check(slow(clock), point(5), seed=0, contracts=()).cost.evaluations
    clock[0] = 0.0

    report = check(slow(clock), point(5), seed=0, budget=needed + 0.5)

    assert report.reason is Reason.BUDGET
    assert "Unfinished: contract '" in report.message
    assert report.message.endswith("What was compared until then agrees.")
    assert report.resolution.relative < 1e-6


def test_a_wrong_gradient_that_was_found_in_time_is_a_failure_without_the_rest(clock):
    wrong = wrong_sine(2.0)
    needed = check(slow(clock, wrong), point(5), seed=0, explain=False, contracts=()).cost.evaluations
    clock[0] = 0.0

    report = check(slow(clock, wrong), point(5), seed=0, budget=needed + 0.5)

    assert report.verdict is Verdict.FAIL
    assert len(report.findings[0].entries) == 5
    assert any(note.startswith("The budget of ") and "the diagnosis" in note for note in report.notes)


def test_one_mode_that_is_wrong_is_reported_though_the_other_has_no_time(clock):
    needed = check(slow(clock, doubled), point(5), modes="reverse", seed=0).cost.evaluations
    clock[0] = 0.0

    report = check(slow(clock, doubled), point(5), modes=("reverse", "forward"), seed=0, budget=needed)

    assert report.verdict is Verdict.FAIL


@pytest.mark.parametrize("options", [{"coverage": "full"}, {"order": 2}, {"modes": ("reverse", "forward")}])
def test_every_kind_of_check_ends(clock, options):
    report = check(slow(clock, torch.sinh), point(6), seed=0, budget=3, **options)

    assert report.reason is Reason.BUDGET
    assert report.cost.evaluations < 8


def test_a_function_that_catches_everything_does_not_take_the_end_for_its_own_error(clock):
    def function(x):
        clock[0] += 1
        try:
            return torch.sin(x)
        except Exception:
            return torch.cos(x)

    assert check(function, point(5), seed=0, budget=3).reason is Reason.BUDGET


def test_what_the_caller_holds_is_as_it_was(clock):
    x = point(5)
    before, state = x.detach().clone(), torch.get_rng_state()

    check(slow(clock), x, seed=0, budget=2)

    assert torch.equal(x, before)
    assert x.grad is None
    assert torch.equal(torch.get_rng_state(), state)


def test_the_budget_is_in_seconds():
    def function(x):
        time.sleep(0.1)
        return x.sin()

    began = time.monotonic()
    report = check(function, point(2000), coverage="full", seed=0, budget=0.2)

    assert report.reason is Reason.BUDGET
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("budget", [0, -1, float("inf"), float("nan"), True, "soon"])
def test_a_budget_that_is_no_time_is_refused(budget):
    with pytest.raises(InputError, match="pass a positive number of seconds"):
        check(torch.sin, point(3), budget=budget)
