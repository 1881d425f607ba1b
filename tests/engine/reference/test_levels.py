"""How much the errors of some entries widen the bars of others."""

from __future__ import annotations

import pytest
import torch

from gradproof.engine.reference.errors import ErrorStatistics, Format
from gradproof.engine.reference.levels import levels_by_class

SINGLE = Format(unit=2.0**-24, tiny=2.0**-126, largest=3.4e38)
SIZE, MOST = 480, 8.0


def normal(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def levels(ratios, amplification=None):
    amplification = torch.ones(len(ratios), dtype=torch.float64) if amplification is None else amplification
    return levels_by_class(torch, ratios, amplification, 1, most=MOST)


def amplified(seed, size=SIZE):
    """The last quarter of the entries cancels."""
    return torch.where(torch.arange(size) < 3 * size // 4, 1.0, 30.0) * (1 + 0.1 * normal(seed, size).abs())


def gathered(draws, errors):
    exact = torch.ones(SIZE, dtype=torch.float64)
    spread = SINGLE.unit * amplified(0)
    statistics = ErrorStatistics(torch, exact, SINGLE, unit=SINGLE.unit)
    for draw in range(draws):
        plain = spread * normal(100 + draw, SIZE)
        statistics.add_perturbed(exact + 0.3 * spread * normal(200 + draw, SIZE))
        statistics.add_plain(exact + plain, exact, SINGLE.unit)
        statistics.add(exact + spread * errors(draw), exact, exact + plain)
    allowance = statistics.allowance(SIZE)
    return (statistics.worst + statistics.storage(statistics.numerical) > allowance.bar).nonzero().flatten().tolist()


def test_entries_that_cancel_widen_the_bars_of_such_entries_alone():
    ratios = normal(1, SIZE).abs()
    ratios[3 * SIZE // 4 :] *= 5

    found = levels(ratios, amplified(2))

    assert float(found[: SIZE // 2].max()) < 2
    assert float(found[3 * SIZE // 4 :].min()) > 3


def test_a_tail_among_alike_entries_widens_the_bars_of_all():
    ratios = normal(1, SIZE).abs()
    ratios[::20] = 6.0

    assert float(levels(ratios).min()) > 2


@pytest.mark.parametrize("wrong", [1, 2])
def test_one_or_two_wrong_entries_do_not_widen_their_bars(wrong):
    ratios, amplification = normal(1, SIZE).abs(), 1 + normal(2, SIZE).abs()
    ratios[:wrong] = 1000.0

    assert float(levels(ratios, amplification).max()) < 2


def test_few_entries_have_no_classes():
    assert levels(normal(1, 300).abs()).tolist() == [MOST] * 300


def test_a_wrong_entry_shows_beside_a_kernel_that_errs_more_where_numbers_cancel():
    worse = torch.where(torch.arange(SIZE) < 3 * SIZE // 4, 0.5, 5.0)

    def errors(draw):
        each = worse * normal(300 + draw, SIZE)
        each[17] = 32.0  # units of rounding: 16 in the last place
        return each

    assert 17 in gathered(4, errors)
    assert gathered(32, errors) == [17]


@pytest.mark.parametrize("pattern", ["mixed", "tail", "block"])
def test_right_errors_of_several_sizes_are_not_wrong_once_an_entry_s_own_scatter_is_known(pattern):
    index = torch.arange(SIZE)
    larger = {"mixed": index % 2 == 0, "tail": index % 50 == 3, "block": index < SIZE // 8}[pattern]
    size = torch.where(larger, 3.0 if pattern == "mixed" else 5.0, 1.0)

    assert gathered(32, lambda draw: size * normal(400 + draw, SIZE)) == []
