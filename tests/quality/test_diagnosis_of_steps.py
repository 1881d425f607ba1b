"""Mistakes in one step of a forward are named, with the line of the step, and confirmed at other points."""

import pytest
import torch

from gradproof import check
from gradproof.gallery.specimen import normal, planted, positive


def union(x):
    both = x[:, 0] * x[:, 1]
    return both / (x[:, 0] + x[:, 1] - both)


def union_held_constant(g, x):
    rest = x[:, 0] + x[:, 1] - x[:, 0] * x[:, 1]
    return torch.stack([g * x[:, 1] / rest, g * x[:, 0] / rest], 1)


def attention(q, k):
    return (q @ k.mT).softmax(-1) @ k.tanh()


def correction_left_out(g, q, k):
    weights = (q @ k.mT).softmax(-1)
    flow = (g @ k.tanh().mT) * weights
    wanted = torch.autograd.functional.vjp(attention, (q, k), g)[1][1]
    return flow @ k, wanted


def rotated(angle):
    return torch.stack([2 * angle.cos() - angle.sin().exp(), 2 * angle.sin() + angle.cos()])


def steps(x, w):
    for _ in range(3):
        x = x + 0.1 * (w @ x).tanh()
    return x


def one_step_forgotten(g, x, w):
    _, (dx, dw) = torch.autograd.functional.vjp(steps, (x, w), g)
    last = x + 0.1 * (w @ x).tanh()
    return dx, dw - torch.autograd.functional.vjp(lambda w: steps_after(last.detach() + 0 * w.sum(), x, w), w, g)[1]


def steps_after(_last, x, w):
    first = x + 0.1 * (w @ x).tanh()
    for _ in range(2):
        first = first + 0.1 * (w.detach() @ first).tanh()
    return first


CASES = [
    ("a union held constant", union, union_held_constant, [positive(6, 2)], "missing-term"),
    ("a correction left out", attention, correction_left_out, [normal(3, 4), normal(3, 4, seed=2)], "missing-term"),
    (
        "the sign of one term",
        rotated,
        lambda g, a: g[0] * (-2 * a.sin() - a.cos() * a.sin().exp()) + g[1] * (2 * a.cos() + a.sin()),
        [normal(5)],
        "wrong-term",
    ),
    ("the first of three steps", steps, one_step_forgotten, [normal(4, 2), normal(4, 4, seed=2)], "missing-term"),
    (
        "a matrix power, not reversed",
        lambda x: torch.tensor([[0.9, 0.3], [0.1, 0.8]], dtype=x.dtype) @ x.exp(),
        lambda g, x: (torch.tensor([[0.9, 0.3], [0.1, 0.8]], dtype=x.dtype) @ g) * x.exp(),
        [normal(2, 5)],
        "transposed",
    ),
    (
        "a running sum that runs forwards",
        lambda x: x.exp().cumsum(0).log(),
        lambda g, x: (g / x.exp().cumsum(0)).cumsum(0) * x.exp(),
        [normal(7)],
        "flipped",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=[title for title, *_ in CASES])
def test_a_mistake_in_one_step_is_named(case):
    title, value, gradient, inputs, name = case
    report = check(planted(title.title().replace(" ", ""), value, gradient), tuple(make() for make in inputs), seed=0)

    first = next(finding.diagnoses[0] for finding in report.findings if finding.diagnoses)

    assert first.name == name


def test_the_message_says_which_line_of_the_forward_it_is():
    report = check(planted("Union", union, union_held_constant), positive(6, 2)(), seed=0)

    (diagnosis, *_) = report.findings[0].diagnoses
    assert "`div` in line 12 of test_diagnosis_of_steps.py" in diagnosis.message


def test_a_factor_that_is_one_at_the_point_alone_is_not_taken_for_a_missing_one():
    ones = torch.ones(6, dtype=torch.float64).requires_grad_()
    wrong = planted("Ones", lambda x, y: x * y.exp(), lambda g, x, y: (2 * g * y * (y - 1).exp() * x, g * x * y.exp()))

    report = check(wrong, (ones, torch.ones(6, dtype=torch.float64)), seed=0)

    names = {name for each in report.findings[0].diagnoses for name in (each.name, *each.also)}
    assert "pass-through" not in names


def test_both_names_are_given_where_both_are_true():
    report = check(planted("Sum", lambda x: x + x.sin(), lambda g, x: g.clone()), normal(8)(), seed=0)

    (diagnosis, *_) = report.findings[0].diagnoses
    assert (diagnosis.name, diagnosis.also) == ("missing-term", ("pass-through",))
    assert "missing-term or pass-through: " in " ".join(str(report).split())


def test_random_draws_of_a_forward_are_constants_and_generators_stay_as_they_are():
    def noisy(x):
        return torch.dropout(x, 0.5, train=True).exp() * torch.rand_like(x) + x.sin()

    def without_the_sine(g, x):
        with torch.enable_grad():
            own = x.detach().requires_grad_()
            value = torch.dropout(own, 0.5, train=True).exp() * torch.rand_like(own)
        return torch.autograd.grad(value, own, g)[0]

    def function(x):
        torch.manual_seed(7)
        return planted("Noisy", noisy, without_the_sine_seeded)(x)

    def without_the_sine_seeded(g, x):
        torch.manual_seed(7)
        return without_the_sine(g, x)

    before = torch.get_rng_state()
    report = check(function, normal(8)(), seed=0)

    assert report.findings[0].diagnoses[0].name == "missing-term"
    assert torch.equal(torch.get_rng_state(), before)


def test_a_forward_that_calls_other_libraries_is_diagnosed_without_its_steps():
    def by_numpy(x):
        return torch.from_numpy(x.detach().numpy() ** 2)

    report = check(planted("ByNumpy", by_numpy, lambda g, x: g * x), normal(6)(), seed=0)

    assert report.findings[0].diagnoses[0].name == "factor"
