"""What a check holds is freed when it ends, without waiting for the garbage collector."""

import gc

import pytest
import torch
from torch import nn

from gradproof import check
from support.functions import rule

KINDS = (torch.Tensor, nn.Parameter)  # not the FakeTensors of other tests' compilations, which torch frees late


def wrong(x):
    return rule(lambda x: x.sin(), lambda g, x: 2 * g * x.cos())(x)


@pytest.mark.parametrize("function", [torch.tanh, nn.Tanh(), wrong], ids=["a function", "a module", "a wrong rule"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_no_tensor_is_left_in_a_cycle(function, dtype):
    x = torch.linspace(0.1, 1, 50, dtype=dtype, requires_grad=True)
    check(function, x, seed=0)
    gc.collect()
    gc.disable()
    try:
        check(function, x, seed=0)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = [each for each in gc.garbage if type(each) in KINDS]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()

    assert not left
