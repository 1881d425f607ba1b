"""Which part of a wrong function is to blame: modules and autograd Functions, at the inputs that they received."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gradproof import Verdict, check
from gradproof.frameworks.torch.introspection.tracing import Trace
from support.points import point


class Scale(torch.autograd.Function):
    """tanh(x · w), whose gradient for w is multiplied by `wrong`."""

    @staticmethod
    def forward(ctx, x, w, wrong):
        ctx.save_for_backward(x, w)
        ctx.wrong = wrong
        return torch.tanh(x * w)

    @staticmethod
    def backward(ctx, gradient):
        x, w = ctx.saved_tensors
        flow = gradient * (1 - torch.tanh(x * w) ** 2)
        return flow * w, ctx.wrong * (flow * x).sum(0), None


class Modern(torch.autograd.Function):
    """The same with a `setup_context`, and a wrong gradient for x."""

    @staticmethod
    def forward(x, w, wrong=2.0):
        return torch.tanh(x * w)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, w, ctx.wrong = inputs
        ctx.save_for_backward(x, w)

    @staticmethod
    def backward(ctx, gradient):
        x, w = ctx.saved_tensors
        flow = gradient * (1 - torch.tanh(x * w) ** 2)
        return ctx.wrong * flow * w, (flow * x).sum(0), None


class Inherited(Scale):
    """A Function that takes its rules from another."""


class Layer(nn.Module):
    def __init__(self, width, wrong=1.0, rule=Scale):
        super().__init__()
        generator = torch.Generator().manual_seed(width)
        self.weight = nn.Parameter(torch.rand(width, dtype=torch.float64, generator=generator) + 0.5)
        self.wrong, self.rule = wrong, rule

    def forward(self, x, *, twice=False):
        y = self.rule.apply(x, self.weight, self.wrong)
        return 2 * y if twice else y


class Detached(nn.Module):
    """A module of torch's operators that loses a gradient on the way."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, width, dtype=torch.float64))

    def forward(self, x):
        return x * self.weight.detach() + x.sin()


def culprits(function, inputs, **options):
    report = check(function, inputs, seed=0, **options)
    assert report.verdict is Verdict.FAIL
    return report.findings[0].culprits


@pytest.mark.parametrize("number", [0, 49])
def test_one_wrong_layer_of_fifty_is_named(number):
    model = nn.Sequential(*(Layer(4, wrong=2.0 if k == number else 1.0) for k in range(50)))

    (culprit,) = culprits(model, point(3, 4))

    assert culprit.name == f"Scale in {number} (Layer)"
    assert [each.name for each in culprit.diagnoses] == ["factor"]
    assert "with respect to w" in culprit.message


def test_a_wrong_layer_is_named_by_its_path():
    model = nn.ModuleDict({"encoder": nn.Sequential(nn.Linear(4, 4).double(), Layer(4)), "head": Layer(4, wrong=-1.0)})

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = model

        def forward(self, x):
            return self.parts["head"](self.parts["encoder"](x))

    (culprit,) = culprits(Model(), point(2, 4))

    assert culprit.name == "Scale in parts.head (Layer)"


def test_a_module_without_functions_is_named():
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), Detached(4), nn.Linear(4, 2)).double()

    (culprit,) = culprits(model, point(3, 4))

    assert culprit.name == "2 (Detached)"
    assert culprit.diagnoses[0].name == "detached"


def test_the_innermost_module_is_named_and_not_those_around_it():
    class Around(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = Detached(4), nn.Linear(4, 4).double()

        def forward(self, x):
            return self.second(self.first(x))

    (culprit,) = culprits(nn.Sequential(nn.Tanh(), Around()), point(3, 4))

    assert culprit.name == "1.first (Detached)"


def test_a_module_whose_parts_are_right_is_named_itself():
    class Cut(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(4, 4).double()

        def forward(self, x):
            return self.inner(x) * x.detach()

    (culprit,) = culprits(nn.Sequential(nn.Tanh(), Cut(), nn.Sigmoid()), point(3, 4))

    assert culprit.name == "1 (Cut)"


def test_a_wrong_function_in_a_composition_is_named():
    weight = (torch.arange(4.0).double() + 1).requires_grad_()

    def function(x, w):
        return Modern.apply(Scale.apply(x, w, 1.0), w, 3.0)

    (culprit,) = culprits(function, (point(2, 4), weight))

    assert culprit.name == "Modern"


def test_the_call_of_a_function_that_is_wrong_is_distinguished_from_those_that_are_right():
    weight = (torch.arange(4.0).double() + 1).requires_grad_()

    def function(x, w):
        for wrong in (1.0, 1.0, 5.0, 1.0):
            x = Scale.apply(x, w, wrong)
        return x

    (culprit,) = culprits(function, (point(2, 4), weight))

    assert culprit.name == "Scale, call 3 of 4"


def test_a_function_that_is_wrong_throughout_is_named_a_few_times():
    model = nn.Sequential(*(Layer(3, wrong=2.0) for _ in range(20)))

    assert 1 <= len(culprits(model, point(2, 3))) <= 4


def test_functions_that_were_bound_before_are_seen():
    bound = Scale.apply
    weight = torch.ones(4, dtype=torch.float64, requires_grad=True)

    (culprit,) = culprits(lambda x, w: bound(bound(x, w, 1.0), w, 2.0), (point(2, 4), weight))

    assert culprit.name == "Scale, call 2 of 2"


def test_a_function_that_inherits_its_forward_is_seen():
    weight = torch.ones(4, dtype=torch.float64, requires_grad=True)

    (culprit,) = culprits(lambda x, w: Inherited.apply(Scale.apply(x, w, 1.0), w, 2.0), (point(2, 4), weight))

    assert culprit.name == "Inherited"
    assert "forward" not in vars(Inherited)


def test_modules_that_a_function_closes_over_are_seen():
    model = nn.Sequential(nn.Linear(4, 4).double(), Detached(4))
    model[1].forward = lambda x: x.detach() * x

    (culprit,) = culprits(lambda x: model(x).sum(), point(3, 4))

    assert culprit.name == "model.1 (Detached)"


def test_modules_called_with_keywords_are_seen():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = Detached(4), Layer(4)

        def forward(self, x):
            return self.second(x=self.first(x), twice=True)

    (culprit,) = culprits(Model(), point(2, 4))

    assert culprit.name == "first (Detached)"


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128])
def test_other_precisions_and_complex_numbers(dtype):
    class Wrong(nn.Module):
        def forward(self, x):
            return x * x.detach()

    model = nn.Sequential(nn.Identity(), Wrong(), nn.Identity())

    (culprit,) = culprits(model, point(5, dtype=dtype))

    assert culprit.name == "1 (Wrong)"


def test_a_layer_whose_backward_raises_is_named():
    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.sin()

        @staticmethod
        def backward(ctx, gradient):
            raise ValueError("no backward today")

    class Raising(nn.Module):
        def forward(self, x):
            return Broken.apply(x)

    (culprit,) = culprits(nn.Sequential(nn.Tanh(), Raising()), point(3))

    assert culprit.name == "Broken in 1 (Raising)"
    assert "no backward today" in culprit.message


def test_dropout_is_no_obstacle():
    model = nn.Sequential(nn.Dropout(0.5), Layer(4, wrong=2.0), nn.Dropout(0.5)).double()

    (culprit,) = culprits(model, point(6, 4))

    assert culprit.name == "Scale in 1 (Layer)"


def test_a_lone_function_is_not_judged_twice():
    weight = torch.ones(4, dtype=torch.float64, requires_grad=True)

    (culprit,) = culprits(lambda x, w: Scale.apply(x, w, 2.0), (point(2, 4), weight))

    assert (culprit.name, culprit.message) == ("Scale", "")


def test_a_right_model_pays_nothing():
    calls = []

    class Counting(Layer):
        def forward(self, x):
            calls.append(1)
            return super().forward(x)

    report = check(nn.Sequential(Counting(4), Counting(4)), point(2, 4), seed=0, contracts=())

    assert report.passed
    assert len(calls) == 2 * report.cost.evaluations


# ── nothing of the caller's is changed ───────────────────────────────────────────────────────────────────────────────


def hooks_of(model):
    return [(len(each._forward_pre_hooks), len(each._forward_hooks)) for each in model.modules()]


def test_no_hook_and_no_wrapper_is_left():
    model = nn.Sequential(Layer(4), Layer(4, wrong=2.0), Layer(4, rule=Modern))
    before, forwards = hooks_of(model), (vars(Scale)["forward"], vars(Modern)["forward"])

    culprits(model, point(2, 4))

    assert hooks_of(model) == before
    assert (vars(Scale)["forward"], vars(Modern)["forward"]) == forwards


def test_no_hook_and_no_wrapper_is_left_after_an_error():
    model = nn.Sequential(nn.Tanh(), Layer(4))
    before, forward = hooks_of(model), vars(Scale)["forward"]

    def traced():
        with Trace({model[0]: "0", model[1]: "1"}, [Scale]):
            assert hooks_of(model) != before
            assert vars(Scale)["forward"] is not forward
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        traced()

    assert hooks_of(model) == before
    assert vars(Scale)["forward"] is forward


def test_a_module_that_takes_no_hooks_is_no_obstacle():
    class Stubborn(Layer):
        def register_forward_pre_hook(self, *args, **kwargs):
            raise RuntimeError("no hooks")

    model = nn.Sequential(Layer(4), Stubborn(4, wrong=2.0))
    before = hooks_of(model)

    assert culprits(model, point(2, 4)) == ()
    assert hooks_of(model) == before


def test_inputs_gradients_parameters_and_generators_are_as_they_were():
    model = nn.Sequential(nn.Dropout(0.3), Layer(4, wrong=2.0), nn.BatchNorm1d(4)).double()
    x = point(5, 4)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    values, generator = x.detach().clone(), torch.get_rng_state()

    assert culprits(model, x)

    assert torch.equal(x, values)
    assert x.grad is None
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), generator)


def test_what_a_part_receives_is_kept_as_it_was_then():
    class InPlace(nn.Module):
        def forward(self, x):
            return x.clone().mul_(2)

    class Overwriting(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Detached(4)

        def forward(self, x):
            y = x * 1.0
            z = self.inner(y)
            return z + 0 * y.sum()

    (culprit,) = culprits(nn.Sequential(InPlace(), Overwriting()), point(2, 4))

    assert culprit.name == "1.inner (Detached)"
