"""What a backward draws comes after what the function drew: a mask that is drawn again is another one."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch.utils.checkpoint import checkpoint

from gradproof import Verdict, check, gradcheck
from support.marks import coverages
from support.points import ramp

DRAWS = {
    "torch": lambda like: 2.0 * (torch.rand_like(like) > 0.5),
    "NumPy": lambda like: torch.from_numpy(2.0 * (np.random.rand(*like.shape) > 0.5)).to(like.dtype),
    "Python": lambda like: torch.tensor([2.0 * (random.random() > 0.5) for _ in like], dtype=like.dtype),
}
drawing = pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)


def masking(draw, *, again: bool):
    class Masked(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            mask = draw(x)
            ctx.save_for_backward(mask)
            return x * mask

        @staticmethod
        def backward(ctx, gradient):
            return gradient * (draw(gradient) if again else ctx.saved_tensors[0])

    return Masked.apply


@drawing
@coverages
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_a_mask_that_the_backward_draws_again_is_found(draw, coverage, dtype):
    assert check(masking(draw, again=True), (ramp(20, dtype=dtype),), coverage=coverage).verdict is Verdict.FAIL


@drawing
@coverages
def test_a_mask_that_is_kept_passes(draw, coverage):
    assert check(masking(draw, again=False), (ramp(20),), coverage=coverage).verdict is Verdict.PASS


@pytest.mark.parametrize("kept", [True, False])
def test_a_checkpoint_passes_where_it_keeps_the_generators_state_and_fails_where_it_does_not(kept):
    def function(x):
        dropped = lambda y: torch.dropout(y.sin(), 0.5, True)  # noqa: E731  # as users write it
        return checkpoint(dropped, x, use_reentrant=False, preserve_rng_state=kept)

    assert gradcheck(function, (ramp(20),), raise_exception=False) is kept


@drawing
def test_the_generators_are_left_as_they_were(draw):
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()

    check(masking(draw, again=True), (ramp(20),))

    after = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]
