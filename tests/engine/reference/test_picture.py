"""The errors of a tensor by position."""

from __future__ import annotations

import math

import torch

from gradproof.engine.reference.errors import ErrorStatistics, Format
from gradproof.engine.reference.picture import error_map

SINGLE = Format(unit=2.0**-24, tiny=2.0**-126, largest=3.4e38)


def mapped(shape, wrong=(), plain=1e-7):
    exact = torch.ones(math.prod(shape), dtype=torch.float64)
    statistics = ErrorStatistics(torch, exact, SINGLE, unit=SINGLE.unit)
    own = exact + 2e-7
    for place in wrong:
        own[place] += 1
    if plain is not None:
        statistics.add_plain(exact + plain, exact, SINGLE.unit)
    statistics.add(own, exact, None)
    return error_map("output", shape, statistics, statistics.allowance(len(exact)))


def test_a_wrong_entry_shows_in_its_block():
    found = mapped((3, 70), wrong=[2 * 70 + 69])

    assert (found.rows, found.columns, found.down, found.across) == (3, 70, 1, 4)
    assert [len(row) for row in found.bars] == [18, 18, 18]
    assert [(r, c) for r, row in enumerate(found.bars) for c, bar in enumerate(row) if bar > 1] == [(2, 17)]


def test_ratios_are_those_of_the_root_mean_squares():
    assert {round(ratio, 6) for row in mapped((4, 4)).ratios for ratio in row} == {2.0}
    assert mapped((4,), plain=0.0).ratios == ((math.inf,) * 4,)
    assert mapped((4, 4), plain=None).ratios == ()


def test_tensors_of_any_shape_have_at_most_32_blocks_along_a_side():
    for shape in ((), (1,), (5, 0, 3)[:1], (2, 3, 1000), (4097,)):
        found = mapped(shape)
        assert 1 <= len(found.bars) <= 32
        assert 1 <= len(found.bars[0]) <= 32
