"""Full coverage of torch functions: every entry, in both modes and orders, of functions of every kind."""

from __future__ import annotations

import random
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # torch's own convention
from torch import nn

from gradproof import GradientError, Verdict, assert_gradients, check
from support.findings import wrong_places
from support.functions import rule
from support.points import point, positive
from support.marks import both_modes, coverages
from support.checks import full

# ── right functions ──────────────────────────────────────────────────────────────────────────────────────────────────


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(positive(3).detach())

    def forward(self, x):
        return (x * self.weight).tanh()


def expanded():
    return torch.tensor([[0.3], [0.7]], dtype=torch.float64).expand(2, 5).requires_grad_()


def with_gaps():
    return torch.linspace(0.2, 1.4, 24, dtype=torch.float64)[::2].requires_grad_()


def window(x):
    return torch.as_strided(x, (10, 3), (1, 1)).sin().sum(1)


RIGHT = {
    "a sine": (torch.sin, point(20)),
    "a sum": (lambda x: x.exp().sum(), point(14)),
    "a softmax": (lambda x: x.softmax(-1), point(4, 5)),
    "a product of matrices": (torch.matmul, (point(3, 4), point(4, 5, seed=2))),
    "a convolution": (F.conv1d, (point(2, 2, 9), point(3, 2, 3, seed=2))),
    "a padded convolution": (lambda x, w: F.conv2d(x, w, padding=1), (point(1, 1, 4, 4), point(2, 1, 3, 3))),
    "a layer norm": (lambda x: F.layer_norm(x, (6,)), point(3, 6)),
    "a cumulative product": (lambda x: x.cumprod(0), positive(12)),
    "an inverse": (torch.linalg.inv, point(4, 4)),
    "a determinant": (torch.linalg.det, point(4, 4)),
    "a sort": (lambda x: x.sort().values, point(15)),
    "a choice": (lambda x: x[[0, 3, 3, 7]], point(12)),
    "three inputs": (lambda a, b, c: a * b + c.sin(), (point(12), point(12, seed=2), point(12, seed=3))),
    "inputs of other shapes": (lambda a, b: a[:, None] * b, (point(3), point(5, seed=2))),
    "several outputs": (lambda x: (x.sin(), {"square": x**2, "sum": x.sum()}), point(13)),
    "numbers without dimensions": (lambda a, b: a * b.exp(), (point(), point(seed=2))),
    "an empty input": (lambda a, b: (a.sum() + b.sin(), a.exp()), (point(0, 3), point(12, seed=2))),
    "nothing at all": (torch.exp, point(0)),
    "an empty output": (lambda x: x[:0], point(4)),
    "an input with gaps": (torch.sin, with_gaps()),
    "an expanded input": (lambda x: x.sin() * 2, expanded()),
    "a transposed input": (torch.sinh, point(3, 5).detach().T.requires_grad_()),
    "overlapping windows": (window, point(12)),
    "an expanded output": (lambda x: x.sin().expand(3, 12), point(12)),
    "an input without influence": (lambda x, y: x.sin() + 0 * y.detach(), (point(12), point(12, seed=2))),
    "a constant": (lambda x: torch.ones(12, dtype=x.dtype) + 0 * x, point(12)),
    "the identity": (lambda x: x, point(12)),
    "a view": (lambda x: x.view(4, 3), point(12)),
    "real of real": (lambda x: x.cos(), point(12)),
    "complex of real": (lambda x: torch.exp(1j * x), point(12)),
    "real of complex": (lambda z: z.abs(), point(12, dtype=torch.complex128)),
    "complex of complex": (lambda z: z.exp() * z.conj(), point(12, dtype=torch.complex128)),
    "real and complex of both": (lambda x, z: (x * z, (x * z).real), (point(6), point(6, dtype=torch.complex128))),
    "a transform": (torch.fft.fft, point(9)),
    "a module": (Scaled(), point(4, 3)),
    "a linear layer": (nn.Linear(3, 4).double(), point(5, 3)),
    "large numbers": (lambda x: x * 1e200, point(12)),
    "small numbers": (lambda x: x * 1e-200, point(12)),
}  # fmt: skip


@both_modes
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_function_passes(name, mode):
    report = full(*RIGHT[name], mode)

    assert report.verdict is Verdict.PASS, str(report)
    assert report.findings == ()


@both_modes
@pytest.mark.parametrize("name", ["a sine", "a softmax", "a product of matrices", "complex of complex", "a module"])
def test_a_right_function_passes_whatever_the_seed(name, mode):
    assert {full(*RIGHT[name], mode, seed=seed).verdict for seed in range(8)} == {Verdict.PASS}


SECOND = [
    "a sine",
    "a product of matrices",
    "three inputs",
    "several outputs",
    "numbers without dimensions",
    "an input with gaps",
    "real of complex",
    "complex of complex",
    "complex of real",
    "a linear layer",
    "a cumulative product",
    "the identity",
]


@pytest.mark.parametrize("modes", ["reverse", "forward", ["reverse", "forward"]], ids=str)
@pytest.mark.parametrize("name", SECOND)
def test_a_right_second_derivative_passes(name, modes):
    function, inputs = RIGHT[name]
    report = full(function, inputs, modes, order=2)

    assert report.verdict is Verdict.PASS, str(report)


@pytest.mark.parametrize(
    "modes",
    [
        "reverse",
        "forward",
        pytest.param(
            ["reverse", "forward"],
        ),
    ],
    ids=str,
)
def test_the_second_derivative_of_a_softmax_passes(modes):
    assert full(*RIGHT["a softmax"], modes, order=2).verdict is Verdict.PASS


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.complex64])
@both_modes
def test_low_precision_passes(dtype, mode):
    x = positive(12).detach().to(dtype).requires_grad_()

    assert full(lambda x: x * x + x, x, mode).verdict is Verdict.PASS


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_error_in_low_precision_is_found(dtype):
    wrong = rule(torch.square, lambda g, x: g * x)

    assert full(wrong, positive(12, dtype=torch.float32).detach().to(dtype).requires_grad_()).verdict is Verdict.FAIL


def test_all_contracts_may_be_asked_for_as_well():
    assert check(torch.sin, point(12), coverage="full").passed
    assert check(nn.Linear(3, 4).double(), point(5, 3), coverage="full").passed


def test_a_right_gradient_is_asserted_silently():
    assert_gradients(torch.sin, point(12), coverage="full")
    with pytest.raises(GradientError):
        assert_gradients(rule(torch.square, lambda g, x: g * x), point(12), coverage="full")


# ── functions that are hard to call many times at once ───────────────────────────────────────────────────────────────


def with_an_item(x):
    return x * x.sum().item() ** 0 + x.sin()


def with_a_branch(x):
    return x.sin() if x.sum() > -1e9 else x.cos()


class ThroughNumpy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.from_numpy(np.sin(x.detach().numpy()))

    @staticmethod
    def backward(ctx, incoming):
        (x,) = ctx.saved_tensors
        return incoming * torch.from_numpy(np.cos(x.detach().numpy()))

    @staticmethod
    def jvp(ctx, tangent):
        return None


class WrongInBatches(torch.autograd.Function):
    """A sine, of which several at once are all wrong, or all but the last."""

    @staticmethod
    def forward(x, last):
        return x.sin()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, incoming):
        (x,) = ctx.saved_tensors
        return incoming * x.cos(), None

    @staticmethod
    def vmap(info, dims, x, last):
        value = (1.1 * x).sin()
        if last:
            value[-1] = x[-1].sin()
        return value, 0


SHARED = torch.zeros(40, dtype=torch.float64)


class IntoSharedMemory(torch.autograd.Function):
    """A sine that always comes in the same memory."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        memory = SHARED[: x.numel()]
        torch.sin(x.detach(), out=memory)
        return memory

    @staticmethod
    def backward(ctx, incoming):
        (x,) = ctx.saved_tensors
        return incoming * x.cos()


def with_a_graph_inside(x):
    (slope,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    return slope


def with_a_graph_of_its_own(x):
    with torch.enable_grad():
        y = x if x.requires_grad else x.detach().requires_grad_()
        (slope,) = torch.autograd.grad((y**3).sum(), y, create_graph=True)
    return slope


def dropping(x):
    return F.dropout(x.sin(), 0.4)


def drawing(x):
    return x.sin() * torch.rand(x.shape, dtype=x.dtype) + random.random() * float(np.random.rand()) * x


def counting_in_place(x):
    y = x.clone()
    y[2:5] *= 3.0
    y.add_(x.sin())
    return y


def through_a_list(x):
    return torch.stack([float(k + 1) * entry.sin() for k, entry in enumerate(x.tolist() and x.unbind())])


HARD = {
    "a number taken out": with_an_item,
    "a branch on the data": with_a_branch,
    "wrong in batches": lambda x: WrongInBatches.apply(x, False),
    "shared memory": IntoSharedMemory.apply,
    "a graph inside": with_a_graph_inside,
    "a graph of its own": with_a_graph_of_its_own,
    "dropout": dropping,
    "draws": drawing,
    "writing in place": counting_in_place,
    "a list": through_a_list,
    "NumPy": ThroughNumpy.apply,
    "a nonzero": lambda x: x[x.detach().abs().nonzero().squeeze(-1)].sin(),
}


@pytest.mark.parametrize("size", [5, 12])
@pytest.mark.parametrize("name", HARD)
def test_a_right_function_that_is_hard_to_batch_passes(name, size):
    report = full(HARD[name], point(size))

    assert report.verdict is Verdict.PASS, str(report)


EASY_TO_PUSH = [name for name in HARD if name.split()[0] not in ("NumPy", "wrong", "shared") and "graph" not in name]


@pytest.mark.parametrize("name", EASY_TO_PUSH)
def test_a_right_function_that_is_hard_to_batch_passes_in_forward_mode(name):
    report = full(HARD[name], point(12), "forward")

    assert report.verdict is Verdict.PASS, str(report)


@pytest.mark.parametrize("name", [name for name in HARD if name != "dropout"])
def test_an_error_in_a_function_that_is_hard_to_batch_is_found(name):
    spoilt = rule(lambda x: x.clone(), lambda g, x: g * (1 + 0.01 * (torch.arange(12) == 7)))
    report = full(lambda x: HARD[name](spoilt(x)), point(12))

    assert report.verdict is Verdict.FAIL
    assert (7,) in {index for _, index, _, _ in wrong_places(report)}


def test_batches_that_are_wrong_but_for_the_last_are_no_fault_of_the_gradient():
    report = full(lambda x: WrongInBatches.apply(x, True), point(12))

    assert report.verdict is not Verdict.FAIL, str(report)


class WrongBackwardInBatches(torch.autograd.Function):
    """Doubles, by a rule that is wrong for several incoming gradients at once."""

    @staticmethod
    def forward(x):
        return 2 * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, incoming):
        return _Twice.apply(incoming)

    @staticmethod
    def vmap(info, dims, x):
        return 2 * x, 0


class _Twice(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return 2 * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, incoming):
        return 2 * incoming

    @staticmethod
    def vmap(info, dims, x):
        return 3 * x, 0


def test_a_backward_that_is_wrong_in_batches_is_asked_one_by_one():
    assert full(WrongBackwardInBatches.apply, point(12)).verdict is Verdict.PASS


def test_a_function_that_raises_beside_the_point_is_inconclusive():
    x = torch.ones(12, dtype=torch.float64, requires_grad=True)

    def picky(y):
        if not bool((y == 1).all()):
            raise ValueError("ones only")
        return y.sin()

    report = full(picky, x)

    assert report.verdict is Verdict.INCONCLUSIVE
    assert "ones only" in report.reason


@pytest.mark.parametrize("size", [1, 12])
def test_an_output_that_changes_shape_is_never_called_wrong(size):
    x = torch.ones(size, dtype=torch.float64, requires_grad=True)

    assert full(lambda y: y[y >= 1].sin(), x).verdict is not Verdict.FAIL


def test_a_function_that_writes_to_its_input_is_inconclusive():
    def writing(x):
        with torch.no_grad():
            x.mul_(2.0)
        return x.sin()

    assert full(writing, point(12)).verdict is Verdict.INCONCLUSIVE


def test_a_function_that_writes_to_an_input_that_is_not_varied_passes():
    def writing(x, y):
        y.add_(1.0)
        return x * 1.0

    y = torch.zeros(12, dtype=torch.float64)

    assert full(writing, (point(12), y)).verdict is Verdict.PASS
    assert torch.equal(y, torch.zeros(12, dtype=torch.float64))


@pytest.mark.parametrize("size", [1, 4, 12, 40])
@both_modes
def test_a_kink_is_inconclusive(size, mode):
    x = torch.linspace(1, 2, size, dtype=torch.float64)
    x[size // 2] = 0.0

    assert full(torch.abs, x.requires_grad_(), mode).verdict is Verdict.INCONCLUSIVE


# ── wrong entries ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", [6, 12, 300])
def test_one_wrong_entry_is_located(size):
    wrong = rule(torch.sin, lambda g, x: g * x.cos() * (1 + 1e-5 * (torch.arange(size) == 4)))
    report = full(wrong, point(size))

    assert report.verdict is Verdict.FAIL
    assert wrong_places(report) == {("inputs[0]", (4,), "output", (4,))}


def test_one_wrong_entry_of_a_matrix_is_located():
    def backward(g, a, b):
        spoilt = b.clone()
        spoilt[2, 1] += 1e-4
        return g @ spoilt.T, a.T @ g

    report = full(rule(torch.matmul, backward), (point(2, 3), point(3, 2, seed=2)))

    assert wrong_places(report) == {("inputs[0]", (k, 2), "output", (k, 1)) for k in range(2)}


def test_the_output_that_is_wrong_is_named():
    class TwoOutputs(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return x * y, x + y

        @staticmethod
        def backward(ctx, product, total):
            x, y = ctx.saved_tensors
            return product * y + total, product * x + 1.01 * total

    report = full(TwoOutputs.apply, (point(3), point(3, seed=2)))

    assert wrong_places(report) == {("inputs[1]", (k,), "output[1]", (k,)) for k in range(3)}


def test_a_wrong_part_of_a_complex_number_is_named():
    wrong = rule(lambda z: 2 * z, lambda g, z: torch.complex(2 * g.real, 2.5 * g.imag))
    report = full(wrong, point(1, dtype=torch.complex128))
    (entry,) = report.findings[0].entries

    assert (entry.part, entry.output.part) == ("imag", "imag")
    assert (entry.claimed, entry.numerical) == pytest.approx((2.5, 2.0))


def test_a_wrong_parameter_is_named():
    class Wrong(nn.Module):
        def __init__(self):
            super().__init__()
            self.gain = nn.Parameter(positive(3).detach())

        def forward(self, x):
            return rule(torch.mul, lambda g, x, w: (g * w, g * x * (1 + (torch.arange(3) == 1))))(x, self.gain)

    report = full(Wrong(), point(3))

    assert wrong_places(report) == {("gain", (1,), "output", (1,))}


def test_a_wrong_jvp_is_located():
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(x):
            return x.sin()

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)

        @staticmethod
        def backward(ctx, incoming):
            return incoming * ctx.saved_tensors[0].cos()

        @staticmethod
        def jvp(ctx, tangent):
            return tangent * ctx.saved_tensors[0].cos() * (1 + 1e-3 * (torch.arange(12) == 3))

    report = full(Wrong.apply, point(12), modes=["reverse", "forward"])

    assert {finding.mode for finding in report.findings} == {"forward"}
    assert wrong_places(report) == {("inputs[0]", (3,), "output", (3,))}


@pytest.mark.parametrize("size", [3, pytest.param(12), pytest.param(50)])
def test_an_influence_that_the_backward_forgets_is_found(size):
    def shifted(x):
        return x.sin() + 0.5 * x[0] * (torch.arange(size) == 2)

    report = full(rule(shifted, lambda g, x: g * x.cos()), point(size))

    assert report.verdict is Verdict.FAIL
    assert wrong_places(report) == {("inputs[0]", (0,), "output", (2,))}


def test_an_influence_that_the_backward_forgets_everywhere_is_found():
    report = full(rule(lambda x: x.sin() + 0.5 * x.roll(1), lambda g, x: g * x.cos()), point(12))

    assert report.verdict is Verdict.FAIL


def test_a_detached_mean_is_found():
    assert full(lambda x: x - x.mean().detach(), point(20)).verdict is Verdict.FAIL


@pytest.mark.parametrize("size", [1, 12])
def test_an_infinite_gradient_of_a_finite_slope_is_found(size):
    wrong = rule(torch.sin, lambda g, x: torch.where((torch.arange(size) == 0) & (g != 0), torch.inf, g * x.cos()))

    assert full(wrong, point(size)).verdict is Verdict.FAIL


def test_a_nan_gradient_of_a_finite_slope_is_found():
    x = torch.linspace(-1, 1, 12, dtype=torch.float64, requires_grad=True)

    assert full(lambda x: torch.where(x > 0, x.sqrt(), 0.0 * x), x).verdict is Verdict.FAIL


def test_an_error_in_the_small_one_of_two_inputs_is_found():
    def backward(g, h, a, b):
        return 2 * g, h

    wrong = rule(lambda a, b: (a.clone(), b.clone()), backward)
    inputs = (positive(6).detach().mul(1e-7).requires_grad_(), positive(6).detach().mul(1e7).requires_grad_())

    assert full(wrong, inputs).verdict is Verdict.FAIL


def test_a_ramp_that_lets_gradients_through_below_zero_is_found():
    straight_through = rule(torch.relu, lambda g, x: g)

    assert (
        full(straight_through, torch.linspace(-2, 2, 12, dtype=torch.float64).requires_grad_()).verdict is Verdict.FAIL
    )


@pytest.mark.parametrize(("accepted", "verdict"), [(0.02, Verdict.PASS), (0.002, Verdict.FAIL)])
@pytest.mark.parametrize("option", ["rtol", "atol"])
@pytest.mark.parametrize("size", [1, 6, 12])
def test_an_error_passes_if_it_is_accepted(option, accepted, verdict, size):
    wrong = rule(lambda x: x.clone(), lambda g, x: 1.01 * g)

    assert full(wrong, point(size), **{option: accepted}).verdict is verdict


@pytest.mark.parametrize("option", ["rtol", "atol"])
def test_an_error_in_every_entry_is_not_accepted_because_there_are_many(option):
    weight = point(20, 20, seed=2).detach()
    wrong = rule(lambda x: weight @ x, lambda g, x: 1.02 * weight.T @ g)
    found = [full(wrong, point(20), seed=seed, **{option: 0.002}).verdict for seed in range(10)]

    assert found == [Verdict.FAIL] * 10


@pytest.mark.parametrize("modes", [pytest.param("reverse"), "forward"])
def test_a_wrong_second_derivative_is_found(modes):
    class Wrong(torch.autograd.Function):
        """A cube, whose derivatives forget that they depend on x."""

        @staticmethod
        def forward(x):
            return x**3

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)

        @staticmethod
        def backward(ctx, incoming):
            return incoming * 3 * ctx.saved_tensors[0].detach() ** 2

        @staticmethod
        def jvp(ctx, tangent):
            return tangent * 3 * ctx.saved_tensors[0].detach() ** 2

    x = positive(3)

    assert full(Wrong.apply, x, modes).verdict is Verdict.PASS
    assert full(Wrong.apply, x, modes, order=2).verdict is Verdict.FAIL


def test_a_backward_that_raises_fails():
    def backward(g, x):
        raise KeyError("from the backward")

    report = full(rule(torch.sin, backward), point(12))

    assert report.verdict is Verdict.FAIL
    assert "from the backward" in report.reason


# ── cost ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@both_modes
def test_a_diagonal_jacobian_takes_a_few_evaluations(mode):
    assert full(torch.sin, point(500), mode).cost.evaluations < 20


@both_modes
def test_a_dense_jacobian_takes_about_two_evaluations_an_input(mode):
    weight = point(30, 100, seed=2).detach()
    report = full(lambda x: weight @ x.sin(), point(100), mode)

    assert report.verdict is Verdict.PASS
    assert 200 <= report.cost.evaluations <= 220


def test_a_function_that_cannot_be_batched_is_called_as_often():
    calls = []

    def counted(x):
        calls.append(float(x.detach().sum()))
        return x.sum() * x

    report = full(counted, point(20))

    assert report.verdict is Verdict.PASS
    assert 40 <= len(calls) <= 60
    assert 40 <= report.cost.evaluations <= 60


def test_a_batch_is_one_call():
    calls = []

    def counted(x):
        calls.append(x.shape)
        return x.sum() * x

    full(counted, point(100))

    assert len(calls) < 15
    assert set(calls) == {torch.Size([100])}


def test_a_large_diagonal_is_checked_quickly():
    report = full(torch.sin, point(1000))

    assert report.verdict is Verdict.PASS
    assert report.cost.evaluations < 20
    assert report.cost.seconds < 10


# ── the caller ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", [*HARD, "wrong"])
@pytest.mark.parametrize("grad_mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_nothing_of_the_callers_is_changed(name, grad_mode):
    function = {**HARD, "wrong": rule(torch.sin, lambda g, x: 2 * g)}[name]
    x, y = point(12), point(12, seed=4).detach()
    x.grad = torch.full_like(x, 7.0)
    field, values, filters = x.grad, x.detach().clone(), list(warnings.filters)
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()

    with grad_mode():
        enabled = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        full(lambda x, y: function(x) + y, (x, y))
        assert (torch.is_grad_enabled(), torch.is_inference_mode_enabled()) == enabled

    assert torch.equal(x, values)
    assert (x._version, y._version, x.is_leaf, x.requires_grad) == (0, 0, True, True)
    assert x.grad is field
    assert bool((field == 7).all())
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert (np.random.get_state()[1] == states[2]).all()
    assert warnings.filters == filters


@both_modes
def test_the_parameters_of_a_module_stay_as_they_are(mode):
    module = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.BatchNorm1d(4)).double()
    before = {name: value.clone() for name, value in module.state_dict().items()}

    assert full(module, point(6, 3), mode).verdict is Verdict.PASS
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert all(parameter.grad is None for parameter in module.parameters())
    assert module.training


def test_a_seed_gives_the_same_report_again():
    wrong = rule(torch.sin, lambda g, x: 1.001 * g * x.cos())
    first, second = (full(wrong, point(12), seed=3) for _ in range(2))

    assert first.findings == second.findings
    assert first.resolution == second.resolution


def test_no_graph_stays_alive():
    import gc
    import weakref

    x = point(12)
    seen = []

    def watched(x):
        seen.append(weakref.ref(x))
        return x.sin()

    full(watched, x)
    gc.collect()

    assert not [reference for reference in seen if reference() is not None]


class Meddled(torch.autograd.Function):
    """The identity of its first input, which says that it moves a little with the second."""

    @staticmethod
    def forward(ctx, value, x):
        ctx.save_for_backward(x)
        return value.clone()

    @staticmethod
    def backward(ctx, incoming):
        return incoming, 1e-3 * incoming.sum() * torch.ones_like(ctx.saved_tensors[0])


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x**3,
        lambda x: x**5,
        lambda x: (x**4).sum(),
        lambda x: x.prod(),
        lambda x: x[:, None] ** 3 * x,
        lambda x: x.tanh() - x,
    ],
)
def test_every_entry_is_verified_where_the_whole_jacobian_vanishes(function, order):
    still = torch.zeros(4, dtype=torch.float64, requires_grad=True)

    assert all(full(function, still, order=order, seed=seed).passed for seed in range(12))
    assert full(lambda x: Meddled.apply(function(x), x), still).verdict is Verdict.FAIL


class Ledger(torch.autograd.Function):
    """A tiny output beside a large one, of which the backward gets the tiny one's part wrong by a factor."""

    factor = 1.0

    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return 1e-12 * (a * b).sum(), 1e6 * (a - b).pow(2).sum()

    @staticmethod
    def backward(ctx, tiny, large):
        a, b = ctx.saved_tensors
        return tiny * 1e-12 * b + large * 2e6 * (a - b), Ledger.factor * tiny * 1e-12 * a - large * 2e6 * (a - b)


@coverages
@pytest.mark.parametrize("factor", [0.0, -1.0, 1.001])
def test_a_wrong_gradient_of_a_tiny_output_beside_a_large_one_is_warned_of_and_found_by_itself(
    factor, coverage, monkeypatch
):
    monkeypatch.setattr(Ledger, "factor", factor)
    inputs = point(6), point(6, seed=2)
    together = check(Ledger.apply, inputs, coverage=coverage, contracts=(), seed=0)
    alone = check(lambda a, b: Ledger.apply(a, b)[0], inputs, coverage=coverage, contracts=(), seed=0)

    assert any(note.startswith("output[0]: tiny beside other outputs") for note in together.notes)
    assert {finding.argument for finding in alone.findings} == {"inputs[1]"}


@coverages
def test_a_right_gradient_of_a_tiny_output_beside_a_large_one_passes(coverage):
    assert check(Ledger.apply, (point(6), point(6, seed=2)), coverage=coverage, seed=0).passed


@coverages
@pytest.mark.parametrize("seed", range(3))
def test_an_output_of_rounding_alone_beside_a_large_one_passes(seed, coverage):
    def with_residual(a):
        inverse = torch.linalg.inv(a)
        return 10 * inverse, a @ inverse - torch.eye(4, dtype=a.dtype)

    assert check(with_residual, point(4, 4), coverage=coverage, seed=seed).passed


@pytest.mark.parametrize("seed", [2, 4, 5])
def test_what_rounding_leaves_of_tiny_second_derivatives_is_not_called_wrong(seed):
    torch.manual_seed(seed)
    q, k, v = ((12 * torch.randn(3, 2, dtype=torch.float64)).requires_grad_() for _ in range(3))

    assert check(lambda q, k, v: F.softmax(q @ k.T, -1) @ v, (q, k, v), order=2, contracts=(), seed=0).passed


@pytest.mark.parametrize("seed", range(8))
def test_a_derivative_of_the_smallest_numbers_is_judged_without_dividing_by_nothing(seed):
    torch.manual_seed(seed)
    q, k, v = ((20 * torch.randn(3, 2, dtype=torch.float64)).requires_grad_() for _ in range(3))

    def gradients(q, k, v):
        return torch.autograd.grad((F.softmax(q @ k.T, -1) @ v).square().sum(), (q, k, v), create_graph=True)

    assert check(gradients, (q, k, v), coverage="full", contracts=(), seed=seed).verdict in Verdict


class Overwriting(torch.autograd.Function):
    """Twice its argument, with rules that write to what they are given."""

    @staticmethod
    def forward(x, factor):
        return 2 * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.factor = inputs[1]

    @staticmethod
    def backward(ctx, incoming):
        return incoming.mul_(ctx.factor), None

    @staticmethod
    def jvp(ctx, tangent, _):
        return tangent.mul_(ctx.factor)


@both_modes
@pytest.mark.parametrize("size", [3, 50, 200])
def test_rules_that_write_to_what_they_are_given_are_judged_by_what_they_give(size, mode):
    assert full(lambda x: Overwriting.apply(x, 2), point(size), mode).passed
    assert full(lambda x: Overwriting.apply(x, 3), point(size), mode).verdict is Verdict.FAIL


@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("after", [torch.tanh, torch.sigmoid], ids=["tanh", "sigmoid"])
def test_entries_that_move_less_than_the_stairs_of_a_cast_are_not_called_wrong(low, after):
    for seed in range(8):
        draw = torch.Generator().manual_seed(117 + 2 * seed)
        x, w = (torch.randn(shape, dtype=torch.float64, generator=draw).requires_grad_() for shape in ((5, 4), (4, 4)))
        report = check(lambda x, w: after((x.to(low) @ w.to(low)).float()), (x, w), coverage="full", seed=seed)

        assert report.verdict is not Verdict.FAIL, str(report)


@pytest.mark.parametrize("claimed", [0.5, 1e-5])
def test_a_slope_that_is_claimed_of_a_constant_is_wrong_however_small(claimed):
    class Half(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return torch.cat([x[:3].clone(), torch.ones_like(x[3:])])

        @staticmethod
        def backward(ctx, incoming):
            return torch.cat([incoming[:3], claimed * incoming[3:]])

    x = torch.linspace(0.3, 2.2, 4, dtype=torch.float64).requires_grad_()

    assert check(Half.apply, x, coverage="full", seed=0).verdict is Verdict.FAIL


def test_values_that_waver_by_a_rounding_and_are_defined_nearby_alone_are_verified():
    """As of a covariance that a distribution takes only where it is symmetric."""

    def variances(matrix):
        if not torch.isclose(matrix, matrix.mT, atol=1e-6).all():
            raise ValueError("not symmetric")
        return torch.linalg.cholesky(matrix).pow(2).sum(-1)

    verdicts = []
    for seed in range(10):
        factor = torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        matrix = (factor @ factor.mT + torch.eye(3)).requires_grad_()
        verdicts.append(check(variances, (matrix,), coverage="full", seed=seed, contracts=()).verdict)

    assert Verdict.FAIL not in verdicts
    assert verdicts.count(Verdict.PASS) >= 8
