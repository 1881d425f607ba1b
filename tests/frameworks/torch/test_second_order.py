"""Order two: the derivative of a derivative, in every nesting of the modes, with respect to all that it takes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # torch's own convention
from torch import nn
from torch.autograd.function import once_differentiable

from gradproof import Verdict, check
from support.checks import BOTH, second_order
from support.functions import Sine, rule
from support.points import point

NESTINGS = {"reverse over reverse", "forward over reverse", "reverse over forward", "forward over forward"}


class OldSine(Sine):
    """The same, in the style with a context first."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)
        return x.sin()

    setup_context = torch.autograd.Function.setup_context


def found(report):
    return {(finding.mode, finding.argument) for finding in report.findings}


def located(report):
    return {(finding.argument, entry.index) for finding in report.findings for entry in finding.entries}


SHARED = {
    "expanded": point(1, 3).detach().expand(4, 3).requires_grad_(),
    "of overlapping windows": point(6).detach().unfold(0, 3, 1).requires_grad_(),
}


# Right functions.

RIGHT = {
    "sin": (torch.sin, point(4)),
    "exp": (torch.exp, point(4)),
    "a power": (lambda x: x**3, point(4)),
    "matmul": (torch.matmul, point(2, 3), point(3, 2, seed=2)),
    "the inverse": (torch.linalg.inv, point(3, 3)),
    "cholesky_solve": (
        lambda b, m: torch.cholesky_solve(b, m.tril() + 3 * torch.eye(3, dtype=m.dtype)),
        point(3, 2),
        point(3, 3, seed=2),
    ),
    "a softmax written out": (lambda x: x.exp() / x.exp().sum(), point(4)),
    "a complex exponential": (torch.exp, point(4, dtype=torch.complex128)),
    "a complex square modulus": (lambda z: (z * z.conj()).real, point(4, dtype=torch.complex128)),
    "real to complex": (lambda x: torch.exp(1j * x), point(4)),
    "complex with a conjugate": (lambda z: z.conj() * z * z, point(4, dtype=torch.complex128)),
    "several outputs": (lambda a, b: (a * b, {"c": a.sin()}), point(4), point(4, seed=2)),
    "a sum": (lambda x: x.square().sum(), point(2, 2)),
    "no dimensions": (torch.exp, point()),
    "no entries": (torch.exp, point(0)),
    "writes in place": (lambda x: x.clone().mul_(x.sin()), point(4)),
    "a linear function": (lambda x: 3 * x, point(4)),
    "the identity": (lambda x: x, point(4)),
    "a piecewise linear function": (torch.relu, point(6)),
    "an absolute value": (torch.abs, point(6)),
    "a maximum": (lambda x: x.max(), point(6)),
    "an input without influence": (lambda a, b: a.sin(), point(4), point(4, seed=2)),
    "an input with a factor of zero": (lambda a, b: a.sin() + 0 * b, point(4), point(4, seed=2)),
    "an output without influence": (lambda x: (x.sin(), torch.ones(3)), point(4)),
    "one linear input and one that is not": (lambda a, b: a * b.exp(), point(4), point(4, seed=2)),
    "dropout": (lambda x: F.dropout(x, 0.5).sin(), point(20)),
    "group_norm": (lambda x: F.group_norm(x, 1), point(2, 4)),
    "torch.func.grad inside": (torch.func.grad(lambda x: (x**4).sum()), point(4)),
}


@pytest.mark.parametrize("modes", [("reverse",), ("forward",), BOTH], ids="+".join)
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_function_passes_in_every_nesting(name, modes):
    function, *inputs = RIGHT[name]
    report = second_order(function, *inputs, modes=modes)

    assert report.verdict is Verdict.PASS, report.reason


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp"])
def test_a_softmax_passes_except_in_reverse_over_forward_where_torch_raises(name, seed):
    report = second_order(lambda x: getattr(torch, name)(x, 0), point(4), modes=BOTH, seed=seed)

    assert {(finding.kind, finding.mode) for finding in report.findings} <= {
        ("backward-raised", "reverse over forward")
    }


def test_every_nesting_is_read():
    assert {reading.mode for reading in second_order(torch.sin, point(4), modes=BOTH).readings} == NESTINGS


@pytest.mark.parametrize("mode", BOTH)
def test_one_mode_is_nested_in_itself(mode):
    report = second_order(torch.sin, point(4), modes=(mode,))

    assert {reading.mode for reading in report.readings} == {f"{mode} over {mode}"}


def test_a_module_passes():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()

    assert second_order(module, point(2, 3), modes=BOTH).verdict is Verdict.PASS


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_low_precision_passes(dtype):
    x = torch.linspace(0.3, 1.2, 8).to(dtype).requires_grad_()

    assert second_order(torch.sin, x, modes=("reverse",)).verdict is Verdict.PASS


def test_the_second_derivative_at_its_own_kink_is_inconclusive():
    report = second_order(lambda x: x * x.abs(), torch.zeros(3, dtype=torch.float64, requires_grad=True), modes=BOTH)

    assert report.verdict is Verdict.INCONCLUSIVE
    assert report.reason.startswith("kink at inputs[0]")


@pytest.mark.parametrize("mode", ["reverse", "forward"])
@pytest.mark.parametrize("captured", [False, True], ids=["a constant", "another tensor that requires grad"])
def test_a_function_without_any_influence_passes(captured, mode):
    other = torch.ones(3, dtype=torch.float64, requires_grad=captured)

    assert second_order(lambda x: 2 * other, point(4), modes=(mode,)).verdict is Verdict.PASS


TENSORS_BESIDE = {
    "one that requires grad": point(3, seed=2),
    "one that does not": point(3, seed=2).detach(),
    "integers": torch.arange(3),
}


@pytest.mark.parametrize("name", TENSORS_BESIDE)
def test_nothing_is_checked_beyond_what_wrt_names(name):
    report = second_order(lambda a, b: a.sin() * b, point(3), TENSORS_BESIDE[name], wrt=0)

    assert report.verdict is Verdict.PASS
    assert report.subject.arguments == ("inputs[0]: float64[3]",)


@pytest.mark.parametrize("name", TENSORS_BESIDE)
def test_a_tensor_that_is_not_varied_is_no_hindrance_to_forward_over_forward(name):
    report = second_order(lambda a, b: a.sin() * b, point(3), TENSORS_BESIDE[name], wrt=0, modes=("forward",))

    assert report.verdict is Verdict.PASS, report.reason


def test_a_module_with_buffers_passes_in_forward_over_forward():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("scale", torch.tensor(2.0, dtype=torch.float64))

        def forward(self, x):
            return x.sin() * self.scale

    assert second_order(Scaled(), point(3), modes=("forward",)).verdict is Verdict.PASS


# Planted errors in a double backward.

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

    assert found(detached) == {("reverse over reverse", "inputs[0]")}
    assert found(incoming) == {("reverse over reverse", "grad_outputs[0]")}


def test_a_product_whose_backward_detaches_one_factor_names_the_other_gradient():
    product = rule(torch.mul, lambda g, a, b: (g * b, g * a.detach()))
    report = second_order(product, point(3), point(3, seed=2))
    outputs = {entry.output.path for finding in report.findings for entry in finding.entries}

    assert found(report) == {("reverse over reverse", "inputs[0]")}
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
    assert "no such shape" in report.reason


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


# Planted errors in the derivative of a jvp.


def test_a_jvp_that_detaches_fails_over_forward_with_respect_to_what_it_detached():
    class Detaching(Sine):
        @staticmethod
        def jvp(ctx, tangent):
            return tangent * ctx.saved_tensors[0].detach().cos()

    report = second_order(Detaching.apply, point(4), modes=BOTH)

    assert ("reverse over forward", "inputs[0]") in found(report)
    assert not {mode for mode, _ in found(report)} & {"reverse over reverse", "forward over reverse"}


def test_a_jvp_that_forgets_the_tangent_fails_over_forward_with_respect_to_the_tangent():
    class Forgetting(Sine):
        @staticmethod
        def jvp(ctx, tangent):
            return tangent.detach() * ctx.saved_tensors[0].cos()

    report = second_order(Forgetting.apply, point(4), modes=BOTH)

    assert ("reverse over forward", "tangents[0]") in found(report)
    assert ("reverse over forward", "inputs[0]") not in found(report)


def test_a_backward_that_detaches_fails_over_reverse_and_not_over_forward():
    class Detaching(Sine):
        @staticmethod
        def backward(ctx, incoming):
            return incoming * ctx.saved_tensors[0].detach().cos()

    report = second_order(Detaching.apply, point(4), modes=BOTH)

    assert {("reverse over reverse", "inputs[0]"), ("forward over reverse", "inputs[0]")} <= found(report)
    assert not any(mode == "reverse over forward" for mode, _ in found(report))


def test_a_wrong_jvp_of_a_backward_fails_in_forward_over_reverse_alone():
    class Cosine(torch.autograd.Function):
        """g·cos(x), with a jvp of the wrong sign."""

        @staticmethod
        def forward(ctx, g, x):
            ctx.save_for_backward(g, x)
            ctx.save_for_forward(g, x)
            return g * x.cos()

        @staticmethod
        def backward(ctx, h):
            g, x = ctx.saved_tensors
            return h * x.cos(), -h * g * x.sin()

        @staticmethod
        def jvp(ctx, s, t):
            g, x = ctx.saved_tensors
            return s * x.cos() + t * g * x.sin()

    class Outer(Sine):
        @staticmethod
        def backward(ctx, incoming):
            return Cosine.apply(incoming, *ctx.saved_tensors)

    report = second_order(Outer.apply, point(4), modes=BOTH)
    modes = {mode for mode, _ in found(report)}

    assert ("forward over reverse", "inputs[0]") in found(report)
    assert not modes & {"reverse over reverse", "reverse over forward"}


def test_a_wrong_jvp_of_a_jvp_fails_in_forward_over_forward():
    def tangent_line(x):  # of sin at x itself: value and slope are right, and the curvature is cut off
        return x.detach().sin() + x.detach().cos() * (x - x.detach())

    assert check(tangent_line, point(4), modes="forward", contracts=(), seed=0).passed
    assert found(second_order(tangent_line, point(4), modes=("forward",))) == {("forward over forward", "inputs[0]")}


@pytest.mark.parametrize("own", [Sine, OldSine], ids=lambda kind: kind.__name__)
def test_a_right_function_with_a_jvp_passes_and_forward_over_forward_is_a_note(own):
    report = second_order(own.apply, point(4), modes=BOTH)

    assert report.verdict is Verdict.PASS
    assert set(report.subject.derivatives) == NESTINGS - {"forward over forward"}
    assert any(
        "forward over forward" in note and "no tangents" in note and own.__name__ in note for note in report.notes
    )


@pytest.mark.parametrize("name", SHARED)
@pytest.mark.parametrize("function", [torch.sin, Sine.apply, lambda x: x * x.sum()], ids=["torch's", "own", "coupled"])
def test_an_input_whose_entries_share_memory_passes(name, function):
    report = check(function, SHARED[name], modes=BOTH, order=2, seed=0)

    assert report.verdict is Verdict.PASS, report


def test_forward_over_forward_alone_through_a_jvp_is_a_rule_that_is_absent():
    def inner(x):
        return torch.func.jvp(Sine.apply, (x,), (torch.ones_like(x),))[1]

    values = point(4).detach()
    nested = torch.func.jvp(inner, (values,), (torch.ones_like(values),))[1]
    assert not nested.any()  # and should be -sin: torch takes them for zeros

    report = second_order(Sine.apply, point(4), modes=("forward",))

    assert [finding.kind for finding in report.findings] == ["no-forward-rule"]
    assert "torch gives no tangents" in report.reason


@pytest.mark.parametrize("own", [Sine, OldSine], ids=lambda kind: kind.__name__)
def test_by_default_a_right_function_with_a_jvp_passes(own):
    assert second_order(own.apply, point(4), modes=None).verdict is Verdict.PASS


def test_a_function_that_torch_cannot_nest_is_a_rule_that_is_absent():
    report = second_order(OldSine.apply, point(4), modes=("forward",))

    assert [finding.kind for finding in report.findings] == ["no-forward-rule"]
    assert "setup_context" in report.reason


def test_a_function_that_uses_autograd_inside_has_no_rule_for_forward_over_forward():
    def inside(x):
        return torch.autograd.grad((x**4).sum(), x, create_graph=True)[0]

    report = second_order(inside, point(4), modes=("forward",))

    assert [finding.kind for finding in report.findings] == ["no-forward-rule"]


def test_the_number_of_entries_that_are_nan_is_that_of_the_argument_named():
    def nan_everywhere(h, g, x):
        return torch.full_like(g, torch.nan), torch.full_like(x, torch.nan)

    report = second_order(by(nan_everywhere), point(2))

    assert report.findings[0].argument == "inputs[0]"
    assert "in 2 entries" in report.findings[0].message


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_a_cast_to_a_dtype_that_torch_cannot_compare_passes():
    x = torch.linspace(-1, 1, 3, dtype=torch.float64, requires_grad=True)

    assert check(lambda x: x.chalf(), x, order=2, modes="reverse", seed=0).passed
