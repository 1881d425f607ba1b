"""What happens around an optimizer's step: hooks, masks and scalers are no mistake, a second step or decay is one."""

import threading
from functools import partial

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from gradproof import Verdict, check_step


def setting(dtype=torch.float64):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)).to(dtype)
    x, y = torch.randn(32, 6, dtype=dtype), torch.randint(3, (32,))
    return net, lambda: nn.functional.cross_entropy(net(x), y)


def verdicts(step, loss, net, count=3):
    return [check_step(step, loss, net, seed=seed) for seed in range(count)]


def after(change, kind):
    """A step function: a right step, and then a change of the network."""
    net, loss = setting()
    optimizer = kind(net.parameters())

    def step():
        optimizer.step()
        with torch.no_grad():
            change(net)

    return check_step(step, loss, net, seed=0)


def test_hooks_that_clip_before_a_step_and_mask_after_it_are_no_mistake():
    net, loss = setting()
    adam, mask = AdamW(net.parameters(), lr=1e-3), torch.rand(16, 6) < 0.8
    with torch.no_grad():
        net[0].weight.mul_(mask)
    adam.register_step_pre_hook(lambda *_: (nn.utils.clip_grad_norm_(net.parameters(), 0.05), None)[1])
    adam.register_step_post_hook(lambda *_: net[0].weight.data.mul_(mask))
    hooks = list(adam._optimizer_step_pre_hooks), list(adam._optimizer_step_post_hooks)

    reports = verdicts(adam, loss, net)

    assert all(report.passed for report in reports), reports
    assert any("moved towards zero" in note for note in reports[0].notes)
    assert (list(adam._optimizer_step_pre_hooks), list(adam._optimizer_step_post_hooks)) == hooks


@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("kind", [partial(Adam, lr=1e-3), partial(SGD, lr=0.01, momentum=0.9)])
def test_a_fused_optimizer_may_unscale_its_gradients(kind, clip):
    net, loss = setting(torch.float32)
    optimizer, scaler = kind(net.parameters(), fused=True), torch.amp.GradScaler("cpu", init_scale=1024.0)

    def step():
        optimizer.zero_grad()
        scaler.scale(loss()).backward()
        if clip:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        scaler.step(optimizer)
        scaler.update()

    assert all(report.passed for report in verdicts(step, loss, net))


def test_a_fused_optimizer_that_stays_where_a_gradient_is_infinite_makes_no_mistake():
    net, loss = setting(torch.float32)
    optimizer, scaler = SGD(net.parameters(), lr=0.1, fused=True), torch.amp.GradScaler("cpu", init_scale=2.0**127)

    def step():
        optimizer.zero_grad()
        scaler.scale(4 * loss()).backward()
        scaler.step(optimizer)

    report = check_step(step, loss, net, seed=0)

    assert report.verdict is Verdict.INCONCLUSIVE
    assert "No entry moved" in report.message


@pytest.mark.parametrize("options", [{"fused": True}, {"foreach": False}])
def test_a_rate_in_single_precision_moves_double_parameters(options):
    net, loss = setting()
    adam = Adam(net.parameters(), lr=torch.tensor(1e-3), **options)
    schedule = torch.optim.lr_scheduler.ExponentialLR(adam, 0.5)

    def step():
        adam.step()
        schedule.step()  # writes to the tensor that is the rate

    assert all(report.passed for report in verdicts(step, loss, net))


@pytest.mark.filterwarnings("ignore")  # of the compiler's own
def test_a_compiled_optimizer_rounds_its_bias_corrections_to_single_precision():
    torch.compiler.reset()
    weight = torch.randn(20, dtype=torch.float64, requires_grad=True)
    adam = AdamW([weight], lr=1e-3, weight_decay=0.1)

    reports = verdicts(torch.compile(adam.step, backend="eager"), lambda: weight.square().sum(), [weight])

    torch.compiler.reset()
    assert all(report.passed for report in reports), reports
    assert not any("could not be applied" in note for report in reports for note in report.notes)


class Careful(SGD):
    """Clips its gradients and lowers its rate, for good, before it applies the rule."""

    def step(self, closure=None):
        for group in self.param_groups:
            group["lr"] *= 0.9
            nn.utils.clip_grad_norm_(group["params"], 0.1)
        return super().step(closure)


class Careless(SGD):
    """Turns its gradients around before it applies the rule."""

    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad.neg_()
        return super().step(closure)


def test_a_derived_class_may_clip_its_gradients_and_lower_its_rate():
    net, loss = setting()

    assert all(report.passed for report in verdicts(Careful(net.parameters(), lr=0.1), loss, net))


def test_a_derived_class_that_turns_its_gradients_around_fails():
    net, loss = setting()

    assert check_step(Careless(net.parameters(), lr=0.1), loss, net, seed=0).verdict is Verdict.FAIL


class Lookahead(Optimizer):
    """Every other step goes half of the way back."""

    def __init__(self, inner):
        self.inner, self.count = inner, 0
        super().__init__(inner.param_groups, {})
        self.slow = [parameter.detach().clone() for parameter in self.param_groups[0]["params"]]

    @torch.no_grad()
    def step(self, closure=None):
        self.inner.step()
        self.count += 1
        if self.count % 2 == 0:
            for slow, parameter in zip(self.slow, self.param_groups[0]["params"], strict=True):
                slow.lerp_(parameter, 0.5)
                parameter.copy_(slow)


def test_an_optimizer_that_wraps_another_never_fails():
    net, loss = setting()

    reports = verdicts(Lookahead(SGD(net.parameters(), lr=0.05)), loss, net)

    assert [report.verdict for report in reports] == [Verdict.PASS, Verdict.INCONCLUSIVE, Verdict.PASS]
    assert "which the optimizer's rule does not explain" in reports[1].message


@pytest.mark.parametrize(
    "change",
    [
        lambda net: [parameter.clamp_(-0.3, 0.3) for parameter in net.parameters()],
        lambda net: net[0].weight[:2].mul_(torch.eye(2, 6)),
        lambda net: net[0].weight.copy_(torch.renorm(net[0].weight, 2, 0, 0.5)),
        lambda net: net[2].weight.copy_(nn.functional.softshrink(net[2].weight, 1e-5)),
    ],
)
def test_bounds_and_masks_after_a_step_are_noted(change):
    report = after(change, partial(AdamW, lr=1e-3))

    assert report.verdict is not Verdict.FAIL, report
    assert any("moved towards zero beside the step of AdamW" in note for note in report.notes)


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        (lambda net: [p.sub_(p.grad, alpha=0.01) for p in net.parameters()], partial(SGD, lr=0.01), "-0.01 times its"),
        (lambda net: net[0].weight.add_(net[0].weight.grad, alpha=0.01), partial(SGD, lr=0.01), "0.01 times its"),
        (
            lambda net: [p.mul_(1 - 1e-4) for p in net.parameters()],
            partial(AdamW, lr=1e-3, weight_decay=0.1),
            "weight decay was made once more",
        ),
    ],
)
def test_what_is_done_a_second_time_or_undone_after_a_step_fails(change, kind, words):
    report = after(change, kind)

    assert "rule" in [finding.kind for finding in report.findings], report
    assert words in str(report)


@pytest.mark.parametrize(
    "change",
    [
        lambda net: net[0].weight.add_(0.01 * torch.randn(16, 6)),
        lambda net: [parameter.copy_(parameter.bfloat16()) for parameter in net.parameters()],
        lambda net: net[0].weight.div_(net[0].weight.norm(dim=1, keepdim=True)),
    ],
)
def test_a_change_that_no_rule_explains_is_not_verified(change):
    assert not after(change, partial(AdamW, lr=1e-3)).passed


def test_a_step_that_is_taken_twice_from_one_gradient_fails():
    net, loss = setting()
    sgd = SGD(net.parameters(), lr=0.01)

    report = check_step(lambda: [sgd.step(), sgd.step()], loss, net, seed=0)

    assert report.verdict is Verdict.FAIL
    assert "0.weight was stepped 2 times from one gradient, by SGD" in str(report)


def test_gradients_of_unit_length_are_no_mistake_and_doubled_ones_are():
    for factor, expected in ((1.0, Verdict.PASS), (2.0, Verdict.FAIL)):
        net, loss = setting()
        sgd = SGD(net.parameters(), lr=1e-3)

        def step(net=net, sgd=sgd, factor=factor):
            for parameter in net.parameters():
                parameter.grad.mul_(factor / parameter.grad.norm())
            sgd.step()

        assert check_step(step, loss, net, seed=0).verdict is expected


def test_a_gradient_of_few_entries_at_a_nearby_point_is_no_multiple():
    """Sharpness-aware steps use the gradient at a point uphill, which may be longer."""
    net, loss = setting()
    sgd = SGD(net.parameters(), lr=0.01)

    def step():
        moved = [0.05 * parameter.grad for parameter in net.parameters()]
        with torch.no_grad():
            for parameter, by in zip(net.parameters(), moved, strict=True):
                parameter.add_(by)
        sgd.zero_grad()
        loss().backward()
        with torch.no_grad():
            for parameter, by in zip(net.parameters(), moved, strict=True):
                parameter.sub_(by)
        sgd.step()

    assert check_step(step, loss, net, seed=0).verdict is not Verdict.FAIL


def test_a_gradient_whose_entries_are_in_another_order_is_found_although_it_points_downhill():
    weight = torch.linspace(1, 2, 12, dtype=torch.float64).reshape(3, 4).requires_grad_()
    sgd = SGD([weight], lr=0.01)

    def step():
        weight.grad = weight.grad.flip(0)
        sgd.step()

    report = check_step(step, lambda: weight.square().sum(), [weight], seed=0)

    assert [finding.kind for finding in report.findings] == ["gradient-used"]
    assert "its entries in another order" in report.message


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda p, number: -(0.5 if number == 0 else 0.05) * p.grad, "unequal rates: 0.weight by 0.5 times"),
        (lambda p, number: torch.randn(p.shape, generator=torch.Generator().manual_seed(number)).double() / 1e3, ""),
    ],
)
def test_a_step_by_hand_at_unequal_rates_or_in_any_direction_is_not_verified_without_its_rule(change, words):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 3)).double()
    x, y = torch.randn(32, 6, dtype=torch.float64), torch.randint(3, (32,))

    def step():
        with torch.no_grad():
            for number, parameter in enumerate(net.parameters()):
                parameter.add_(change(parameter, number))

    report = check_step(step, lambda: nn.functional.cross_entropy(net(x), y), net, seed=0)

    assert not report.passed
    assert words in str(report.message)


def test_optimizers_of_other_threads_step_beside_the_check():
    net, loss = setting()
    other, ended, mistakes = setting()[0], threading.Event(), []

    def train():
        adam = Adam(other.parameters(), lr=1e-3)
        for parameter in other.parameters():
            parameter.grad = torch.ones_like(parameter)
        while not ended.is_set():
            try:
                adam.step()
            except Exception as error:
                mistakes.append(error)
                return

    thread = threading.Thread(target=train)
    thread.start()
    reports = verdicts(Careless(net.parameters(), lr=0.01), loss, net, count=5)
    ended.set()
    thread.join()

    assert not mistakes
    assert all(report.verdict is Verdict.FAIL for report in reports)
