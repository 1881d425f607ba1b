"""A side stream of a GPU gives the same values and gradients."""

from __future__ import annotations

import pytest
import torch

from gradproof import check
from support.functions import with_context
from support.kernels import saving
from support.points import point

on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def on_the_default_stream(function):
    """Run a kernel on the default stream, whatever the current one is, and let nobody wait."""

    def run(x):
        with torch.cuda.stream(torch.cuda.default_stream()):
            return function(x)

    return run


def test_it_says_nothing_on_a_cpu(asked, right):
    assert asked("streams", *right) == []


@on_a_gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_right_functions_keep_it(dtype):
    x = point(64, 33, dtype=dtype).detach().cuda().requires_grad_()

    for function in (torch.sin, lambda x: torch.softmax(x @ x.T, -1), saving(torch.sin, lambda g, x: g * x.cos())):
        assert check(function, x, contracts="kernel", seed=0).passed


@on_a_gpu
def test_a_forward_on_the_default_stream_breaks_it():
    x = point(5).detach().cuda().requires_grad_()
    report = check(saving(on_the_default_stream(torch.sin), lambda g, x: g * x.cos()), x, contracts="kernel", seed=0)

    (finding,) = report.findings
    assert finding.kind == "streams"
    assert "On a side stream the value of output differs" in finding.message
    assert "current_stream" in finding.hint


@on_a_gpu
def test_a_backward_on_the_default_stream_breaks_it():
    x = point(5).detach().cuda().requires_grad_()
    late = with_context(lambda ctx, x: 2 * x, lambda ctx, g: on_the_default_stream(lambda g: 2 * g)(g))
    report = check(late, x, contracts="kernel", seed=0)

    assert [finding.kind for finding in report.findings] == ["streams"]


@on_a_gpu
def test_fresh_memory_of_a_backward_is_poisoned_in_the_threads_of_the_gpu():
    def half(g, x):
        result = torch.empty_like(g)
        result[:3] = 2 * g[:3]
        return result

    x = point(5).detach().cuda().requires_grad_()
    report = check(saving(lambda x: 2 * x, half), x, contracts=("initialised",), seed=0)

    assert "initialised" in [finding.kind for finding in report.findings]


@on_a_gpu
def test_writes_past_an_allocation_are_found_on_a_gpu():
    memory = torch.zeros(16, device="cuda")

    def forward(x):
        x.detach().as_strided((x.numel() + 1,), (1,))[-1] = 7
        return 2 * x

    x = memory[4:8].requires_grad_()
    report = check(saving(forward, lambda g, x: 2 * g), x, contracts=("bounds",), seed=0)

    assert [finding.kind for finding in report.findings] == ["bounds"]
