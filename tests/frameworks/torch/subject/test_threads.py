"""Checks in several threads: one module is left as it was, and a seed gives the same report whatever runs beside."""

from __future__ import annotations

import threading
import warnings
from dataclasses import replace

import pytest
import torch
from torch import nn

from gradproof import check
from gradproof.frameworks.torch.exclusion import Exclusion
from gradproof.frameworks.torch.internals import dual_level_is_open, is_transformed
from gradproof.frameworks.torch.subject.calling import is_dual
from support.points import point


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2)).double()


def at_once(*tasks):
    """Run tasks in threads of their own, and return what they return, or the errors that they raise."""
    answers = [None] * len(tasks)
    together = threading.Barrier(len(tasks))

    def run(number):
        together.wait()
        try:
            answers[number] = tasks[number]()
        except BaseException as error:
            answers[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(tasks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def evidence(report):
    """Return a report without its times."""
    assert not isinstance(report, BaseException), report
    return replace(report, cost=None)


@pytest.mark.parametrize("modes", ["reverse", "forward"])
def test_eight_threads_that_check_one_module_get_the_report_of_one_and_leave_it_as_it_was(modes):
    module, x = network(), point(5, 3)
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    numbers = {name: tensor.clone() for name, tensor in tensors.items()}

    def task():
        return check(module, x, modes=modes, seed=3)

    alone = evidence(task())

    assert all(evidence(report) == alone for report in at_once(*[task] * 8))

    after = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    assert all(after[name] is tensor for name, tensor in tensors.items())
    assert all(torch.equal(numbers[name], tensor) for name, tensor in after.items())


def test_functions_that_draw_get_the_report_that_each_gets_alone():
    own, x = torch.Generator().manual_seed(1), point(6)
    tasks = [
        lambda: check(lambda x: nn.functional.dropout(x.sin(), 0.5), x, seed=1),
        lambda: check(lambda x: x.sin() * torch.rand(x.shape, dtype=x.dtype), x, seed=1, modes="forward"),
        lambda: check(lambda x: x.sin() * torch.rand(x.shape, dtype=x.dtype, generator=own), x, seed=1),
        lambda: check(torch.exp, x, seed=1, modes=("reverse", "forward"), order=2),
    ]
    alone = [evidence(task()) for task in tasks]

    assert [evidence(report) for report in at_once(*tasks, *tasks)] == [*alone, *alone]


def test_a_level_of_dual_numbers_that_another_check_has_opened_is_not_taken_for_the_caller_s():
    seen = []

    def function(x):
        if is_dual(x) or is_transformed(x):  # under `forward_ad.dual_level` or `torch.func.jvp`
            seen.extend(at_once(dual_level_is_open))
        return x.sin()

    assert check(function, point(3), modes="forward", contracts=("batched-forward",)).passed
    assert len(seen) > 2
    assert not any(seen)


def test_the_filters_of_warnings_stay_as_they_are():
    x = point(6)
    check(torch.cumprod, (x, 0), modes=("reverse", "forward"))
    before = list(warnings.filters)

    at_once(*[lambda: check(torch.cumprod, (x, 0), modes=("reverse", "forward"))] * 4)

    assert warnings.filters == before


def test_checks_of_different_modules_run_side_by_side():
    meeting = threading.Barrier(2, timeout=30)

    class Meeting(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3, dtype=torch.float64))
            self.met = False

        def forward(self, x):
            if not self.met and x.requires_grad is False:  # beside the point
                self.met = True
                meeting.wait()
            return self.weight * x.sin()

    reports = at_once(*[lambda module=module: check(module, point(3)) for module in (Meeting(), Meeting())])

    assert all(evidence(report).passed for report in reports)


def test_a_thread_may_enter_an_exclusion_that_it_has_entered():
    shared = object()

    with Exclusion([shared]), Exclusion([shared, object()]):
        assert at_once(lambda: Exclusion.of_another_thread(shared)) == [True]
    assert at_once(lambda: Exclusion.of_another_thread(shared)) == [False]


def test_an_exclusion_that_was_left_behind_ends_with_its_object():
    shared = object()
    Exclusion([shared]).__enter__()

    with Exclusion([shared]):
        assert not Exclusion.of_another_thread(shared)
