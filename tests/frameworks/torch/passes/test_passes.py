"""Passes over long vectors give the numbers of the formulas that they stand for, on a CPU and on a GPU."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gradproof.frameworks.torch.passes import Drawn, apart, beside, change, displaced, enlarged, outside
from gradproof.frameworks.torch.passes.drawn import BLOCK, COARSE, FINE, MEAN_SQUARE

SIZES = (1, 5, BLOCK, BLOCK + 1, 3 * BLOCK + 7)
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))]

every_size = pytest.mark.parametrize("size", SIZES)
every_device = pytest.mark.parametrize("device", DEVICES)


def drawn(size, device="cpu", digits=FINE, seed=1):
    return Drawn.of(size, seed, torch.device(device), digits)


def normal(size, device, seed, dtype=torch.float64):
    return torch.randn(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(device, dtype)


@every_device
@every_size
@pytest.mark.parametrize("digits", [COARSE, FINE])
def test_entries_are_signs_times_magnitudes_between_a_half_and_one(size, device, digits):
    vector = drawn(size, device, digits).vector().abs()

    assert len(vector) == size
    assert 0.5 <= float(vector.min()) <= float(vector.max()) <= 1


@every_device
def test_signs_and_magnitudes_are_spread_evenly(device):
    vector = drawn(BLOCK, device).inner

    assert abs(float(vector.sign().mean())) < 0.02
    assert float(vector.square().mean()) == pytest.approx(0.7357, abs=0.01)  # of a uniform variable in [√½, 1]


@every_device
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_coarse_entries_are_exact_in_low_precision(device, dtype):
    weights = drawn(2 * BLOCK, device, COARSE)

    assert torch.equal(weights.vector(dtype).to(torch.float64), weights.vector())


@given(st.integers(0, 2**31), st.floats(1e-6, 1e3))
@settings(deadline=None)
def test_a_half_precision_point_plus_a_fine_direction_is_exact(seed, scale):
    point = (scale * normal(100, "cpu", seed)).to(torch.bfloat16)
    step = drawn(100, seed=seed).times(2.0 ** math.floor(math.log2(4e-6 * scale)))

    moved = displaced(point, step, torch.empty(100, dtype=torch.float64))

    assert torch.equal(moved - point.to(torch.float64), step.vector())


def test_the_mean_square_of_entries_is_the_one_that_lengths_are_computed_with():
    mean = sum(float(drawn(BLOCK, seed=seed).vector().square().mean()) for seed in range(64)) / 64

    assert mean == pytest.approx(MEAN_SQUARE, rel=0.1)


@every_device
@every_size
@pytest.mark.parametrize("sized", [False, True])
def test_the_entries_outside_are_found(size, device, sized):
    truth = normal(size, device, 0)
    claimed, sizes = truth.clone(), truth.float().abs() if sized else None
    claimed[size // 2] *= 1.5

    places, gaps, allowed = outside(truth, claimed, sizes, 0.1, 0.0)

    assert places.tolist() == [size // 2]
    assert float(gaps) == pytest.approx(0.5 * abs(float(truth[size // 2])))
    assert float(allowed) == pytest.approx(0.1 * abs(float(truth[size // 2])) * (2**0.5 if sized else 1), rel=1e-6)


@every_device
@every_size
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_a_point_is_displaced_in_double_precision(size, device, dtype):
    point, step = normal(size, device, 0, dtype), drawn(size, device).times(2.0**-10)

    moved = displaced(point, step, torch.empty(size, dtype=torch.float64, device=device))

    torch.testing.assert_close(moved, point.to(torch.float64) + step.vector(), rtol=1e-15, atol=1e-15)


@every_device
@every_size
def test_a_change_is_weighted_and_summed(size, device):
    centre, weights = normal(size, device, 0), drawn(size, device)
    values = centre + 1e-6 * normal(size, device, 2)

    assert float(change(values, centre, weights)) == pytest.approx(
        float(weights.vector() @ (values - centre)), rel=1e-9
    )


@every_device
@every_size
def test_the_largest_distance_is_found(size, device):
    one, other = normal(size, device, 0), normal(size, device, 0, torch.bfloat16)

    assert float(apart(one, other)) == float((one - other.to(torch.float64)).abs().max())


@every_device
@every_size
@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_distance_to_what_is_not_finite_is_not_finite(size, device, number):
    one, other = normal(size, device, 0), normal(size, device, 0)
    other[size // 2] = number

    assert not math.isfinite(float(apart(one, other)))


@every_device
@every_size
@pytest.mark.parametrize("sized", [False, True])
def test_a_gradient_is_summed_along_a_direction_and_beside_another(size, device, sized):
    truth, direction = normal(size, device, 0), drawn(size, device)
    claimed = truth.to(torch.bfloat16)
    claimed[::7] *= 1.5
    sizes = enlarged(enlarged(None, normal(size, device, 3)), normal(size, device, 4)) if sized else None

    numbers = beside(truth, claimed, sizes, direction, 0.1, 1e-3).tolist()

    part, gap = truth * direction.vector(), (claimed.to(torch.float64) - truth).abs()
    whole = truth.abs() if sizes is None else (truth.square() + sizes.to(torch.float64).square()).sqrt()
    allowed = 0.1 * whole + 1e-3
    wanted = [part.sum(), part.square().sum(), (gap > allowed).sum(), part.abs().max(), truth.abs().max()]
    assert numbers == pytest.approx([float(each) for each in (*wanted, (gap + allowed).max())], rel=1e-9)


@every_device
@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_what_is_not_finite_is_outside(device, number):
    truth = normal(100, device, 0)
    claimed = truth.clone()
    claimed[3] = number

    assert beside(truth, claimed, None, drawn(100, device), 0.1, 0.0).tolist()[2] == 1


@every_device
def test_inputs_of_a_pass_are_not_written_to(device):
    one, other = normal(BLOCK, device, 0), normal(BLOCK, device, 1)
    before = one.clone(), other.clone()

    apart(one, other)
    change(one, other, drawn(BLOCK, device))
    beside(one, other, other.float(), drawn(BLOCK, device), 0.1, 0.0)

    assert torch.equal(one, before[0])
    assert torch.equal(other, before[1])
