"""Right functions pass through the drop-in, as through torch's own check."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # torch's own convention
from torch import nn

import gradproof
from support.marks import both_speeds
from support.points import positive

pytestmark = pytest.mark.usefixtures("forward_mode_is_loaded")
COMPLEX = torch.complex128

RIGHT = {
    "sin": (torch.sin, positive(4)),
    "exp": (torch.exp, positive(4)),
    "log": (torch.log, positive(4)),
    "sqrt": (torch.sqrt, positive(4)),
    "tanh": (torch.tanh, positive(4)),
    "sigmoid": (torch.sigmoid, positive(4)),
    "erf": (torch.erf, positive(4)),
    "lgamma": (torch.lgamma, positive(4)),
    "pow": (torch.pow, (positive(4), positive(4, seed=2))),
    "atan2": (torch.atan2, (positive(4), positive(4, seed=2))),
    "relu": (torch.relu, positive(4)),
    "abs": (torch.abs, positive(4)),
    "max": (lambda x: x.max(), positive(4)),
    "sort": (lambda x: x.sort(), positive(4)),
    "topk": (lambda x: x.topk(2).values, positive(4)),
    "sum": (lambda x: x.sum(0), positive(3, 2)),
    "mean": (lambda x: x.mean(), positive(4)),
    "var": (lambda x: x.var(), positive(4)),
    "prod": (torch.prod, positive(4)),
    "cumsum": (lambda x: x.cumsum(0), positive(4)),
    "matmul": (torch.matmul, (positive(2, 3), positive(3, 2, seed=2))),
    "einsum": (lambda a, b: torch.einsum("ij,kj->ik", a, b), (positive(2, 3), positive(2, 3, seed=2))),
    "inv": (torch.linalg.inv, positive(3, 3)),
    "det": (torch.linalg.det, positive(3, 3)),
    "solve": (torch.linalg.solve, (positive(3, 3), positive(3, seed=2))),
    "svdvals": (torch.linalg.svdvals, positive(3, 2)),
    "conv1d": (F.conv1d, (positive(1, 2, 5), positive(2, 2, 3, seed=2))),
    "max pooling": (lambda x: F.max_pool1d(x, 2), positive(1, 1, 6)),
    "layer norm": (lambda x: F.layer_norm(x, (3,)), positive(2, 3)),
    "softmax": (lambda x: x.softmax(-1), positive(2, 3)),
    "cross entropy": (lambda x: F.cross_entropy(x, torch.tensor([0, 2])), positive(2, 3)),
    "embedding": (lambda w: F.embedding(torch.tensor([1, 0, 1]), w), positive(3, 2)),
    "index": (lambda x: x[[0, 0, 2]], positive(4)),
    "where": (lambda x: torch.where(x > 1, x**2, x.sin()), positive(4)),
    "a number": (lambda x: x**2, positive()),
    "empty": (lambda x: x.exp(), positive(0)),
    "two outputs": (lambda x: (x.sin(), x.sum()), positive(4)),
    "transposed": (lambda x: x.T.sin(), positive(2, 3)),
    "detached": (lambda x, y: x + y, (positive(4), positive(4, seed=2).detach())),
    "no influence": (lambda x, y: x.sin(), (positive(4), positive(4, seed=2))),
    "real of complex": (torch.abs, positive(3, dtype=COMPLEX)),
    "complex of real": (lambda x: torch.polar(x, x**2), positive(3)),
    "complex exp": (torch.exp, positive(3, dtype=COMPLEX)),
    "conj": (lambda z: z.conj() * z, positive(3, dtype=COMPLEX)),
    "angle": (torch.angle, positive(3, dtype=COMPLEX)),
    "complex matmul": (torch.matmul, (positive(2, 2, dtype=COMPLEX), positive(2, 2, seed=2, dtype=COMPLEX))),
    "fft": (torch.fft.fft, positive(4)),
    "irfft": (torch.fft.irfft, positive(3, dtype=COMPLEX)),
    "complex and real": (lambda x, z: x * z.exp(), (positive(3), positive(3, dtype=COMPLEX))),
}


@both_speeds
@pytest.mark.parametrize("name", RIGHT)
def test_right_functions_are_as_in_torch(name, fast_mode):
    function, inputs = RIGHT[name]

    assert torch.autograd.gradcheck(function, inputs, fast_mode=fast_mode) is True
    assert gradproof.gradcheck(function, inputs, fast_mode=fast_mode) is True


EVERY = dict.fromkeys(
    [
        "check_undefined_grad",
        "check_grad_dtypes",
        "check_batched_grad",
        "check_forward_ad",
        "check_batched_forward_grad",
    ],
    True,
)


@pytest.mark.parametrize("name", [name for name in RIGHT if name != "empty"])
def test_right_functions_are_true_with_every_flag(name):
    function, inputs = RIGHT[name]

    assert gradproof.gradcheck(function, inputs, **EVERY) is True


def test_a_module_is_true_with_every_flag():
    assert gradproof.gradcheck(nn.Sequential(nn.Linear(3, 2), nn.Tanh()).double(), positive(2, 3), **EVERY)


@both_speeds
def test_nothing_of_the_callers_is_changed_with_every_flag(fast_mode):
    x = positive(4)
    before, state, filters = x.detach().clone(), torch.get_rng_state(), list(warnings.filters)
    threads = torch.get_num_threads()

    gradproof.gradcheck(torch.sin, x, fast_mode=fast_mode, **EVERY)

    assert torch.equal(x, before)
    assert (x.grad, x._version, x.requires_grad) == (None, 0, True)
    assert torch.equal(torch.get_rng_state(), state)
    assert warnings.filters == filters
    assert torch.get_num_threads() == threads
