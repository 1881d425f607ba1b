"""Every explanation has its pair: a difficulty that it explains, and a wrong gradient beside it that it does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from gradproof.engine.explanations import EXPLANATIONS
from gradproof.engine.explanations.conditioning import Cancellation, IllConditioned
from gradproof.engine.explanations.domain import DomainEdge, NoFiniteSlope, NonFiniteValues
from gradproof.engine.explanations.noise import NoiseOfOthers, Noisy, OneDirectionAlone
from gradproof.engine.explanations.nondeterminism import Nondeterministic
from gradproof.engine.explanations.nondifferentiable import Jump, Kink, SignedZero, Ties
from gradproof.engine.explanations.quantisation import QuantisedEntry, QuantisedInputs, QuantisedValues, ZeroOfCast
from gradproof.engine.explanations.step_size import FinerSteps, Oscillation, Sawtooth
from gradproof.engine.jacobian.cover import judge_fully
from gradproof.engine.judging import judge
from gradproof.engine.results import Verdict
from support.difficulties import Fickle, half, median_beside_a_sine, rounding_inside
from support.engine import judged
from support.numpy_subject import NumpySubject, elementwise, hashed

SEEDS = range(3)
BOTH = (judge, judge_fully)
POINT = np.linspace(0.3, 1.2, 4)
AT_ZERO = np.array([0.0, 0.7, 0.9, 1.1])
DRAWN = np.random.default_rng(0).uniform(0.5, 3, 4)  # on no grid
MANY_DRAWN = np.random.default_rng(0).normal(size=200)
SECOND, THIRD = np.eye(4)[1], np.eye(4)[2]


@dataclass(frozen=True, kw_only=True)
class Pair:
    """`right` makes a subject that the explanation explains; `wrong` one of the same function with a wrong claim."""

    right: Callable[[], Any]
    wrong: Callable[[], Any]
    coverages: tuple[Callable[..., Any], ...] = BOTH


def beside(value, slope, error, point=POINT, **options):
    """The same function with the right slopes, and with slopes that are off by `error`."""
    return Pair(
        right=lambda: elementwise(value, slope, point, **options),
        wrong=lambda: elementwise(value, lambda x: slope(x) + error, point, **options),
    )


def drawing(noise, factor):
    """A sine with noise that is drawn anew in every call, and its slope times a factor."""
    draw = np.random.default_rng(0)
    return elementwise(lambda x: np.sin(x) + noise * draw.normal(size=x.shape), lambda x: factor * np.cos(x), POINT)


def defined_here_alone(x):
    """A sine, of which the first entry is defined at the point alone."""
    return np.where((x == POINT) | (np.arange(4) > 0), np.sin(x), np.nan)


def mixing_with_noise(factor):
    """Sums of sines, each with noise that one input alone changes, and the right slopes times a factor."""
    matrix = np.random.default_rng(1).uniform(0.5, 2, (4, 4))
    return NumpySubject(
        lambda x: matrix @ np.sin(x) * (1 + 1e-4 * hashed(x)),
        lambda x, incoming: factor * np.cos(x) * (incoming @ matrix),
        POINT,
    )


def cancelled_slope(x):
    """A slope that is what rounding leaves of larger numbers."""
    return 1e3 * ((x * 2.3 + x * 0.9) - x * 3.2)


PAIRS: dict[type, Pair] = {
    NoFiniteSlope: Pair(
        right=lambda: elementwise(np.sqrt, lambda x: 0.5 / np.sqrt(x), AT_ZERO),
        wrong=lambda: elementwise(np.sqrt, lambda x: 0.5 / np.sqrt(x) + np.nan * THIRD, POINT),
    ),
    Kink: beside(np.abs, np.sign, 0.5 * THIRD, AT_ZERO, dtype=np.float32),
    NonFiniteValues: beside(lambda x: 1 / x, lambda x: np.where(x == 0, 0, -1 / x**2), THIRD, AT_ZERO),
    Nondeterministic: Pair(right=lambda: drawing(1e-3, 1), wrong=lambda: drawing(1e-6, 2)),
    DomainEdge: beside(defined_here_alone, np.cos, THIRD),
    SignedZero: beside(
        lambda x: np.copysign([1, 2, 3, 4], x) + np.sin(x), np.cos, THIRD, np.array([0.5, -0.0, 0.9, 0.7])
    ),
    Jump: beside(lambda x: np.sin(x) + SECOND * (x >= POINT), np.cos, THIRD),
    Cancellation: Pair(
        right=lambda: elementwise(lambda x: x - x, cancelled_slope, DRAWN),
        wrong=lambda: elementwise(lambda x: x - x, lambda x: 1e-13 * np.cos(x), DRAWN),
    ),
    QuantisedValues: beside(lambda x: half(1 + 0.1 * np.sin(x)), lambda x: 0.1 * np.cos(x), 3 * THIRD),
    ZeroOfCast: Pair(
        right=lambda: elementwise(half, lambda x: 0 * x, DRAWN),
        wrong=lambda: elementwise(lambda x: half(np.sin(x)), lambda x: 0 * x, MANY_DRAWN),
    ),
    Noisy: Pair(
        right=lambda: elementwise(lambda x: np.sin(x) + 1e-2 * hashed(x), np.cos, POINT),
        wrong=lambda: elementwise(lambda x: 100 * x + 1e-3 * hashed(x), lambda x: 0 * x, POINT),
    ),
    FinerSteps: Pair(
        right=lambda: elementwise(lambda x: x + 1e-3 * np.sin(1e12 * x), lambda x: 1 + 1e9 * np.cos(1e12 * x), POINT),
        wrong=lambda: elementwise(lambda x: x + 1e-3 * np.sin(1e10 * x), lambda x: 3 + 0 * x, POINT),
    ),
    Sawtooth: beside(lambda x: x * half(np.exp(x)), lambda x: (1 + x) * np.exp(x), 5.0, MANY_DRAWN[:20]),
    QuantisedInputs: Pair(
        right=lambda: rounding_inside(np.zeros(8), 24), wrong=lambda: rounding_inside(np.zeros(8), 24, factor=1.001)
    ),
    Oscillation: Pair(
        right=lambda: elementwise(
            lambda x: np.exp(x) + np.sin(1e8 * x) / 1e8, lambda x: np.exp(x) + np.cos(1e8 * x), POINT
        ),
        wrong=lambda: elementwise(lambda x: np.exp(x) + np.sin(1e8 * x) / 1e8, lambda x: np.exp(x) + 3, POINT),
    ),
    Ties: Pair(
        right=lambda: median_beside_a_sine([1.0, 1.0, 1.0, 0.3, 1.7]),
        wrong=lambda: median_beside_a_sine([1.0, 1.0, 1.0, 0.3, 1.7], last_error=0.3),
    ),
    IllConditioned: beside(np.sin, lambda x: np.cos(x) * (1 + 1e-5 * hashed(x)), 1e-3),
    NoiseOfOthers: Pair(
        right=lambda: mixing_with_noise(1.0), wrong=lambda: mixing_with_noise(1.05), coverages=(judge_fully,)
    ),
    QuantisedEntry: beside(lambda x: np.round(x * 2**14) / 2**14, lambda x: 0 * x, 3 * THIRD, DRAWN),
    OneDirectionAlone: Pair(
        right=lambda: NumpySubject(np.sin, Fickle(2), POINT),
        wrong=lambda: NumpySubject(np.sin, Fickle(1000), POINT),
        coverages=(judge,),  # full coverage asks for every claim once
    ),
}

every_pair = pytest.mark.parametrize(
    ("explanation", "coverage"),
    [
        pytest.param(explanation, coverage, id=f"{explanation.__name__}-{coverage.__name__}")
        for explanation, pair in PAIRS.items()
        for coverage in pair.coverages
    ],
)


@every_pair
def test_a_right_gradient_in_difficulty_is_explained_by_this_alone_and_not_called_wrong(
    explanation, coverage, explained
):
    for seed in SEEDS:
        explained.clear()

        assert judged(PAIRS[explanation].right(), seed, coverage=coverage).verdict is not Verdict.FAIL
        assert explained == {explanation.__name__}


@every_pair
def test_a_wrong_gradient_beside_the_same_difficulty_fails(explanation, coverage):
    verdicts = {judged(PAIRS[explanation].wrong(), seed, coverage=coverage).verdict for seed in SEEDS}

    assert verdicts == {Verdict.FAIL}


def test_every_explanation_has_its_pair():
    assert set(PAIRS) == set(map(type, EXPLANATIONS))
