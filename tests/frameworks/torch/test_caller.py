"""Nothing of the caller's is changed, whatever the function does and however the check ends."""

from __future__ import annotations

import functools
import random

import numpy as np
import pytest
import torch
from torch import nn

from gradproof import GradientError, InputError, Verdict, assert_gradients, check
from support.functions import doubled
from support.points import point


def right(x, y=1.0):
    return x.sin() * y


def wrong(x, y=1.0):
    return doubled(x).sin() * y


def raising(x, y=1.0):
    raise KeyError("from the function")


def raising_beside(x, y=1.0):
    if not x.requires_grad:
        raise KeyError("from the function")
    return x.sin() * y


def writing(x, y=1.0):
    with torch.no_grad():
        x.mul_(2.0)
        if isinstance(y, torch.Tensor):
            y.add_(1.0)
    return x.sin() * y


def drawing(x, y=1.0):
    noise = torch.rand(x.shape, dtype=x.dtype) + random.random() + float(np.random.rand())
    return x.sin() * noise * y


def drawing_and_wrong(x, y=1.0):
    return drawing(doubled(x), y)


def drawing_and_raising(x, y=1.0):
    drawing(x)
    raise KeyError("from the function")


FUNCTIONS = [
    right,
    wrong,
    raising,
    raising_beside,
    writing,
    drawing,
    drawing_and_wrong,
    drawing_and_raising,
    torch.relu,
]
every_ending = pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
every_precision = pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.complex64])


def run(function, *inputs, **options):
    """Check, and come back however it ends."""
    try:
        return check(function, inputs, seed=0, **options)
    except KeyError:
        return None


# ── inputs ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@every_precision
@pytest.mark.parametrize("function", FUNCTIONS[:-1], ids=lambda function: function.__name__)
def test_inputs_stay_as_they_are_bit_for_bit(function, dtype):
    x, y = point(4, dtype=dtype), point(4, seed=2, dtype=dtype).detach()
    x.grad = torch.full_like(x, 7.0)
    field = x.grad
    before = [each.detach().clone() for each in (x, y)]

    run(function, x, y)

    assert [each._version for each in (x, y)] == [0, 0]
    assert torch.equal(x, before[0])
    assert torch.equal(y, before[1])
    assert x.grad is field
    assert torch.equal(field, torch.full_like(x, 7.0))
    assert y.grad is None
    assert (x.requires_grad, y.requires_grad) == (True, False)
    assert x.is_leaf


@every_ending
def test_an_input_at_zero_and_nan_stays_as_it_is(function):
    x = torch.tensor([0.0, -0.0, float("nan"), 1.0], dtype=torch.float64, requires_grad=True)
    bits = x.detach().view(torch.int64).clone()

    run(function, x)

    assert torch.equal(x.detach().view(torch.int64), bits)


def test_the_memory_around_a_view_stays_as_it_is():
    base = point(20).detach()
    before = base.clone()

    run(wrong, base[2:18:3].requires_grad_(), base[5])

    assert torch.equal(base, before)
    assert base._version == 0


def test_requires_grad_of_an_input_chosen_by_wrt_stays_as_it_is():
    x = point(4).detach()

    assert run(right, x, wrt=0).passed
    assert not x.requires_grad


def test_the_graph_of_an_input_that_is_no_leaf_stays_as_it_is():
    root = point(4)
    x = root.exp()
    function = x.grad_fn

    assert run(right, x).passed
    assert x.grad_fn is function
    x.sum().backward()
    assert root.grad is not None


def test_hooks_of_an_input_are_not_run():
    x, calls = point(4), []
    x.register_hook(lambda gradient: calls.append(gradient))

    run(wrong, x)

    assert calls == []


def test_containers_stay_as_they_are():
    inner = {"x": point(4)}
    outer = [inner, 3]

    def emptying(batch, number):
        return batch.pop("x").sin() * number

    assert check(emptying, outer, seed=0).passed
    assert list(inner) == ["x"]
    assert outer == [inner, 3]


# ── inputs that are not varied ───────────────────────────────────────────────────────────────────────────────────────


def test_a_fixed_input_that_is_written_to_stays_as_it_is():
    scratch = torch.zeros(4, dtype=torch.float64)

    def function(x, out):
        out.copy_(x.detach())
        return x.sin() + out.detach().clone()

    run(function, point(4), scratch)

    assert torch.equal(scratch, torch.zeros(4, dtype=torch.float64))
    assert scratch._version == 0


def test_a_fixed_input_that_is_written_to_without_changing_it_keeps_its_version():
    bounds = torch.tensor([0.5], dtype=torch.float64)

    def function(x, limit):
        return x.sin() * limit.clamp_(0.0, 1.0)

    assert run(function, point(4), bounds).passed
    assert bounds._version == 0


def test_a_fixed_input_that_is_written_to_on_later_calls_only_stays_as_it_is():
    counter, calls = torch.zeros(1, dtype=torch.float64), []

    def function(x, count):
        if calls:
            count += 1
        calls.append(None)
        return x.sin()

    run(function, point(4), counter)

    assert counter.item() == 0


def test_an_integer_input_that_is_written_to_stays_as_it_is():
    counter = torch.zeros(1, dtype=torch.int64)

    def function(x, count):
        count += 1
        return x.sin()

    assert run(function, point(4), counter).passed
    assert counter.item() == 0


def test_a_fixed_input_that_is_reshaped_in_place_keeps_its_shape():
    mask = torch.ones(4, dtype=torch.float64)

    def function(x, mask):
        return x.sin() * mask.unsqueeze_(0)

    run(function, point(4), mask)

    assert mask.shape == (4,)


def test_a_fixed_input_that_the_function_differentiates_keeps_requires_grad_and_grad():
    position, weight = point(4).detach(), point(4, seed=2)

    def forces(weight, position):
        position.requires_grad_()
        with torch.enable_grad():
            energy = (weight * position.sin()).sum()
        return torch.autograd.grad(energy, position, create_graph=True)[0]

    assert run(forces, weight, position).passed
    assert not position.requires_grad
    assert position.grad is None


def test_a_fixed_input_that_the_function_runs_backward_to_keeps_its_grad():
    position, weight = point(4), point(4, seed=2)

    def accumulating(weight, position):
        with torch.enable_grad():
            (position.sin()).sum().backward()
        return weight.sin()

    run(accumulating, weight, position, wrt=0)

    assert position.grad is None


# ── captured ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@every_precision
@every_ending
def test_the_grad_of_a_captured_parameter_stays_as_it_is(function, dtype):
    if function is torch.relu and dtype.is_complex:
        pytest.skip("relu is for real numbers")
    empty, full = (nn.Parameter(point(4, dtype=dtype).detach()) for _ in range(2))
    full.grad = torch.full_like(full, 3.0)

    run(lambda x: function(x * empty + full), point(4, dtype=dtype))

    assert empty.grad is None
    assert torch.equal(full.grad, torch.full_like(full, 3.0))


@every_ending
def test_the_grads_and_values_of_a_module_stay_as_they_are(function):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)

        def forward(self, x):
            return function(self.norm(self.layer(x)))

    module = Net().double().train()
    module.layer.weight.grad = torch.ones(4, 4, dtype=torch.float64)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    versions = {name: value._version for name, value in module.state_dict().items()}
    members = dict(module.named_parameters())

    run(module, point(3, 4))

    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert {name: value._version for name, value in module.state_dict().items()} == versions
    assert all(members[name] is value for name, value in module.named_parameters())
    assert module.training
    assert module.norm.training
    assert torch.equal(module.layer.weight.grad, torch.ones(4, 4, dtype=torch.float64))
    assert module.layer.bias.grad is None


# ── generators ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _states():
    return torch.get_rng_state().tolist(), random.getstate(), repr(np.random.get_state())


@every_precision
@every_ending
def test_the_global_generators_stay_as_they_are(function, dtype):
    if function is torch.relu and dtype.is_complex:
        pytest.skip("relu is for real numbers")
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)
    before = _states()

    run(function, point(4, dtype=dtype))

    assert _states() == before


@pytest.mark.parametrize(
    "draw",
    [lambda: torch.rand(()), random.random, np.random.rand, lambda: random.gauss(0, 1), np.random.randn],
    ids=["torch", "python", "numpy", "python gauss", "numpy normal"],
)
@pytest.mark.parametrize("gradient", ["right", "wrong"])
def test_numbers_that_only_the_backward_draws_are_given_back(draw, gradient):
    class Drawing(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.sin() if gradient == "wrong" else x.clone()

        @staticmethod
        def backward(ctx, incoming):
            draw()
            return incoming

    before = _states()

    run(Drawing.apply, point(4))

    assert _states() == before


@pytest.mark.parametrize("draw", [lambda: torch.rand(()), random.random, np.random.rand], ids=["torch", "python", "np"])
def test_numbers_that_only_later_calls_draw_are_given_back(draw):
    calls = []

    def function(x):
        if calls:
            draw()
        calls.append(None)
        return x.sin()

    before = _states()

    assert run(function, point(4)).passed
    assert _states() == before


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_dropout_passes_since_its_draws_are_held_fixed(dtype):
    torch.manual_seed(0)

    assert run(lambda x: nn.functional.dropout(x.sin(), 0.5), point(50, dtype=dtype)).passed


def test_a_module_with_dropout_in_train_mode_passes():
    module = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Tanh(), nn.Dropout(0.2)).double().train()

    assert run(module, point(5, 6)).passed


@pytest.mark.parametrize(
    "draw",
    [
        lambda x: torch.rand(x.shape, dtype=x.dtype),
        lambda x: random.random(),
        lambda x: float(np.random.rand()),
        lambda x: torch.from_numpy(np.random.standard_normal(x.shape)),
    ],
    ids=["torch", "python", "numpy", "numpy normal"],
)
def test_draws_from_any_global_generator_are_held_fixed(draw):
    assert run(lambda x: x.sin() * draw(x), point(4)).passed


def test_a_wrong_gradient_behind_random_draws_is_found():
    report = run(lambda x: nn.functional.dropout(doubled(x), 0.3), point(30))

    assert report.verdict is Verdict.FAIL
    assert "wrong" in report.reason


def test_draws_inside_the_backward_are_held_fixed():
    def checkpointed(x):
        return torch.utils.checkpoint.checkpoint(
            lambda x: nn.functional.dropout(x.sin(), 0.5), x, use_reentrant=False, preserve_rng_state=True
        )

    assert run(checkpointed, point(30)).passed


# ── modes ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@every_ending
@pytest.mark.parametrize("enabled", [True, False])
def test_the_grad_mode_stays_as_it_is(function, enabled):
    with torch.set_grad_enabled(enabled):
        run(function, point(4))
        assert torch.is_grad_enabled() is enabled


@every_precision
def test_a_check_inside_no_grad_gives_the_same_verdicts(dtype):
    with torch.no_grad():
        assert run(right, point(4, dtype=dtype)).passed
        assert run(wrong, point(4, dtype=dtype)).verdict is Verdict.FAIL


def test_a_check_inside_inference_mode_never_blames_a_right_gradient():
    x = point(4)
    with torch.inference_mode():
        try:
            verdict = run(right, x).verdict
        except InputError as error:
            assert "inference" in str(error)  # noqa: PT017  # a pass is as good
        else:
            assert verdict is Verdict.PASS
        assert torch.is_inference_mode_enabled()


@every_ending
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_default_dtype_stays_as_it_is(function, dtype):
    held = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        run(function, point(4, dtype=torch.float32))
        assert torch.get_default_dtype() is dtype
    finally:
        torch.set_default_dtype(held)


@pytest.mark.parametrize("default", [torch.float64, torch.float16])
@every_precision
def test_verdicts_do_not_depend_on_the_default_dtype(default, dtype):
    held = torch.get_default_dtype()
    torch.set_default_dtype(default)
    try:
        reports = run(right, point(4, dtype=dtype)), run(wrong, point(4, dtype=dtype))
    finally:
        torch.set_default_dtype(held)

    assert [report.verdict for report in reports] == [Verdict.PASS, Verdict.FAIL]


def test_verdicts_do_not_depend_on_the_default_device():
    x = point(4)
    with torch.device("meta"):
        reports = run(right, x), run(wrong, x)

    assert [report.verdict for report in reports] == [Verdict.PASS, Verdict.FAIL]


@every_ending
def test_the_number_of_threads_stays_as_it_is(function):
    before = torch.get_num_threads(), torch.get_num_interop_threads()

    run(function, point(4))

    assert (torch.get_num_threads(), torch.get_num_interop_threads()) == before


@every_ending
def test_anomaly_and_deterministic_modes_stay_as_they_are(function):
    before = torch.is_anomaly_enabled(), torch.are_deterministic_algorithms_enabled()

    run(function, point(4))

    assert (torch.is_anomaly_enabled(), torch.are_deterministic_algorithms_enabled()) == before


@pytest.mark.parametrize("function", [right, wrong])
def test_a_check_under_autocast_leaves_it_on(function):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        run(function, point(4))
        assert torch.is_autocast_enabled("cpu")


def test_a_failed_assertion_leaves_everything_as_it_is():
    x = point(4)
    assert "PASS" in str(run(right, x))  # what the first rendering of all does is looked at in tests/report
    before, states = x.detach().clone(), _states()

    with pytest.raises(GradientError):
        assert_gradients(drawing_and_wrong, x)

    assert torch.equal(x, before)
    assert x.grad is None
    assert x._version == 0
    assert _states() == states


def test_an_interrupt_inside_the_function_leaves_the_generators_as_they_are():
    calls = []

    def interrupted(x):
        torch.rand(3)
        random.random()
        calls.append(None)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return x.sin()

    before = _states()

    with pytest.raises(KeyboardInterrupt):
        check(interrupted, point(4), seed=0)
    assert _states() == before


# ── modules that a function can see ──────────────────────────────────────────────────────────────────────────────────


class Counting(torch.nn.Module):
    """A module that writes to one buffer, and puts another one in the place of a second."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("last", torch.zeros(3, dtype=torch.float64))
        self.register_buffer("nothing", None)

    def forward(self, x):
        self.calls += 1
        self.last = x.detach().clone()
        return x.sin()


@pytest.mark.parametrize("coverage", ["probe", "full"])
@pytest.mark.parametrize(
    "seen", [lambda module: lambda x: module(x), lambda module: module.forward], ids=["in a closure", "as self"]
)
def test_the_buffers_of_modules_that_a_function_can_see_stay_as_they_are(seen, coverage):
    module = Counting()
    calls, last = module.calls, module.last
    x = torch.ones(3, dtype=torch.float64, requires_grad=True)

    assert check(seen(module), (x,), coverage=coverage).passed

    assert module.calls is calls
    assert module.last is last
    assert calls.item() == 0
    assert last.tolist() == [0.0, 0.0, 0.0]


def test_the_running_statistics_of_a_captured_normalisation_stay_as_they_are():
    norm = torch.nn.BatchNorm1d(3).double()
    before = {name: tensor.clone() for name, tensor in norm.state_dict().items()}
    x = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()

    assert check(lambda x: norm(x), (x,), order=2).passed

    assert all(torch.equal(before[name], tensor) for name, tensor in norm.state_dict().items())
    assert norm.num_batches_tracked == 0


class Holder:
    """Not a module, and has one."""

    def __init__(self, module):
        self.module = module

    def run(self, x):
        return self.module(x)


REACHES = {
    "in a list": lambda module: (lambda held: lambda x: held[0](x))([module]),
    "in a dict": lambda module: (lambda held: lambda x: held["one"](x))({"one": module}),
    "as a default": lambda module: lambda x, module=module: module(x),
    "in a partial": lambda module: functools.partial(lambda module, x: module(x), module),
    "as an attribute of self": lambda module: Holder(module).run,
}


@pytest.mark.parametrize("reach", REACHES)
def test_the_buffers_of_modules_that_are_reached_in_other_ways_stay_as_they_are(reach):
    module = Counting()

    assert check(REACHES[reach](module), (torch.ones(3, dtype=torch.float64, requires_grad=True),)).passed

    assert module.calls.item() == 0


def test_a_lazy_module_that_a_function_can_see_is_no_obstacle():
    lazy = nn.LazyBatchNorm1d(dtype=torch.float64)

    assert check(lambda x: x.sin() if lazy.training else lazy(x), (point(4, 3),)).passed


def test_buffers_that_were_made_in_inference_mode_are_no_obstacle():
    with torch.inference_mode():
        norm = nn.BatchNorm1d(3).double().eval()
    norm.requires_grad_(False)

    assert check(lambda x: norm.running_mean.sum().item() + x.sin(), (point(4, 3),)).passed
