"""One training step, checked: right ones of every kind pass, and each kind of mistake is found."""

import random

import numpy
import pytest
import torch
from torch import nn

from gradproof import InputError, Reason, Verdict, check_step
from gradproof.sparse import Pattern, SparseLinear, apply_gradient_, matmul, optimizer, unpack
from support.sparse_matrices import LAYOUTS, sparse_matrix

OPTIMIZERS = {
    "SGD": {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01},
    "AdamW": {"lr": 0.01},
    "Adagrad": {"lr": 0.1},
    "RMSprop": {},
    "LBFGS": {"lr": 0.1, "max_iter": 2},
}


def kinds(report):
    return [finding.kind for finding in report.findings]


def regression(layout, dtype):
    a = sparse_matrix(layout, dtype)
    x, y = torch.randn(6, 7, dtype=dtype), torch.randn(4, 7, dtype=dtype)
    return a, lambda: (matmul(a, x) - y).abs().square().mean()


@pytest.mark.parametrize(
    ("name", "dtype"),
    [*((name, torch.float64) for name in OPTIMIZERS), ("AdamW", torch.float32), ("SGD", torch.complex128)],
)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_steps_on_sparse_leaves_are_verified(layout, name, dtype):
    a, loss = regression(layout, dtype)
    steps = optimizer(getattr(torch.optim, name), [a], **OPTIMIZERS[name])

    for _ in range(3):
        before = float(loss().detach())
        report = check_step(steps, loss, {"a": a})
        assert report.passed, report
        assert float(loss().detach()) < before


def network():
    return nn.Sequential(
        nn.Linear(10, 30), nn.ReLU(), nn.Dropout(0.5), nn.BatchNorm1d(30), SparseLinear(30, 3, density=0.3)
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_network_with_kinks_dropout_and_statistics_is_verified(dtype):
    net = network().to(dtype)
    x, y = torch.randn(64, 10, dtype=dtype), torch.randint(3, (64,))
    adam = torch.optim.Adam(net.parameters(), lr=0.01)

    for _ in range(10):
        report = check_step(adam, lambda: nn.functional.cross_entropy(net(x), y), net)
        assert report.passed, report
        assert all(reading.agrees for reading in report.readings)


def test_a_checked_step_leaves_everything_as_a_step_does():
    x, y = torch.randn(64, 10), torch.randint(3, (64,))
    torch.manual_seed(1)
    net = network()
    twin = network()
    twin.load_state_dict(net.state_dict())
    results = []
    for chosen, checked in ((net, True), (twin, False)):
        adam = torch.optim.Adam(chosen.parameters(), lr=0.01)
        torch.manual_seed(2)
        random.seed(2)
        numpy.random.seed(2)

        def loss(chosen=chosen):
            return nn.functional.cross_entropy(chosen(x), y) * (1 + 0 * random.random() + 0 * numpy.random.rand())

        if checked:
            check_step(adam, loss, chosen)
        else:
            loss().backward()
            adam.step()
        states = [tensor.clone() for tensor in chosen.state_dict().values()]
        results.append((states, torch.rand(3), random.random(), float(numpy.random.rand())))

    assert all(map(torch.equal, results[0][0], results[1][0]))
    assert results[0][1].equal(results[1][1])
    assert results[0][2:] == results[1][2:]


def wrongly_scaled(factor):
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            return factor * 2 * x * gradient

    return Square.apply


@pytest.mark.parametrize(("dtype", "factor"), [(torch.float64, 1 + 1e-6), (torch.float32, 1.01), (torch.float64, -1.0)])
def test_a_wrong_gradient_is_found_by_what_the_loss_does(dtype, factor):
    x = torch.randn(20, dtype=dtype, requires_grad=True)
    square = wrongly_scaled(factor)

    right = check_step(torch.optim.Adam([x], lr=0.01), lambda: wrongly_scaled(1.0)(x).sum(), [x])
    wrong = check_step(torch.optim.Adam([x], lr=0.01), lambda: square(x).sum(), [x])

    assert right.passed
    assert kinds(wrong)[0] == "prediction"
    assert ("loss" in kinds(wrong)) == (factor < 0)  # a step along a gradient that is turned around goes uphill
    assert "predicts a slope" in str(wrong)


def test_a_step_that_stores_other_entries_is_found():
    a, loss = regression("coo", torch.float64)

    def densify():
        a.data = torch.ones(4, 6, dtype=torch.float64).to_sparse().coalesce()

    assert kinds(check_step(densify, loss, [a])) == ["pattern"]


def test_an_index_written_to_is_found():
    a, loss = regression("csr", torch.float64)

    def shift():
        a.col_indices()[0] += 1

    assert kinds(check_step(shift, loss, [a])) == ["pattern"]


def test_a_dense_parameter_moves_on_its_pattern_alone():
    linear = nn.Linear(4, 3, bias=False).double()
    pattern = Pattern.from_mask(torch.rand(3, 4) < 0.5)
    x = torch.randn(5, 4, dtype=torch.float64)
    sgd = torch.optim.SGD(linear.parameters(), lr=0.1, weight_decay=0.1)

    def masked():
        linear.weight.grad *= pattern.mask()
        sgd.step()

    def loss():
        return linear(x).square().mean()

    decayed = check_step(masked, loss, linear, patterns={"weight": pattern})
    sgd.param_groups[0]["weight_decay"] = 0.0
    right = check_step(masked, loss, linear, patterns={"weight": pattern})

    assert kinds(decayed) == ["unstored"]
    index = decayed.findings[0].entries[0].index
    assert not bool(pattern.mask()[index])
    assert right.passed


@pytest.mark.parametrize("where", ["gradient", "step", "loss", "after"])
def test_what_is_not_finite_is_found(where):
    x = torch.ones(2, requires_grad=True)
    sgd = torch.optim.SGD([x], lr=float("inf") if where == "step" else 1.0)

    def loss():
        if where == "gradient":
            return (x - 1).abs().sqrt().sum()
        if where == "loss":
            return x.sum() / 0
        if where == "after":
            return (2 * x - 1).log().sum() * -1 + 3 * x.sum()
        return x.square().sum()

    assert set(kinds(check_step(sgd, loss, [x]))) == {"non-finite"}


def test_no_step_and_a_random_loss_prove_nothing():
    x = torch.ones(3, requires_grad=True)
    still = check_step(lambda: None, lambda: x.square().sum(), [x])
    numbers = iter(range(1, 100))
    moving = check_step(torch.optim.SGD([x], lr=0.1), lambda: x.square().sum() * next(numbers), [x])

    assert (still.verdict, moving.verdict) == (Verdict.INCONCLUSIVE, Verdict.INCONCLUSIVE)
    assert (still.reason, moving.reason) == (Reason.STEP_SIZE, Reason.NONDETERMINISTIC)
    assert "No entry moved" in still.message
    assert "random" in moving.message


def test_a_step_that_drowns_in_rounding_is_judged_by_longer_ones():
    x = torch.randn(20, requires_grad=True)
    tiny = {"lr": 1e-7}

    right = check_step(torch.optim.SGD([x], **tiny), lambda: wrongly_scaled(1.0)(x).sum(), [x])
    wrong = check_step(torch.optim.SGD([x], **tiny), lambda: wrongly_scaled(1.1)(x).sum(), [x])

    assert right.passed, right
    assert kinds(wrong) == ["prediction"]


def test_a_loss_that_refuses_values_far_from_the_step_is_not_evaluated_again():
    x = torch.full((3,), 2.0, requires_grad=True)

    def loss():
        if float(x.detach().abs().max()) > 2.001:
            raise ValueError("too far")
        return x.square().sum()

    assert check_step(torch.optim.SGD([x], lr=1e-6), loss, [x]).verdict is not Verdict.FAIL
    assert x.detach().max() < 2.0


def test_a_step_that_does_not_show_in_the_loss_proves_nothing():
    x = torch.full((3,), 1e-4, requires_grad=True)

    report = check_step(torch.optim.SGD([x], lr=1e-3), lambda: 1 + x.square().sum().tanh(), [x])

    assert report.verdict is Verdict.INCONCLUSIVE
    assert report.reason is Reason.NOISE
    assert "does not show" in report.message


def test_a_parameter_that_stays_behind_is_named():
    linear = nn.Linear(3, 2)

    report = check_step(
        torch.optim.SGD([linear.weight], lr=0.1), lambda: linear(torch.ones(5, 3)).square().mean(), linear
    )

    assert kinds(report) == ["left-out"]
    assert report.message == "bias has a gradient and did not move."


def test_a_parameter_whose_rate_is_zero_stays_behind_by_its_rule():
    linear = nn.Linear(3, 2)
    groups = [{"params": [linear.weight], "lr": 0.1}, {"params": [linear.bias], "lr": 0.0}]

    report = check_step(torch.optim.SGD(groups), lambda: linear(torch.ones(5, 3)).square().mean(), linear)

    assert report.passed, report
    assert "bias has a gradient and did not move." in report.notes


def test_momentum_that_carries_a_right_step_uphill_leaves_the_check_undecided():
    x = torch.ones(3, requires_grad=True)
    sgd = torch.optim.SGD([x], lr=0.1, momentum=0.9)
    for _ in range(3):
        sgd.zero_grad()
        (-x.square().sum()).backward()
        sgd.step()

    report = check_step(sgd, lambda: x.square().sum(), [x])

    assert (report.verdict, report.reason) == (Verdict.INCONCLUSIVE, Reason.STEP_SIZE)
    assert "carries over from earlier steps" in report.message


def test_a_step_uphill_fails_unless_it_is_expected():
    x = torch.ones(3, requires_grad=True)
    ascent = torch.optim.SGD([x], lr=0.01, maximize=True)

    report = check_step(ascent, lambda: x.square().sum(), [x])

    assert kinds(report) == ["loss"]
    assert "goes the wrong way" in report.message
    assert check_step(ascent, lambda: x.square().sum(), [x], expect="increase").passed
    assert check_step(ascent, lambda: x.square().sum(), [x], expect="any").passed


def test_any_function_may_be_the_step():
    a, loss = regression("bsc", torch.float64)

    assert check_step(lambda: apply_gradient_(a, a.grad, lr=0.1), loss, a).passed


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda x: check_step(lambda: None, lambda: x.sum(), [x.detach()]), "None of the parameters"),
        (lambda x: check_step(lambda: None, lambda: x.sum(), 3), "holds no parameters"),
        (lambda x: check_step(lambda: None, lambda: x, [x]), "not a real number"),
        (lambda x: check_step(lambda: None, lambda: 3.0, [x]), "not a real number"),
        (lambda x: check_step(lambda: None, x.sum, [x], expect="fall"), "expect='fall' is none of 'decrease'"),
        (lambda x: check_step(lambda: None, x.sum, [x], rule=3), "rule is a int, which cannot be called"),
        (
            lambda x: check_step(lambda: None, x.sum, [x], patterns={"y": Pattern.random((3, 3), 1.0)}),
            "no parameter 'y'",
        ),
        (
            lambda x: check_step(lambda: None, x.sum, {"x": x}, patterns={"x": Pattern.random((3, 3), 1.0)}),
            "does not fit x",
        ),
    ],
)
def test_bad_input_is_refused_before_a_step_is_taken(ask, words):
    x = torch.ones(3, requires_grad=True)

    with pytest.raises(InputError, match=words):
        ask(x)

    assert x.tolist() == [1, 1, 1]


def test_gradients_of_entries_are_those_that_a_step_goes_along():
    a = sparse_matrix("csr")

    loss = float(unpack(a)[0].detach().square().sum())
    report = check_step(optimizer(torch.optim.SGD, [a], lr=0.5), lambda: unpack(a)[0].square().sum(), [a])

    assert report.passed
    assert f"predicts {-2 * loss:+.3g}" in report.notes[0]


def test_a_check_keeps_no_pattern_of_indices_that_were_written_to_before_it():
    a = torch.eye(3, dtype=torch.float64).to_sparse_csr().requires_grad_()
    assert Pattern.of(a).coordinates.tolist() == [[0, 1, 2], [0, 1, 2]]
    a.detach().col_indices().copy_(torch.tensor([2, 1, 0]))

    def step():
        a.detach().values().sub_(a.grad.to_dense()[[0, 1, 2], [2, 1, 0]], alpha=0.1)

    assert check_step(step, lambda: a.to_dense().square().sum(), [a]).passed
    assert Pattern.of(a).coordinates.tolist() == [[0, 1, 2], [2, 1, 0]]
