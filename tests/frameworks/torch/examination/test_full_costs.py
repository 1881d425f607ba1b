"""What full coverage costs, and that it leaves nothing behind."""

from __future__ import annotations

import torch
from torch import nn

from gradproof import Verdict
from support.checks import full
from support.functions import rule
from support.marks import both_modes
from support.points import point


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
