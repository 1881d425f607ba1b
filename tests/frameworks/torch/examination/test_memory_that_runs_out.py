"""Memory that runs out, in the function, in its backward or in the check: an error of its own, and nothing changed."""

from __future__ import annotations

import pickle

import pytest
import torch

import gradproof
from gradproof import OutOfMemoryError, Verdict, check, compare
from gradproof.engine.subject import DerivativeError
from gradproof.frameworks.torch.examination import derivative_judge, examination
from gradproof.frameworks.torch.subject import batching
from support.points import point

ERRORS = {
    "Python's": MemoryError("too much"),
    "torch's on a processor": RuntimeError(
        "[enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to "
        "allocate 9007199254740992 bytes. Error code 12 (Cannot allocate memory)"
    ),
    "torch's on a GPU": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB."),
}


def running_out(error, *, after=0, backward=False):
    """A sine whose memory runs out at a later call, or in its backward."""
    calls = []

    class Sine(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            calls.append(x)
            if not backward and len(calls) > after:
                raise error
            return x.sin()

        @staticmethod
        def backward(ctx, gradient):
            if backward:
                raise error
            return gradient * ctx.saved_tensors[0].cos()

    return Sine.apply


@pytest.mark.parametrize("coverage", ["probe", "full"])
@pytest.mark.parametrize("where", [{}, {"after": 2}, {"backward": True}], ids=["at first", "beside", "backward"])
@pytest.mark.parametrize("error", ERRORS)
def test_memory_that_runs_out_is_an_error_of_its_own(error, where, coverage):
    x = point(3)
    before, state = x.detach().clone(), torch.get_rng_state()

    with pytest.raises(OutOfMemoryError, match="Memory ran out") as raised:
        check(running_out(ERRORS[error], **where), x, coverage=coverage, seed=1)

    assert raised.value.__cause__ is ERRORS[error]
    assert torch.equal(x, before)
    assert x.grad is None
    assert torch.equal(torch.get_rng_state(), state)


def test_an_allocation_that_torch_refuses_is_recognised():
    with pytest.raises(OutOfMemoryError, match="DefaultCPUAllocator"):
        check(lambda x: x * torch.empty(1 << 55).sum(), point(3), seed=1)


def test_for_large_inputs_the_message_says_how_many_entries_fit():
    x = torch.zeros(1).expand(1 << 24).requires_grad_()
    with pytest.raises(OutOfMemoryError, match=r"for each of the 16,777,216 input entries, 2 GB, .* cpu has \d+ GB"):
        check(running_out(MemoryError()), x, seed=1)


def test_a_module_and_its_buffers_are_as_before():
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(3, dtype=torch.float64))
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls += 1
            if not torch.is_grad_enabled():
                raise MemoryError
            return x * self.weight

    layer = Layer()
    weight = layer.weight
    with pytest.raises(OutOfMemoryError):
        check(layer, point(3), seed=1)

    assert layer.weight is weight
    assert layer.calls == 0


def test_a_comparison_says_so_too():
    with pytest.raises(OutOfMemoryError):
        compare(running_out(MemoryError()), torch.sin, point(3), seed=1)


def test_a_batch_that_does_not_fit_into_memory_is_taken_apart(monkeypatch):
    def refused(*_):
        raise MemoryError

    monkeypatch.setattr(batching, "_vmapped", refused)

    assert check(lambda x: x @ x, point(30, 30), coverage="full", seed=1).passed


def doubled(x):
    return (x + x.detach()).sin()


@pytest.mark.parametrize("extra", ["diagnosed", "heat_map", "with_culprits"])
@pytest.mark.parametrize("error", [ValueError("an odd question"), MemoryError()], ids=["ValueError", "MemoryError"])
def test_an_extra_that_raises_does_not_cost_the_verdict(extra, error, monkeypatch):
    def raising(*_, **__):
        raise error

    room = examination if extra == "with_culprits" else derivative_judge
    monkeypatch.setattr(room, extra, raising)
    report = check(doubled, point(3), seed=1)

    assert report.verdict is Verdict.FAIL
    assert report.findings[0].entries
    assert any("was left out, since it raised" in note for note in report.notes)


def test_a_localisation_that_raises_does_not_cost_the_verdict(monkeypatch):
    def raising(*_, **__):
        raise ValueError("no such coordinate")

    monkeypatch.setattr("gradproof.engine.judging.localise", raising)
    report = check(doubled, point(3), seed=1)

    assert report.verdict is Verdict.FAIL
    assert "spread too thinly" in report.message
    assert any("The search for the wrong entries was left out" in note for note in report.notes)


def test_a_contract_for_which_memory_does_not_suffice_is_left_out(monkeypatch):
    def refused(*_, **__):
        raise MemoryError

    monkeypatch.setattr("torch.func.vmap", refused)
    report = check(torch.sin, point(3), contracts="batched", seed=1)

    assert report.passed
    assert any("Contract 'batched' was left out" in note for note in report.notes)


def test_a_derivative_that_raises_is_evidence_and_no_extra():
    with pytest.raises(DerivativeError), derivative_judge.extra("The diagnosis", []):
        raise DerivativeError("no")


def test_the_error_of_an_assertion_can_be_pickled():
    with pytest.raises(gradproof.GradientError) as raised:
        gradproof.assert_gradients(doubled, point(3), seed=1)
    again = pickle.loads(pickle.dumps(raised.value))

    assert again.report == raised.value.report
    assert str(again) == str(raised.value)
