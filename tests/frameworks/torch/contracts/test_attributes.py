"""A gradient is of its input's kind."""

from __future__ import annotations

import pytest
import torch

from gradproof import check
from support.functions import identity, with_context
from support.points import point


def notes(function, inputs):
    return " ".join(check(function, inputs, contracts=("attributes",), seed=0).notes)


def test_right_functions_keep_it(asked, right):
    assert asked("attributes", *right) == []


def test_a_backward_in_lower_precision_breaks_it(asked):
    (finding,) = asked("attributes", with_context(identity, lambda ctx, g: g.float()), point(3))

    assert "Ruled" in finding.message
    assert "torch.float32" in finding.message
    assert "digits are lost" in finding.message


def test_a_backward_in_lower_precision_in_the_midst_of_others_breaks_it(asked):
    inner = with_context(identity, lambda ctx, g: g.float())

    assert asked("attributes", lambda x: inner(x.sin()).cos(), point(3))


def test_a_complex_backward_in_lower_precision_breaks_it(asked):
    narrow = with_context(identity, lambda ctx, g: g.to(torch.complex64))

    assert asked("attributes", narrow, point(3, dtype=torch.complex128))


def test_higher_precision_is_worth_a_note(asked):
    wide = with_context(identity, lambda ctx, g: g.double())

    assert asked("attributes", wide, point(3, dtype=torch.float32)) == []
    assert "torch.float64" in notes(wide, point(3, dtype=torch.float32))


def test_a_size_that_autograd_sums_is_worth_a_note(asked):
    shifted = with_context(lambda ctx, x, b, scale: x + scale * b, lambda ctx, g: (g, 2.0 * g, None))
    inputs = (point(4, 3), point(3, seed=2))

    assert asked("attributes", lambda x, b: shifted(x, b, 2.0), inputs) == []
    assert "(4, 3)" in notes(lambda x, b: shifted(x, b, 2.0), inputs)


def test_an_argument_that_is_no_tensor_is_not_taken_for_one(asked):
    scaled = with_context(lambda ctx, factor, x: factor * x, lambda ctx, g: (None, 3.0 * g))

    assert asked("attributes", lambda x: scaled(3.0, x), point(3)) == []
    assert "autograd" not in notes(lambda x: scaled(3.0, x), point(3))


def test_a_sparse_gradient_of_a_dense_input_is_worth_a_note():
    looked_up = lambda w: torch.nn.functional.embedding(torch.tensor([1, 0]), w, sparse=True)  # noqa: E731  # a case

    assert "is COO, and the input strided" in notes(looked_up, point(4, 2))


@pytest.mark.parametrize("once", [True, False])
def test_a_function_that_is_differentiable_once_is_looked_into(asked, once):
    backward = lambda ctx, g: g.float()  # noqa: E731  # a case
    rule = torch.autograd.function.once_differentiable(backward) if once else backward

    assert asked("attributes", with_context(identity, rule), point(3))


def test_hooks_are_taken_off_again():
    function, calls, made = with_context(identity, lambda ctx, g: g), [], []

    def remembered(x):
        made.append(function(x))
        return made[-1]

    check(remembered, point(3), contracts=("attributes",), seed=0)
    made[0].grad_fn.register_prehook(lambda g: calls.append(g))
    torch.autograd.backward(made[0], torch.ones(3, dtype=torch.float64))

    assert len(calls) == 1


@pytest.mark.parametrize("layout", [torch.sparse_csr, torch.sparse_csc])
def test_a_gradient_of_another_sparse_layout_than_its_inputs_breaks_it(layout):
    a = torch.eye(3, dtype=torch.float64).to_sparse(layout=layout).requires_grad_()

    class AsCoo(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            return a.detach().values().clone()

        @staticmethod
        def backward(ctx, gradient):
            return torch.diag(gradient).to_sparse()

    (finding,) = check(AsCoo.apply, a, masked=True, contracts=("attributes",), seed=0).findings

    assert f"layout torch.sparse_coo, where the input has {layout}" in finding.message
    assert a.grad is None
