"""`wrt` chooses what is varied, by position, name or path."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gradproof import InputError, check
from support.findings import arguments_of, blamed
from support.functions import doubled
from support.modules import Outer, Scale
from support.points import point


def mixed(first, options, last=None):
    return first.sin() + options["a"] * options["b"] + last


def mixed_inputs():
    return (point(3), {"a": point(3, seed=2), "b": point(3, seed=3)}, point(3, seed=4))


@pytest.mark.parametrize(
    ("wrt", "expected"),
    [
        (0, ["first"]),
        (2, ["last"]),
        ("first", ["first"]),
        ("last", ["last"]),
        ("inputs[2]", ["last"]),
        ("inputs[1]['b']", ["options['b']"]),
        ("options['b']", ["options['b']"]),
        ("b", ["options['b']"]),
        (1, ["options['a']", "options['b']"]),
        ("options", ["options['a']", "options['b']"]),
        ([0, "b"], ["first", "options['b']"]),
        (("b", 0), ["first", "options['b']"]),
        (["first", 0], ["first"]),
        (range(2), ["first", "options['a']", "options['b']"]),
    ],
)
def test_wrt_chooses_by_position_name_or_path(wrt, expected):
    report = check(mixed, mixed_inputs(), wrt=wrt, seed=0)

    assert report.passed
    assert arguments_of(report) == expected


def test_wrt_chooses_inputs_that_do_not_require_grad():
    report = check(torch.mul, (point(3).detach(), point(3).detach()), wrt=1, seed=0)

    assert report.passed
    assert arguments_of(report) == ["other"]


def test_wrt_leaves_out_a_wrong_gradient():
    inputs = (point(3), point(3, seed=2))

    assert check(lambda a, b: a.sin() * doubled(b), inputs, wrt=0, seed=0).passed
    assert blamed(check(lambda a, b: a.sin() * doubled(b), inputs, wrt=1, seed=0)) == {"b"}


def test_wrt_does_not_take_one_position_for_another_that_begins_alike():
    inputs = tuple(point(1, seed=seed) for seed in range(12))

    assert arguments_of(check(lambda *x: torch.cat(x).sin(), inputs, wrt=1, seed=0)) == ["inputs[1]"]


def test_wrt_does_not_take_one_name_for_another_that_begins_alike():
    assert arguments_of(check(lambda w, weight: w.sin() * weight, (point(3), point(3)), wrt="w", seed=0)) == ["w"]


@pytest.mark.parametrize(
    ("wrt", "expected"),
    [
        ("w", ["w[0]", "w[1]['b']"]),
        ("w[0]", ["w[0]"]),
        ("w[1]['b']", ["w[1]['b']"]),
        ("b", ["w[1]['b']"]),
        ('w[1]["b"]', ["w[1]['b']"]),
        ("inputs['w'][0]", ["w[0]"]),
    ],
)
def test_wrt_chooses_a_keyword_that_is_a_container_and_what_is_in_it_by_name(wrt, expected):
    inputs = {"x": point(3), "w": [point(3), {"b": point(3)}]}

    assert arguments_of(check(lambda x, w: x * w[0] + w[1]["b"] ** 2, inputs, wrt=wrt, seed=0)) == expected


def test_wrt_chooses_a_keyword_by_name():
    assert arguments_of(check(lambda x, w: x * w, {"x": point(3), "w": point(3)}, wrt="w", seed=0)) == ["w"]


@pytest.mark.parametrize(
    ("wrt", "expected"),
    [
        ("layer.weight", ["layer.weight"]),
        ("layer", ["layer.weight", "layer.bias"]),
        (["x", "layer.bias"], ["x", "layer.bias"]),
    ],
)
def test_wrt_chooses_parameters_by_name_or_module(wrt, expected):
    assert arguments_of(check(Outer(Scale()), point(3), wrt=wrt, seed=0)) == expected


@pytest.mark.parametrize("wrt", ["0.weight", "1.weight"])
def test_wrt_knows_a_tied_parameter_by_each_of_its_names(wrt):
    tied = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)).double()
    tied[1].weight = tied[0].weight

    assert arguments_of(check(tied, point(4, 3), wrt=wrt, seed=0)) == ["0.weight"]


def test_wrt_that_names_a_module_leaves_out_its_integer_buffers():
    report = check(nn.Sequential(nn.BatchNorm1d(3).double()), point(4, 3), wrt="0", seed=0)

    assert arguments_of(report)[:2] == ["0.weight", "0.bias"]
    assert "0.num_batches_tracked" not in arguments_of(report)


@pytest.mark.parametrize("wrt", [3, -7, "nobody", "inputs[9]", "", [0, "nobody"]])
def test_a_wrt_that_names_nothing_is_refused_with_what_there_is(wrt):
    with pytest.raises(InputError, match=r"names no tensor.*first, options\['a'\]"):
        check(mixed, mixed_inputs(), wrt=wrt)


@pytest.mark.parametrize("wrt", [1.5, True, [True], [None], {"a": 1}, b"first", [], (), point(1), [1.5], {0}])
def test_a_wrt_of_a_wrong_type_is_refused(wrt):
    with pytest.raises(InputError, match="Pass a position, a name or a path"):
        check(mixed, mixed_inputs(), wrt=wrt)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.uint8])
def test_a_wrt_that_names_an_integer_tensor_is_refused(dtype):
    with pytest.raises(InputError, match=rf"i has dtype.*{dtype}.*floating-point"):
        check(lambda x, i: x * i, (point(3), torch.ones(3, dtype=dtype)), wrt=[0, 1])


def test_a_wrt_that_names_a_value_that_is_no_tensor_is_refused():
    with pytest.raises(InputError, match="power"):
        check(lambda x, power: x**power, (point(3), 2.0), wrt="power")
