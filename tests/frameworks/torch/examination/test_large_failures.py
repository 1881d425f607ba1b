"""A failing check of a large function: the mistake keeps its name, and few evaluations are spent on it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from benchmarks.memory import allocated

from gradproof import Verdict, check
from gradproof.engine.diagnosis.measurements import BUDGET
from gradproof.engine.thresholds import LARGE
from gradproof.frameworks.torch.examination import derivative_judge
from gradproof.gallery.specimen import planted

SQUARE = (400, 400)
assert SQUARE[0] * SQUARE[1] > LARGE
WEIGHT = torch.randn(SQUARE, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
ROWS = torch.arange(400)[:, None]

MISTAKES = {
    "factor": (torch.sin, lambda g, x: 2 * g * x.cos()),
    "sign": (torch.sin, lambda g, x: -g * x.cos()),
    "detached": (torch.sin, lambda g, x: 0 * g),
    "shifted": (torch.sin, lambda g, x: (g * x.cos()).roll(1, -1)),
    "shifted question": (torch.sin, lambda g, x: g.roll(1, 0) * x.cos()),
    "transposed": (torch.sin, lambda g, x: (g * x.cos()).T.contiguous()),
    "transposed question": (torch.sin, lambda g, x: g.T * x.cos()),
    "transposed matrix": (lambda x: x @ WEIGHT, lambda g, x: g @ WEIGHT),
    "mask": (torch.sin, lambda g, x: g * x.cos() * (x > 0)),
    "block": (torch.sin, lambda g, x: g * x.cos() * (ROWS < 399)),
    "missing-sum": (lambda x: x.expand(2, *SQUARE).sin(), lambda g, x: g[0] * x.cos()),
    "doubled-sum": (torch.sin, lambda g, x: (g * x.cos()).sum(0, keepdim=True).expand(SQUARE)),
    "incoming-ignored": (torch.sin, lambda g, x: x.cos()),
    "missing-term": (lambda x: x + x.sin(), lambda g, x: g * x.cos()),
    "stale": (torch.sin, lambda g, x: g * (2 * x).cos()),
    "approximation": (torch.sin, lambda g, x: g * x.cos() * (1 + 0.01 * x.sin())),
    "none": (torch.sin, lambda g, x: (g * x.cos()).flip(0) * 1.3),
}


def point(*shape, seed=1):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def first(report):
    assert report.verdict is Verdict.FAIL
    return next((finding.diagnoses[0].name for finding in report.findings if finding.diagnoses), "none")


@pytest.fixture
def explaining(monkeypatch):
    """Count the evaluations that a diagnosis takes."""
    spent = []
    diagnosed = derivative_judge.diagnosed

    def counted(subject, *given):
        before = subject.tally.evaluations
        found = diagnosed(subject, *given)
        spent.append(subject.tally.evaluations - before)
        return found

    monkeypatch.setattr(derivative_judge, "diagnosed", counted)
    return spent


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_a_large_gradient_keeps_its_name(name, explaining):
    value, gradient = MISTAKES[name]

    report = check(planted("Planted", value, gradient), point(*SQUARE), seed=0, contracts=())

    assert first(report) == name.split()[0]
    assert sum(explaining) <= BUDGET
    assert report.maps == ()


@pytest.mark.parametrize("count", [1, 6, 20])
def test_a_large_function_of_few_inputs_is_diagnosed(count, explaining):
    matrix = torch.randn((LARGE + 1, count), dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    doubled = planted("Doubled", lambda x: (matrix @ x).sin(), lambda g, x: 2 * matrix.T @ (g * (matrix @ x).cos()))

    report = check(doubled, point(count), seed=0, contracts=())

    assert first(report) == "factor"
    assert sum(explaining) <= BUDGET


def test_one_wrong_entry_shows_no_pattern(explaining):
    where = np.unravel_index(98_765, SQUARE)

    def gradient(g, x):
        right = g * x.cos()
        right[where] *= 1.1
        return right

    report = check(planted("Planted", torch.sin, gradient), point(*SQUARE), seed=0, contracts=())

    (finding,) = report.findings
    assert [entry.index for entry in finding.entries] == [where]
    assert not finding.diagnoses
    assert sum(explaining) <= 12


class Pushed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor, rolled):
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)
        ctx.factor, ctx.rolled = factor, rolled
        return x.sin()

    @staticmethod
    def backward(ctx, incoming):
        return incoming * ctx.saved_tensors[0].cos(), None, None

    @staticmethod
    def jvp(ctx, tangent, *_):
        return (ctx.factor * tangent * ctx.saved_tensors[0].cos()).roll(ctx.rolled, 0)


@pytest.mark.parametrize(("factor", "rolled", "name"), [(2.0, 0, "factor"), (-1.0, 0, "sign"), (1.0, 1, "shifted")])
def test_a_wrong_jvp_of_a_large_function_is_diagnosed(factor, rolled, name):
    report = check(lambda x: Pushed.apply(x, factor, rolled), point(*SQUARE), seed=0, contracts=())

    assert first(report) == name
    assert {finding.mode for finding in report.findings} == {"forward"}
    assert report.cost.evaluations < 250


def test_a_failing_check_takes_a_few_times_the_memory_of_a_passing_one():
    def taken(factor, where):
        """Return the most memory that a check holds of a function whose gradient is wrong in some entries."""

        def gradient(g, x):
            right = g * x.cos()
            right.view(-1)[where] *= factor
            return right

        function, reports = planted("Planted", torch.sin, gradient), []
        most = allocated(lambda: reports.append(check(function, point(*SQUARE), seed=0, contracts=())))
        assert reports[0].passed is (factor == 1)
        return most

    passing = taken(1, slice(0))

    assert taken(1.1, 98_765) <= 8 * passing  # a table of the Jacobian's columns takes 20 times as much
    assert taken(1.1, slice(None)) <= 8 * passing
