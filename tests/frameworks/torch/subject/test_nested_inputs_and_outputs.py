"""Nests of tensors as inputs and outputs, and the paths that they are called by."""

from __future__ import annotations

import collections
import dataclasses
from types import MappingProxyType
from typing import NamedTuple

import pytest
import torch
from torch import nn

from gradproof import Verdict, check
from support.findings import arguments_of, blamed
from support.functions import doubled
from support.points import point


class Pair(NamedTuple):
    left: torch.Tensor
    right: torch.Tensor


@pytest.mark.parametrize("container", [tuple, list])
def test_a_tuple_or_list_is_spread_over_positions(container):
    report = check(lambda a, b: a.sin() * b, container([point(3), point(3, seed=2)]), seed=0)

    assert report.passed
    assert arguments_of(report) == ["a", "b"]


def test_nested_inputs_are_passed_in_their_own_containers():
    def function(pair, options, rest):
        assert isinstance(pair, Pair)
        assert type(options) is dict
        assert type(rest) is list
        return pair.left * pair.right.sin() + options["scale"]["w"] * rest[0][0]

    inputs = (Pair(point(3), point(3, seed=2)), {"scale": {"w": point(3, seed=3)}}, [(point(3, seed=4),)])
    report = check(function, inputs, seed=0)

    assert report.passed
    assert arguments_of(report) == ["pair.left", "pair.right", "options['scale']['w']", "rest[0][0]"]


@pytest.mark.parametrize(
    ("spoil", "path"),
    [
        ((0,), "pair.left"),
        ((1,), "pair.right"),
        ((2,), "options['scale']['w']"),
        ((3,), "rest[0][0]"),
        ((0, 3), None),
    ],
)
def test_a_wrong_gradient_in_a_nest_is_named_by_its_path(spoil, path):
    def function(pair, options, rest):
        parts = [pair.left, pair.right, options["scale"]["w"], rest[0][0]]
        a, b, c, d = (doubled(part) if number in spoil else part for number, part in enumerate(parts))
        return a.sin() + b.cos() + c.exp() + d.tanh()

    inputs = (Pair(point(3), point(3, seed=2)), {"scale": {"w": point(3, seed=3)}}, [(point(3, seed=4),)])

    assert blamed(check(function, inputs, seed=0)) == ({path} if path else {"pair.left", "rest[0][0]"})


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """What a simulation passes on from step to step."""

    position: torch.Tensor
    velocity: torch.Tensor
    name: str = "state"


@pytest.mark.parametrize("options", [{}, {"coverage": "full"}, {"order": 2}, {"modes": ("reverse", "forward")}])
def test_dataclasses_are_inputs_and_outputs(options):
    def moved(state, time):
        return State(state.position + time * state.velocity, state.velocity.sin())

    report = check(moved, (State(point(3), point(3, seed=2)), point()), seed=0, **options)

    assert report.passed
    assert arguments_of(report) == ["state.position", "state.velocity", "time"]
    assert [label.split(":")[0] for label in report.subject.outputs] == ["output.position", "output.velocity"]


@pytest.mark.parametrize(
    ("wrt", "chosen"),
    [("state", ["position", "velocity"]), ("state.velocity", ["velocity"]), ("inputs[0].position", ["position"])],
)
def test_a_dataclass_and_its_fields_are_chosen_by_name(wrt, chosen):
    report = check(lambda state: state.position * state.velocity, State(point(3), point(3, seed=2)), wrt=wrt, seed=0)

    assert arguments_of(report) == [f"state.{name}" for name in chosen]


def test_a_wrong_gradient_in_a_dataclass_is_reported_by_its_field():
    state = State(point(3), point(3, seed=2))
    report = check(lambda state: state.position * doubled(state.velocity), (state,), seed=0)

    assert [finding.argument for finding in report.findings] == ["state.velocity"]


def test_a_namedtuple_is_spread_like_a_tuple():
    assert check(lambda left, right: left * right, Pair(point(3), point(3, seed=2)), seed=0).passed


@pytest.mark.parametrize(
    "mapping",
    [
        dict,
        collections.OrderedDict,
        MappingProxyType,
        collections.UserDict,
        lambda items: collections.defaultdict(list, items),
    ],
    ids=["dict", "OrderedDict", "MappingProxyType", "UserDict", "defaultdict"],
)
@pytest.mark.parametrize("nested", [False, True])
def test_any_mapping_of_tensors_is_taken(mapping, nested):
    inputs = mapping({"a": point(3)})

    assert check(lambda batch: batch["a"].sin(), (inputs,) if nested else inputs, seed=0).passed


def test_a_dict_is_spread_over_keyword_parameters():
    report = check(lambda *, x, w: (x * w).sin(), {"w": point(3), "x": point(3, seed=2)}, seed=0)

    assert report.passed
    assert set(arguments_of(report)) == {"w", "x"}


def test_a_dict_is_spread_over_any_keywords():
    assert check(lambda **tensors: sum(tensors.values()).sin(), {"w": point(3), "x": point(3, seed=2)}, seed=0).passed


def test_a_dict_that_does_not_fit_the_parameters_is_one_argument():
    assert check(lambda batch: batch["x"].sin() * batch["w"], {"x": point(3), "w": point(3)}, seed=0).passed


def test_a_dict_whose_keys_are_no_names_is_one_argument():
    assert check(lambda batch: batch[0].sin() * batch["a b"], {0: point(3), "a b": point(3)}, seed=0).passed


def test_a_dict_is_spread_over_the_parameters_of_a_modules_forward():
    report = check(nn.Bilinear(2, 3, 4).double(), {"input1": point(5, 2), "input2": point(5, 3)}, seed=0)

    assert report.passed
    assert arguments_of(report) == ["input1", "input2", "weight", "bias"]


def test_values_that_are_no_tensors_are_passed_as_they_are():
    marker = object()

    def function(x, power, text, nothing, other):
        assert (power, text, nothing) == (3, "text", None)
        assert other is marker
        return x**power

    assert check(function, (point(3), 3, "text", None, marker), seed=0).passed


def test_integer_and_bool_tensors_are_passed_and_not_varied():
    index, mask = torch.tensor([2, 0]), torch.tensor([True, False])

    report = check(lambda x, i, m: torch.where(m, x[i].sin(), x[i].exp()), (point(3), index, mask), seed=0)

    assert report.passed
    assert arguments_of(report) == ["x"]


def test_tensors_that_do_not_require_grad_are_not_varied():
    report = check(lambda x, y: x * doubled(y), (point(3), point(3).detach()), seed=0)

    assert report.passed
    assert arguments_of(report) == ["x"]


@pytest.mark.parametrize(
    "wrap",
    [
        lambda y: (y, y.sum()),
        lambda y: [y, [y * 2]],
        lambda y: {"y": y, "z": {"w": (y,)}},
        lambda y: Pair(y, y + 1),
        lambda y: (None, y, "text", 3),
        lambda y: (y, y.argmax(), y > 0),
        lambda y: (y, y.detach()),
        lambda y: torch.max(y, dim=0),
    ],
    ids=["tuple", "list", "dict", "namedtuple", "no tensors", "integers", "detached", "structseq"],
)
def test_outputs_may_be_nested_and_hold_anything(wrap):
    assert check(lambda x: wrap(x.sin()), point(3), seed=0).passed


def test_a_wrong_gradient_of_one_output_is_named_by_its_path():
    report = check(lambda x: {"a": x.sin(), "b": [None, doubled(x)]}, point(1), seed=0)

    assert report.verdict is Verdict.FAIL
    assert str(report.findings[0].entries[0].output) == "output['b'][1][0]"


def test_an_output_that_does_not_depend_on_the_inputs_is_no_hindrance():
    assert check(lambda x: (x.sin(), torch.ones(2, requires_grad=True)), point(3), seed=0).passed


def test_an_input_that_is_returned_as_it_is_passes():
    assert check(lambda x: x, point(3), seed=0).passed


def test_an_input_without_influence_passes():
    assert check(lambda x, y: x.sin(), (point(3), point(2)), seed=0).passed
