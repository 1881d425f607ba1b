"""Values and gradients do not depend on where in memory tensors begin."""

from __future__ import annotations

import pytest
import torch

from gradproof import check
from support.functions import identity, with_context
from support.kernels import saving
from support.points import point


def from_the_storage(x):
    """The entries that a kernel sees which starts at the storage and not at the tensor."""
    return x.as_strided(x.shape, x.stride(), 0)


def test_right_functions_keep_it(asked, right):
    assert asked("alignment", *right) == []


@pytest.mark.parametrize("shape", [(5,), (3, 4)])
def test_a_forward_that_starts_at_the_storage_breaks_it(asked, shape):
    (finding,) = asked(
        "alignment", saving(lambda x: from_the_storage(x).sin(), lambda g, x: g * x.cos()), point(*shape)
    )

    assert "storage offset of one entry the value of output differs" in finding.message
    assert "data_ptr()" in finding.hint


def test_a_backward_that_starts_at_the_storage_of_what_it_saved_breaks_it(asked):
    (finding,) = asked("alignment", saving(torch.sin, lambda g, x: g * from_the_storage(x).cos()), point(5))

    assert finding.argument == "x"


def test_a_backward_that_starts_at_the_storage_of_what_comes_in_breaks_it(asked):
    assert asked("alignment", with_context(identity, lambda ctx, g: from_the_storage(g).clone()), point(5))


def test_a_backward_that_raises_breaks_it(asked):
    def backward(ctx, g):
        if g.storage_offset():
            raise ValueError("misaligned")
        return g.clone()

    (finding,) = asked("alignment", with_context(identity, backward), point(5))

    assert "the backward raises ValueError: misaligned" in finding.message


def test_a_rule_of_torch_that_raises_is_a_note_in_the_group():
    report = check(torch.view_as_real, point(4, dtype=torch.complex128), contracts="kernel", seed=0)

    assert report.passed
    assert any("All rules involved are torch's own" in note for note in report.notes)


def test_a_forward_that_refuses_misaligned_inputs_is_noted():
    def refusing(x):
        if x.storage_offset():
            raise ValueError("pass aligned tensors")
        return x.sin()

    report = check(refusing, point(5), contracts=("alignment",), seed=0)

    assert report.passed
    assert any("pass aligned tensors" in note for note in report.notes)
