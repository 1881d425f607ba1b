"""Planted errors in a double backward are found, and named by what they are with respect to."""

from __future__ import annotations

import pytest
import torch
from torch.autograd.function import once_differentiable

from gradproof import Verdict, check
from support.checks import BOTH, NESTINGS, second_order
from support.findings import modes_and_arguments
from support.functions import rule
from support.points import point


def located(report):
    return {(finding.argument, entry.index) for finding in report.findings for entry in finding.entries}


MARK = torch.tensor([0, 0, 0, 1.0, 0], dtype=torch.float64)


def by(double_backward):
    """sin, whose backward is a Function with this backward of its own."""
    inner = rule(lambda g, x: g * x.cos(), double_backward)
    return rule(torch.sin, lambda g, x: inner(g, x))


def right(h, g, x):
    return h * x.cos(), -h * g * x.sin()


WRONG = {
    "an entry with respect to the input": (
        lambda h, g, x: (h * x.cos(), -h * g * x.sin() + MARK),
        {("inputs[0]", (3,))},
    ),
    "an entry with respect to the incoming gradient": (
        lambda h, g, x: (h * x.cos() * (1 + MARK), -h * g * x.sin()),
        {("grad_outputs[0]", (3,))},
    ),
    "an entry with respect to each": (
        lambda h, g, x: (h * x.cos() * (1 + MARK), -h * g * x.sin() * (1 + MARK)),
        {("inputs[0]", (3,)), ("grad_outputs[0]", (3,))},
    ),
    "the wrong sign": (lambda h, g, x: (h * x.cos(), h * g * x.sin()), {("inputs[0]", (k,)) for k in range(5)}),
    "the input forgotten": (lambda h, g, x: (h * x.cos(), None), {("inputs[0]", (k,)) for k in range(5)}),
    "the incoming gradient forgotten": (
        lambda h, g, x: (None, -h * g * x.sin()),
        {("grad_outputs[0]", (k,)) for k in range(5)},
    ),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", WRONG)
def test_an_error_in_a_double_backward_is_found_and_located(name, seed):
    double_backward, entries = WRONG[name]
    report = second_order(by(double_backward), point(5), seed=seed, modes=None)

    assert report.verdict is Verdict.FAIL
    assert {finding.mode for finding in report.findings} == {"reverse over reverse"}
    assert located(report) == entries


@pytest.mark.parametrize("seed", range(3))
def test_the_right_double_backward_passes(seed):
    assert second_order(by(right), point(5), seed=seed, modes=None).verdict is Verdict.PASS


@pytest.mark.parametrize("name", WRONG)
def test_the_first_order_does_not_see_what_the_second_does(name):
    assert check(by(WRONG[name][0]), point(5), seed=0, contracts=()).passed


def test_the_entry_of_the_second_derivative_is_given():
    report = second_order(by(WRONG["an entry with respect to the incoming gradient"][0]), point(5), modes=None)
    (entry,) = report.findings[0].entries
    slope = float(point(5).detach()[3].cos())

    assert str(entry.output) == "gradient['inputs[0]'][3]"
    assert (entry.claimed, entry.numerical) == (pytest.approx(2 * slope), pytest.approx(slope))


def test_a_backward_that_detaches_fails_with_respect_to_what_it_detached():
    detached = second_order(rule(torch.sin, lambda g, x: g * x.detach().cos()), point(5))
    incoming = second_order(rule(torch.sin, lambda g, x: g.detach() * x.cos()), point(5))

    assert modes_and_arguments(detached) == {("reverse over reverse", "inputs[0]")}
    assert modes_and_arguments(incoming) == {("reverse over reverse", "grad_outputs[0]")}


def test_a_product_whose_backward_detaches_one_factor_names_the_other_gradient():
    product = rule(torch.mul, lambda g, a, b: (g * b, g * a.detach()))
    report = second_order(product, point(3), point(3, seed=2))
    outputs = {entry.output.path for finding in report.findings for entry in finding.entries}

    assert modes_and_arguments(report) == {("reverse over reverse", "inputs[0]")}
    assert outputs == {"gradient['inputs[1]']"}


@pytest.mark.parametrize("lost", [0, 1])
def test_of_two_gradients_one_that_is_detached_as_a_whole_is_found(lost):
    def backward(g, a, b):
        gradients = [g * b.cos() * a.cos(), -g * a.sin() * b.sin()]
        gradients[lost] = gradients[lost].detach()
        return tuple(gradients)

    function = rule(lambda a, b: a.sin() * b.cos(), backward)
    report = check(function, (point(3), point(3, seed=2)), order=2, modes=("reverse",), seed=0)

    assert report.verdict is Verdict.FAIL
    assert f"gradient['inputs[{lost}]'] changes with the inputs" in report.findings[-1].message
    assert report.findings[-1].kind == "detached-gradient"


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    @once_differentiable
    def backward(ctx, incoming):
        return incoming * ctx.saved_tensors[0].cos()


def test_a_backward_that_is_differentiable_once_fails_at_order_two_and_passes_at_order_one():
    assert check(Once.apply, point(4), seed=0, contracts=()).passed
    assert second_order(Once.apply, point(4)).verdict is Verdict.FAIL


def test_a_backward_that_is_differentiable_once_is_a_rule_that_is_absent():
    report = second_order(Once.apply, point(4))

    assert [(finding.kind, finding.mode) for finding in report.findings] == [
        ("no-backward-rule", "reverse over reverse")
    ]


def test_a_backward_of_torch_that_has_no_derivative_is_a_rule_that_is_absent():
    queries = [torch.randn(1, 2, 3, 4, dtype=torch.float64, requires_grad=True) for _ in range(3)]

    report = check(torch.nn.functional.scaled_dot_product_attention, queries, order=2)

    assert [finding.kind for finding in report.findings] == ["no-backward-rule"]


def test_a_double_backward_that_raises_is_quoted():
    def broken(h, g, x):
        raise ValueError("no such shape")

    report = second_order(by(broken), point(4))

    assert [(finding.kind, finding.mode) for finding in report.findings] == [
        ("backward-raised", "reverse over reverse")
    ]
    assert "no such shape" in report.message


def test_a_first_backward_that_raises_is_said_of_every_nesting_over_it():
    def broken(g, x):
        raise ValueError("no such shape")

    report = second_order(rule(torch.sin, broken), point(4), modes=BOTH)
    kinds = {finding.mode: finding.kind for finding in report.findings}

    assert {kinds["reverse over reverse"], kinds["forward over reverse"]} == {"backward-raised"}
    assert {kinds["reverse over forward"], kinds["forward over forward"]} == {"no-forward-rule"}


def test_a_missing_jvp_is_said_of_every_nesting_that_needs_it():
    report = second_order(rule(torch.sin, lambda g, x: g * x.cos()), point(4), modes=BOTH)
    kinds = {finding.mode: finding.kind for finding in report.findings}

    assert kinds == dict.fromkeys(NESTINGS - {"reverse over reverse"}, "no-forward-rule")


def test_the_number_of_entries_that_are_nan_is_that_of_the_argument_named():
    def nan_everywhere(h, g, x):
        return torch.full_like(g, torch.nan), torch.full_like(x, torch.nan)

    report = second_order(by(nan_everywhere), point(2))

    assert report.findings[0].argument == "inputs[0]"
    assert "in 2 entries" in report.findings[0].message
