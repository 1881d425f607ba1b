"""Random generators are as they were after a check, and their draws are held fixed within it."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch import nn

from gradproof import Verdict, check
from support.endings import every_ending, every_precision, run, states
from support.functions import doubled
from support.points import point


@every_precision
@every_ending
def test_the_global_generators_stay_as_they_are(function, dtype):
    if function is torch.relu and dtype.is_complex:
        pytest.skip("relu is for real numbers")
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)
    before = states()

    run(function, point(4, dtype=dtype))

    assert states() == before


@pytest.mark.parametrize(
    "draw",
    [lambda: torch.rand(()), random.random, np.random.rand, lambda: random.gauss(0, 1), np.random.randn],
    ids=["torch", "python", "numpy", "python gauss", "numpy normal"],
)
@pytest.mark.parametrize("gradient", ["right", "wrong"])
def test_numbers_that_only_the_backward_draws_are_given_back(draw, gradient):
    class Drawing(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.sin() if gradient == "wrong" else x.clone()

        @staticmethod
        def backward(ctx, incoming):
            draw()
            return incoming

    before = states()

    run(Drawing.apply, point(4))

    assert states() == before


@pytest.mark.parametrize("draw", [lambda: torch.rand(()), random.random, np.random.rand], ids=["torch", "python", "np"])
def test_numbers_that_only_later_calls_draw_are_given_back(draw):
    calls = []

    def function(x):
        if calls:
            draw()
        calls.append(None)
        return x.sin()

    before = states()

    assert run(function, point(4)).passed
    assert states() == before


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_dropout_passes_since_its_draws_are_held_fixed(dtype):
    torch.manual_seed(0)

    assert run(lambda x: nn.functional.dropout(x.sin(), 0.5), point(50, dtype=dtype)).passed


def test_a_module_with_dropout_in_train_mode_passes():
    module = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Tanh(), nn.Dropout(0.2)).double().train()

    assert run(module, point(5, 6)).passed


@pytest.mark.parametrize(
    "draw",
    [
        lambda x: torch.rand(x.shape, dtype=x.dtype),
        lambda x: random.random(),
        lambda x: float(np.random.rand()),
        lambda x: torch.from_numpy(np.random.standard_normal(x.shape)),
    ],
    ids=["torch", "python", "numpy", "numpy normal"],
)
def test_draws_from_any_global_generator_are_held_fixed(draw):
    assert run(lambda x: x.sin() * draw(x), point(4)).passed


def test_a_wrong_gradient_behind_random_draws_is_found():
    report = run(lambda x: nn.functional.dropout(doubled(x), 0.3), point(30))

    assert report.verdict is Verdict.FAIL
    assert "wrong" in report.message


def test_draws_inside_the_backward_are_held_fixed():
    def checkpointed(x):
        return torch.utils.checkpoint.checkpoint(
            lambda x: nn.functional.dropout(x.sin(), 0.5), x, use_reentrant=False, preserve_rng_state=True
        )

    assert run(checkpointed, point(30)).passed


OWN = {
    "torch": (lambda: torch.Generator().manual_seed(1), lambda own: torch.rand((), generator=own).item()),
    "NumPy": (lambda: np.random.default_rng(1), lambda own: float(own.random())),
    "NumPy twister": (lambda: np.random.Generator(np.random.MT19937(1)), lambda own: float(own.random())),
    "NumPy of old": (lambda: np.random.RandomState(1), lambda own: float(own.standard_normal())),
    "Python": (lambda: random.Random(1), lambda own: own.gauss(0, 1)),
}


@pytest.mark.parametrize("kind", OWN)
def test_a_generator_of_the_function_s_own_is_held_fixed_and_given_back(kind):
    make, draw = OWN[kind]
    own = make()

    assert run(lambda x: x.sin() * (2 + draw(own)), point(4)).passed

    assert draw(own) == draw(make())


@pytest.mark.parametrize("kind", OWN)
@pytest.mark.parametrize("nested", [False, True], ids=["an argument", "in an argument"])
def test_a_generator_among_the_arguments_is_held_fixed_and_given_back(kind, nested):
    make, draw = OWN[kind]
    own = make()
    given = {"nested": [own]} if nested else own

    def noisy(x, given):
        return x.sin() * (2 + draw(given["nested"][0] if nested else given))

    assert check(noisy, (point(4), given), coverage="full").passed

    assert draw(own) == draw(make())


def test_a_wrong_gradient_behind_a_generator_of_its_own_is_found():
    own = torch.Generator().manual_seed(1)

    report = run(lambda x: doubled(x) * torch.rand(x.shape, generator=own, dtype=x.dtype), point(30))

    assert report.verdict is Verdict.FAIL


def test_draws_from_the_system_s_randomness_cannot_be_held_fixed():
    system = random.SystemRandom()

    assert run(lambda x: x.sin() * system.random(), point(4)).verdict is Verdict.INCONCLUSIVE
