"""The statistics of an implementation against its reference."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gradproof.engine.reference.errors import ACCUMULATED, ErrorStatistics, Format
from gradproof.engine.reference.quantiles import deviations_for, largest_of, quantile

SINGLE = Format(unit=2.0**-24, tiny=2.0**-126, largest=3.4e38)
HALF = Format(unit=2.0**-9, tiny=2.0**-126, largest=3.3e38)


def gathered(exact, errors, plain_errors, scatter, form=SINGLE):
    """The statistics of draws whose errors are given, one row for each draw."""
    statistics = ErrorStatistics(torch, exact, form, unit=form.unit)
    for own, plain, change in zip(errors, plain_errors, scatter, strict=True):
        statistics.add_perturbed(exact + change)
        statistics.add_plain(exact + plain, exact, form.unit)
        statistics.add(exact + own, exact, exact + plain)
    return statistics


def rounding(seed, draws, size, spread):
    generator = torch.Generator().manual_seed(seed)
    return spread * torch.randn(draws, size, generator=generator, dtype=torch.float64)


def wrong(statistics, entries=None):
    allowance = statistics.allowance(entries or statistics.size)
    return statistics.worst + statistics.storage(statistics.numerical) > allowance.bar


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.sampled_from([1, 7, 40, 1000]),
    draws=st.sampled_from([4, 32]),
    spread=st.floats(0, 1e-4),
    better=st.floats(0, 1),
    form=st.sampled_from([SINGLE, HALF]),
)
def test_errors_like_those_of_the_plain_reference_are_never_wrong(seed, size, draws, spread, better, form):
    exact = rounding(seed, 1, size, 1.0)[0]
    plain, scatter = rounding(seed + 1, 32, size, spread), rounding(seed + 2, 32, size, spread)
    statistics = gathered(exact, better * rounding(seed + 3, 32, size, spread), plain, scatter, form)

    assert not wrong(statistics).any()


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), place=st.integers(0, 999), size=st.floats(30, 1e9))
def test_an_entry_far_beyond_rounding_is_wrong_and_no_other_is(seed, place, size):
    exact = rounding(seed, 1, 1000, 1.0)[0]
    spread = 1e-6
    errors = rounding(seed + 3, 32, 1000, spread)
    errors[:, place] += size * spread
    statistics = gathered(exact, errors, rounding(seed + 1, 32, 1000, spread), rounding(seed + 2, 32, 1000, spread))

    assert wrong(statistics).nonzero().tolist() == [[place]]


@given(st.integers(1, 10**8), st.integers(1, 10**8))
def test_more_entries_have_wider_bars(one, other):
    low, high = sorted((one, other))

    assert 0 < deviations_for(low, 1e-6) <= deviations_for(high, 1e-6) < 9


@pytest.mark.parametrize("entries", [1, 1000, 100_000])
def test_the_rate_of_false_alarms_is_kept_at_any_size(entries):
    bar = deviations_for(entries, 0.2)
    tries = 400 if entries < 100_000 else 40
    alarms = sum(float(rounding(seed, 1, entries, 1.0).abs().max()) > bar for seed in range(tries))

    assert 0.5 * 0.2 < alarms / tries + 0.05 < 0.2 * 1.8


def test_the_quantile_of_a_maximum_is_that_of_normal_numbers():
    found = rounding(0, 4, 20_000, 1.0).abs().amax(0)

    assert quantile(found, 0.5) == pytest.approx(largest_of(4, 0.5), rel=0.05)


def test_a_plain_error_of_zero_by_luck_does_not_narrow_the_bar_to_nothing():
    exact = torch.ones(200, dtype=torch.float64)
    plain = rounding(0, 4, 200, 1e-6)
    plain[:, 17] = 0
    statistics = gathered(exact, torch.zeros(4, 200, dtype=torch.float64), plain, torch.zeros(4, 200))
    bar = statistics.allowance(200).bar

    assert 0.3 < float(bar[17] / bar.median()) < 1


def test_one_large_honest_error_excuses_no_error_elsewhere():
    exact = torch.ones(200, dtype=torch.float64)
    plain = rounding(0, 32, 200, 1e-6)
    plain[:, 3] *= 1e4
    errors = rounding(1, 32, 200, 1e-6)
    errors[:, 3] *= 1e4
    errors[:, 50] = 1e-4
    statistics = gathered(exact, errors, plain, torch.zeros(32, 200))

    assert wrong(statistics).nonzero().tolist() == [[50]]


def test_errors_that_are_large_throughout_are_imprecise():
    exact = torch.ones(200, dtype=torch.float64)
    plain = rounding(0, 4, 200, 1e-6)
    worse = gathered(exact, 3 * ACCUMULATED * rounding(1, 4, 200, 1e-6), plain, torch.zeros(4, 200))
    alike = gathered(exact, 2 * rounding(1, 4, 200, 1e-6), plain, torch.zeros(4, 200))

    assert worse.allowance(200).imprecise
    assert not alike.allowance(200).imprecise


def test_infinities_are_right_where_the_number_is_too_large_for_the_format():
    exact = torch.tensor([1e39, -1e39, 1.0], dtype=torch.float64)
    statistics = ErrorStatistics(torch, exact, SINGLE, unit=SINGLE.unit)
    statistics.add(torch.tensor([math.inf, -math.inf, 1.0], dtype=torch.float64), exact, None)

    assert not wrong(statistics).any()


@pytest.mark.parametrize("strange", [math.inf, math.nan])
def test_a_number_that_is_not_finite_where_the_reference_is_finite_is_wrong(strange):
    exact = torch.ones(3, dtype=torch.float64)
    statistics = ErrorStatistics(torch, exact, SINGLE, unit=SINGLE.unit)
    statistics.add(torch.tensor([1.0, strange, 1.0], dtype=torch.float64), exact, exact)

    assert wrong(statistics).tolist() == [False, True, False]


def test_what_overflows_in_the_plain_reference_too_is_left_out():
    exact = torch.ones(3, dtype=torch.float64)
    overflown = torch.tensor([1.0, math.nan, 1.0], dtype=torch.float64)
    statistics = ErrorStatistics(torch, exact, SINGLE, unit=SINGLE.unit)
    statistics.add(overflown, exact, overflown)

    assert not wrong(statistics).any()
    assert statistics.left_out == 1


def test_differences_between_calls_within_rounding_are_no_race_and_larger_ones_are():
    exact = torch.ones(100, dtype=torch.float64)
    statistics = gathered(exact, rounding(0, 4, 100, 1e-7), rounding(1, 4, 100, 1e-7), torch.zeros(4, 100))
    change = rounding(2, 1, 100, 1e-7)[0]
    statistics.add_repeated(exact, exact + change)

    assert not statistics.races(100).any()
    change[7] = 1e-3
    statistics.add_repeated(exact, exact + change)
    assert statistics.races(100).nonzero().tolist() == [[7]]
