"""A seed replays a check, and one that is not given is chosen and named."""

from __future__ import annotations

import pytest
import torch

from gradproof import check
from gradproof._examine import session
from support.functions import wrong_sine
from support.points import point


@pytest.mark.parametrize("function", [torch.sin, wrong_sine(2.0), torch.relu], ids=["right", "wrong", "kinked"])
def test_the_same_seed_replays_the_same_report(function):
    x = point(20)
    first, second = (check(function, x, seed=11) for _ in range(2))

    assert first.readings == second.readings
    assert first.findings == second.findings
    assert (first.verdict, first.message, first.resolution) == (second.verdict, second.message, second.resolution)


def test_different_seeds_ask_along_different_directions():
    first, second = (check(torch.sin, point(4), seed=seed) for seed in (1, 2))

    assert first.readings != second.readings


def test_a_check_without_a_seed_names_one_that_replays_it():
    first = check(torch.sin, point(4))

    assert check(torch.sin, point(4), seed=first.seed).readings == first.readings


@pytest.fixture
def unseeded(monkeypatch):
    """As where no seed was given to the test run."""
    monkeypatch.setattr(session, "seed", None)


def test_checks_without_a_seed_choose_different_ones(unseeded):
    assert len({check(torch.sin, point(4)).seed for _ in range(4)}) > 1


def test_a_chosen_seed_does_not_depend_on_the_global_generator(unseeded):
    seeds = set()
    for _ in range(2):
        torch.manual_seed(0)
        seeds.add(check(torch.sin, point(4)).seed)

    assert len(seeds) == 2


def test_consecutive_seeds_share_no_readings():
    readings = [check(torch.sin, point(4), seed=seed, probes=3).readings for seed in range(4)]

    assert len({reading.numerical for each in readings for reading in each}) == 12
