"""An output that follows an input requires grad."""

from __future__ import annotations

import pytest
import torch

from gradproof import check
from support.points import point


def notes(function, inputs):
    return " ".join(check(function, inputs, contracts=("detached",), seed=0, modes="reverse").notes)


def test_right_functions_keep_it(asked, right):
    assert asked("detached", *right) == []


CUT = {
    "detach": lambda x: x.detach().sin(),
    "data": lambda x: x.data.exp(),
    "numpy": lambda x: torch.from_numpy(x.detach().numpy() ** 2),
    "item": lambda x: torch.tensor(x.sum().item(), dtype=torch.float64),
    "no_grad": torch.no_grad()(lambda x: x * 3),
}


@pytest.mark.parametrize("function", CUT.values(), ids=CUT)
def test_a_path_that_is_cut_breaks_it(asked, function):
    (finding,) = asked("detached", function, point(3))

    assert "No output requires grad" in finding.message
    assert "detach()" in finding.hint


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128])
def test_other_precisions_and_complex_numbers_are_seen(asked, dtype):
    assert asked("detached", lambda x: x.detach() * 2, point(3, dtype=dtype))


FLAT = {
    "a sign": lambda x: x.detach().sign(),
    "a rounding": lambda x: x.detach().round(),
    "a count": lambda x: (x > 0).double(),
    "a place": lambda x: x.argmax().double(),
    "a constant": lambda x: torch.ones(3, dtype=torch.float64),
}


@pytest.mark.parametrize("function", FLAT.values(), ids=FLAT)
def test_what_does_not_follow_the_input_keeps_it(asked, function):
    assert asked("detached", function, point(3)) == []


def test_a_cut_output_beside_a_connected_one_is_worth_a_note(asked):
    function = lambda x: {"loss": x.sin(), "statistic": x.detach().mean()}  # noqa: E731  # a case

    assert asked("detached", function, point(3)) == []
    assert "output['statistic']" in notes(function, point(3))


def test_a_flat_output_beside_a_connected_one_is_not_worth_a_note():
    assert "requires" not in notes(lambda x: (x.sin(), x.detach().sign(), x.argmax(), None), point(3))


def test_a_function_that_raises_beside_the_point_is_not_blamed(asked):
    x = point(3)

    def particular(y):
        if not torch.equal(y.detach(), x.detach()):
            raise ValueError("not here")
        return y.sin(), y.detach()

    assert asked("detached", particular, x) == []
