"""Mistakes that single entries hide, in boxes of a tensor."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gradproof.engine.reference.boxes import box_error
from gradproof.engine.reference.errors import ErrorStatistics, Format
from gradproof.engine.reference.patterns import place_of

UNIT = 2.0**-9
HALF = Format(unit=UNIT, tiny=2.0**-126, largest=3.3e38)
SHAPE = (48, 70)


def numbers(seed, *shape):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def gathered(exact, mistake=0.0, *, seed=0, shared=0.0):
    """Draws of an implementation and of the plain reference, which round alike; rows may share a part of an error."""
    statistics = ErrorStatistics(torch, exact.reshape(-1), HALF, unit=UNIT)
    for draw in range(4):
        values = []
        for who in range(2):
            error = numbers(seed + 10 * draw + who, *exact.shape)
            common = shared * numbers(seed + 1000 + 10 * draw + who, exact.shape[0], *(1,) * (exact.dim() - 1))
            values.append((exact * (1 + UNIT * (0.5 * error + common))).reshape(-1))
        statistics.add_perturbed(exact.reshape(-1) * (1 + 0.3 * UNIT * numbers(seed + 77 + draw, exact.numel())))
        statistics.add_plain(values[1], exact.reshape(-1), UNIT)
        own = values[0] + (mistake.reshape(-1) if isinstance(mistake, torch.Tensor) else mistake)
        statistics.add(own, exact.reshape(-1), values[1])
    return statistics


def flags(shape, *index):
    found = torch.zeros(shape, dtype=torch.bool)
    found[index] = True
    return found


@pytest.mark.parametrize(
    ("index", "place"),
    [
        ((slice(None), slice(8, 16)), "[:, 8:16]"),
        ((slice(None), slice(64, 70)), "[:, 64:70]"),
        ((slice(45, 48),), "[45:48, :]"),
        ((slice(16, 32), slice(32, 48)), "[16:32, 32:48]"),
        ((slice(None),), "every entry"),
    ],
)
def test_a_small_factor_is_found_in_rows_columns_tails_tiles_and_everywhere(index, place):
    exact = numbers(1, *SHAPE)
    inside = flags(SHAPE, *index)
    statistics = gathered(exact, 5 * UNIT * exact * inside)
    allowance = statistics.allowance(exact.numel())

    assert not (statistics.worst + statistics.storage(statistics.numerical) > allowance.bar).any()
    found = box_error(SHAPE, statistics, exact.numel(), allowance.level)
    assert found.pattern == "factor"
    assert abs(found.coefficient - 5 * UNIT) < found.bar < 5 * UNIT
    assert place_of(SHAPE, found.inside) == place


def test_an_offset_to_one_side_is_found():
    exact = numbers(1, *SHAPE)
    found = box_error(SHAPE, gathered(exact, 5 * UNIT * exact.abs()), exact.numel(), 1.0)

    assert found.pattern == "offset"
    assert 3 < found.coefficient < 7


def test_a_shift_of_smooth_numbers_is_found():
    exact = 1 + 0.02 * torch.cumsum(numbers(2, *SHAPE).abs(), 1)
    found = box_error(SHAPE, gathered(exact, exact.roll(1, 1) - exact), exact.numel(), 1.0)

    assert found is not None


def test_vectors_and_tensors_of_many_dimensions_have_boxes():
    for shape in ((400,), (2, 3, 4, 5, 8)):
        exact = numbers(3, *shape)
        wrong = gathered(exact, 12 * UNIT * exact)
        assert box_error(shape, gathered(exact), 400, 1.0) is None
        assert box_error(shape, wrong, 400, 1.0) is not None


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    shape=st.sampled_from([(1,), (7, 1), (40, 33), (3, 20, 40), (200,)]),
    shared=st.sampled_from([0.0, 1.0, 4.0]),
    bias=st.floats(-1.5, 1.5),
)
def test_rounding_errors_that_rows_share_and_a_rounded_constant_are_no_mistake(seed, shape, shared, bias):
    exact = numbers(seed + 5, *shape)
    statistics = gathered(exact, bias * UNIT * exact, seed=seed, shared=shared)

    assert box_error(shape, statistics, exact.numel(), statistics.allowance(exact.numel()).level) is None
