"""Small functions go through NumPy's arrays, with the same results."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from gradproof import check
from gradproof.engine.subject import Step
from gradproof.frameworks.torch.subject import numpy_subject as small
from gradproof.frameworks.torch.subject.numpy_subject import SMALL, InNumpy, for_the_engine
from gradproof.frameworks.torch.subject.torch_subject import TorchSubject
from support.points import ramp


class WrongSquare(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        wrong = 2 * x * gradient
        wrong[1] *= 1.01
        return wrong


def subject_of(function, x):
    return TorchSubject.of(function, (x,), None)


FUNCTIONS = {
    "smooth": torch.sin,
    "one output": lambda x: (x * x.flip(0)).sum(),
    "wrong": WrongSquare.apply,
    "a kink": lambda x: (x - 1.0).abs(),
    "a leap": lambda x: x + (x >= 1.0),
    "an edge": lambda x: (x - 0.3).sqrt(),
    "a cast": lambda x: x.half(),
    "imaginary": lambda x: torch.complex(x, x * x).conj().imag,
}


@pytest.mark.parametrize("coverage", ["probe", "full"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_without_numpy_the_answer_is_the_same(name, coverage, monkeypatch):
    options = {"coverage": coverage, "seed": 0, "contracts": ()}
    with_numpy = check(FUNCTIONS[name], ramp(5, high=1.7), **options)
    monkeypatch.setattr(small, "_numpy", lambda: None)
    without = check(FUNCTIONS[name], ramp(5, high=1.7), **options)

    assert (with_numpy.verdict, with_numpy.reason) == (without.verdict, without.reason)
    assert [finding.entries[0].index for finding in with_numpy.findings] == [
        finding.entries[0].index for finding in without.findings
    ]
    assert with_numpy.cost.evaluations == without.cost.evaluations


def test_small_subjects_are_in_numpy_and_large_ones_are_not():
    assert isinstance(for_the_engine(subject_of(torch.sin, ramp(5, high=1.7))), InNumpy)
    assert isinstance(for_the_engine(subject_of(torch.sum, ramp(SMALL, high=1.7))), TorchSubject)


def test_values_are_kept_when_the_function_writes_to_its_memory_again():
    memory = torch.zeros(3, dtype=torch.float64)
    subject = InNumpy(
        subject_of(lambda x: x.sin() if torch.is_grad_enabled() else memory.copy_(x.sin()), ramp(3, high=1.7))
    )
    direction = subject.direction(0, Step(1e-3))
    near = subject.evaluate(direction, 1.0)
    before = near.copy()
    subject.evaluate(direction, 4.0)

    assert (near == before).all()


@pytest.mark.parametrize("coverage", ["probe", "full"])
def test_numpy_warns_of_nothing_and_keeps_its_rules(coverage):
    with np.errstate(all="warn"), warnings.catch_warnings():
        warnings.simplefilter("error")
        rules = np.geterr()
        check(lambda x: 1 / (x - 0.3), ramp(5, high=1.7), coverage=coverage, seed=0, contracts=())

        assert np.geterr() == rules


@pytest.mark.parametrize("coverage", ["probe", "full"])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_complex_numbers_beside_real_ones_lie_where_torch_can_read_them(order, coverage):
    given = [ramp(1, high=1.7), torch.linspace(0.2, 1.1, 1, dtype=torch.complex128).requires_grad_()]
    chosen = [given[number] for number in order]

    def both(*tensors):
        real, imaginary = (tensors[order.index(number)] for number in (0, 1))
        return [(real.sin().sum(), real.prod() * imaginary.square().sum())[number] for number in order]

    assert check(both, chosen, coverage=coverage, seed=0).passed
