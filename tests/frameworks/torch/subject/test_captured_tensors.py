"""Tensors that a function uses without being given them are named in notes."""

from __future__ import annotations

import functools

import pytest
import torch

from gradproof import check
from support.modules import Outer, Scale
from support.points import point

GLOBAL_WEIGHT = torch.ones(3, dtype=torch.float64, requires_grad=True)
HIDDEN = [torch.ones(3, dtype=torch.float64, requires_grad=True)]


def _uses_a_global(x):
    return x * GLOBAL_WEIGHT


class Machine:
    def __init__(self):
        self.gain = point(3)

    def run(self, x):
        return self.gain * x.sin()


def _notes(function):
    report = check(function, point(3), seed=0)
    assert report.passed
    return "\n".join(report.notes)


def test_a_tensor_in_a_closure_is_named_in_a_note():
    kept = point(3, seed=2)

    note = _notes(lambda x: x * kept)

    assert note.startswith("kept of shape (3,)")
    assert "not checked" in note


def test_a_global_tensor_is_named_in_a_note():
    assert "GLOBAL_WEIGHT" in _notes(_uses_a_global)


def test_a_captured_parameter_is_named_in_a_note():
    model = Outer(Scale())

    notes = _notes(lambda x: model(x))

    assert "model.layer.weight" in notes
    assert "model.layer.bias" in notes


def test_a_tensor_of_a_bound_methods_self_is_named_in_a_note():
    assert "self.gain" in _notes(Machine().run)


def test_a_parameter_of_a_bound_methods_module_is_named_in_a_note():
    assert "self.layer.weight" in _notes(Outer(Scale()).forward)


@pytest.mark.parametrize(
    "function",
    [
        functools.partial(torch.mul, point(3, seed=2)),
        lambda x: x * HIDDEN[0],
        lambda x: x * GLOBAL_WEIGHT.exp(),
    ],
    ids=["partial", "in a list", "derived"],
)
def test_a_tensor_captured_elsewhere_is_noticed(function):
    assert "requires grad and is used by" in _notes(function)


def test_an_input_that_is_also_captured_is_noticed():
    x = point(3)

    report = check(lambda y: y * x, x, seed=0)

    assert report.passed
    assert "uses y directly" in report.notes[0]


def test_many_captured_tensors_are_counted():
    kept = [point(1, seed=seed) for seed in range(20)]

    report = check(lambda x: x * torch.cat(kept).sum(), point(3), seed=0)

    assert len(report.notes) == 9
    assert "12 more" in report.notes[-1]


def test_a_captured_tensor_that_does_not_require_grad_is_no_news():
    kept = point(3).detach()

    assert _notes(lambda x: x * kept) == ""


def test_a_captured_tensor_without_influence_is_no_news():
    kept = point(3)

    assert _notes(lambda x: x * kept.detach()) == ""
