"""Diagnoses through `check`: precisions, modes, orders, full coverage; what is absent, and what is left alone."""

from __future__ import annotations

import json

import pytest
import torch

from gradproof import Verdict, check
from gradproof.gallery.specimen import planted
from support.points import point


def first(report):
    assert report.verdict is Verdict.FAIL
    return next((finding.diagnoses[0].name for finding in report.findings if finding.diagnoses), None)


def with_jvp(value, tangent):
    """A function with a right backward, and `tangent(tangents, *inputs)` as its jvp."""

    class Pushed(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *inputs):
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)
            return value(*inputs)

        @staticmethod
        def backward(ctx, gradient):
            inputs = [each.detach().requires_grad_() for each in ctx.saved_tensors]
            with torch.enable_grad():
                return torch.autograd.grad(value(*inputs), inputs, gradient)

        @staticmethod
        def jvp(ctx, *tangents):
            return tangent(tangents, *ctx.saved_tensors)

    return Pushed.apply


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [(torch.float64, (40, 30)), (torch.float64, (7,)), (torch.float32, (4, 5)), (torch.bfloat16, (4, 5))],
    ids=str,
)
@pytest.mark.parametrize(
    ("corrupt", "name"),
    [
        (lambda right, x: 2 * right, "factor"),
        (lambda right, x: -right, "sign"),
        (lambda right, x: torch.zeros_like(right), "detached"),
        (lambda right, x: right.roll(1, -1), "shifted"),
        (lambda right, x: right * (x > 0), "mask"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_every_precision_has_its_diagnoses(dtype, shape, corrupt, name):
    function = planted("Planted", torch.sin, lambda g, x: corrupt(g * x.cos(), x))

    assert first(check(function, point(*shape, dtype=dtype, seed=2), seed=0, contracts=())) == name


@pytest.mark.parametrize("dtype", [torch.complex128, torch.complex64])
@pytest.mark.parametrize("shape", [(7,), (20, 15)], ids=str)
def test_complex_numbers_have_their_diagnoses(dtype, shape):
    function = planted("Planted", torch.exp, lambda g, z: g * z.exp())

    assert first(check(function, point(*shape, dtype=dtype), seed=0, contracts=())) == "conjugate"


@pytest.mark.parametrize("shape", [(6,), (30, 20)], ids=str)
@pytest.mark.parametrize(
    ("tangent", "name"),
    [
        (lambda t, a, b: 2 * (t[0] * b.cos() - t[1] * a * b.sin()), "factor"),
        (lambda t, a, b: t[0] * b.cos() + t[1] * a * b.sin(), "sign"),
        (lambda t, a, b: t[0] * b.cos(), "detached"),
        (lambda t, a, b: t[1] * b.cos() - t[0] * a * b.sin(), "mixed"),
        (lambda t, a, b: (t[0] * b.cos() - t[1] * a * b.sin()).roll(1, 0), "shifted"),
    ],
    ids=["factor", "sign", "detached", "mixed", "shifted"],
)
def test_a_wrong_jvp_is_diagnosed(shape, tangent, name):
    function = with_jvp(lambda a, b: a * b.cos(), tangent)

    report = check(function, (point(*shape), point(*shape, seed=2)), seed=0, contracts=())

    assert first(report) == name
    assert {finding.mode for finding in report.findings} == {"forward"}
    assert "tangent" in report.findings[0].diagnoses[0].message or name == "mixed"


def test_the_hint_for_a_jvp_speaks_of_a_jvp():
    function = with_jvp(lambda x: x.sin(), lambda t, x: t[0] * x.cos() * (x > 0))

    report = check(function, point(12), seed=0, contracts=())

    assert "jvp" in report.findings[0].diagnoses[0].hint
    assert "backward" not in report.findings[0].diagnoses[0].hint


def test_a_backward_in_single_precision_is_diagnosed_by_the_size_of_its_errors():
    function = planted("Planted", torch.sin, lambda g, x: (g.float() * x.float().cos()).double())

    report = check(function, point(4, 4), seed=0, contracts=(), probes=4)

    assert first(report) == "approximation"
    assert "single precision" in report.findings[0].diagnoses[0].message


def test_a_second_derivative_is_diagnosed():
    class Cubed(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            return gradient * 3 * x.detach() ** 2

    report = check(Cubed.apply, point(5), seed=0, order=2, contracts=())

    assert first(report) == "detached"


def test_full_coverage_has_diagnoses_too():
    function = planted("Planted", torch.sin, lambda g, x: -g * x.cos())

    assert first(check(function, point(4, 3), seed=0, coverage="full", contracts=())) == "sign"


def test_of_several_outputs_the_wrong_one_is_named():
    function = planted(
        "Planted", lambda x: (x.sin(), x.exp(), x * x), lambda g, x: g[0] * x.cos() + 2 * g[1] * x.exp() + g[2] * 2 * x
    )

    report = check(function, point(5), seed=0, contracts=())

    assert first(report) == "factor"
    assert "as far as output[1] goes" in report.findings[0].diagnoses[0].message


def test_a_detached_result_keeps_its_diagnosis():
    report = check(lambda x: x.detach().sin(), point(5), seed=0)

    assert first(report) == "detached"


def test_a_path_keeps_its_capitals():
    module = torch.nn.Module()
    module.Gain = torch.nn.Parameter(torch.ones(3, dtype=torch.float64))
    module.forward = lambda x: planted("P", torch.mul, lambda g, x, w: (g * w, 2 * g * x))(x, module.Gain)

    report = check(module, point(3), seed=0, contracts=())

    assert "with respect to Gain is 2 times" in report.findings[0].diagnoses[0].message


def test_diagnoses_are_in_the_json():
    function = planted("Planted", torch.sin, lambda g, x: 2 * g * x.cos())

    report = json.loads(check(function, point(5), seed=0, contracts=()).to_json())

    assert report["findings"][0]["diagnoses"][0]["name"] == "factor"
    assert report["findings"][0]["culprits"][0]["name"] == "Planted"


def test_an_odd_question_that_the_backward_refuses_costs_no_finding():
    def refusing(g, x):
        if bool((g == 0).any()):
            raise ValueError("zeros are not accepted")
        return g * x.cos() * torch.linspace(0.3, 2.9, 6, dtype=x.dtype) ** 3

    report = check(planted("Planted", torch.sin, refusing), point(6), seed=0, contracts=())

    assert report.verdict is Verdict.FAIL


def test_a_backward_that_differs_each_time_is_not_called_stale():
    function = planted("Planted", torch.sin, lambda g, x: g * x.cos() * (1.5 + torch.rand(x.shape, dtype=x.dtype)))

    report = check(function, point(6), seed=0, contracts=())

    names = [diagnosis.name for finding in report.findings for diagnosis in finding.diagnoses]
    assert "stale" not in names


@pytest.mark.parametrize("size", [12, 3000])
def test_nothing_of_the_callers_is_changed(size):
    x = point(size)
    values, state = x.detach().clone(), torch.get_rng_state()
    function = planted("Planted", torch.sin, lambda g, x: g * x.cos() * (1 + x.abs()))

    assert check(function, x, seed=0).verdict is Verdict.FAIL

    assert torch.equal(x, values)
    assert x.grad is None
    assert torch.equal(torch.get_rng_state(), state)


def test_a_large_gradient_is_looked_into_with_few_calls():
    calls = []
    function = planted("Planted", lambda x: calls.append(1) or x.sin(), lambda g, x: (g * x.cos()).flip(0) * 1.3)

    report = check(function, point(100, 300), seed=0, contracts=())

    assert first(report) is None
    assert len(calls) < 1000


class NewtonsRoot(torch.autograd.Function):
    """The square root by Newton's iteration, which ends for positive numbers alone, with the wrong derivative."""

    @staticmethod
    def forward(ctx, x):
        if not bool((x > 0).all()):
            pytest.fail(f"called at {x.tolist()}, where the iteration never ends")
        root = x.clone()
        for _ in range(60):
            root = 0.5 * (root + x / root)
        ctx.save_for_backward(x)
        return root

    @staticmethod
    def backward(ctx, incoming):
        return 0.5 * incoming / ctx.saved_tensors[0]


@pytest.mark.parametrize("coverage", ["probe", "full"])
def test_a_function_of_positive_numbers_is_not_called_with_others(coverage):
    x = torch.tensor([0.6, 0.9, 2.0], dtype=torch.float64, requires_grad=True)

    assert check(NewtonsRoot.apply, x, coverage=coverage, seed=0).verdict is Verdict.FAIL


class Amplitude(torch.autograd.Function):
    """A real factor times a complex number, whose derivative by the factor lacks its `.real`."""

    @staticmethod
    def forward(ctx, factor, number):
        ctx.save_for_backward(factor, number)
        return factor * number

    @staticmethod
    def backward(ctx, incoming):
        factor, number = ctx.saved_tensors
        return incoming * number.conj(), incoming * factor


def test_a_complex_gradient_for_a_real_input_is_reported_in_words():
    report = check(Amplitude.apply, (point(3), point(3, dtype=torch.complex128)), seed=0)

    assert report.verdict is Verdict.FAIL
    assert "a complex gradient was given for a real input (return its real part)" in report.message
