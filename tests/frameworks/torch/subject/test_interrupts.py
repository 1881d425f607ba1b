"""Interrupts at random moments of a check: everything of the caller's is as it was before."""

from __future__ import annotations

import random
import signal
import time
import warnings
from functools import partial

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad

from gradproof import check
from gradproof.frameworks.torch import exclusion
from support.endings import states
from support.points import point

INTERRUPTS = 40


class Interrupt(BaseException):
    """As `KeyboardInterrupt`, which would end the test run."""


class Network(nn.Module):
    """A module with draws, buffers, a module that torch does not list, and a gradient."""

    def __init__(self):
        super().__init__()
        self.inner, self.norm, self.drop = nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)
        self.hidden = [nn.BatchNorm1d(4).double()]
        self.double()
        self.inner.weight.grad = torch.ones_like(self.inner.weight)

    def forward(self, x):
        return self.drop(self.hidden[0](self.norm(self.inner(x)).tanh()))


def state_of(module):
    """Return everything that a check must leave as it is; tensors by identity and by value."""
    tensors = [*module.named_parameters(), *module.named_buffers(), *module.hidden[0].named_buffers()]
    return (
        [(name, id(tensor), tensor.data_ptr(), tensor.requires_grad, tensor.tolist()) for name, tensor in tensors],
        [(id(tensor.grad), None if tensor.grad is None else tensor.grad.tolist()) for tensor in module.parameters()],
        (torch.is_grad_enabled(), forward_ad._current_level, torch.get_num_threads(), torch.get_default_dtype()),
        (states(), list(warnings.filters), len(exclusion._users)),
    )


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs interval timers")
# Python drops an interrupt that arrives in a finalizer or in a callback of its garbage collector, with a notice.
@pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning")
def test_a_check_that_is_interrupted_at_any_moment_leaves_everything_as_it_was():
    def interrupt(*_):
        raise Interrupt

    def checked():
        check(module, x, seed=3, modes=("reverse", "forward"), contracts=("linear", "batched"))

    module, x, moments = Network(), point(4, 3), random.Random(1)
    checked()
    began = time.perf_counter()
    checked()
    duration, before = time.perf_counter() - began, state_of(module)
    handler = signal.signal(signal.SIGALRM, interrupt)
    interrupted = 0
    try:
        for _ in range(INTERRUPTS):
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, duration * (0.01 + moments.random()))
                    checked()
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except Interrupt:  # which may also arrive just before the timer is set to zero
                interrupted += 1
            assert state_of(module) == before
            with forward_ad.dual_level():
                pass  # raises if one is open
    finally:
        signal.signal(signal.SIGALRM, handler)
    assert interrupted >= INTERRUPTS // 3


@pytest.mark.parametrize(
    ("modes", "left"),
    [("reverse", torch._C._enter_dual_level), ("forward", partial(torch._C._exit_dual_level, level=0))],
    ids=["entering", "leaving"],
)
def test_an_interrupt_while_torch_counts_its_level_of_dual_numbers_leaves_none_open(modes, left):
    def interrupted(x):
        if (modes == "forward") == (forward_ad._current_level >= 0):
            left()
            raise Interrupt
        return x.sin()

    with pytest.raises(Interrupt):
        check(interrupted, point(3), modes=(modes,))

    assert forward_ad._current_level == -1
    assert check(torch.sin, point(3), modes=("forward",)).passed
