"""A batch of incoming gradients gives what a loop gives."""

from __future__ import annotations

import pytest
import torch

from gradproof import Verdict, check, gradcheck
from support.functions import identity, with_context
from support.points import point


class Twice(torch.autograd.Function):
    """2x, with a wrong rule for batches."""

    @staticmethod
    def forward(x):
        return 2 * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        return 2 * g

    @staticmethod
    def vmap(info, in_dims, x):
        return 2 * x.flip(0), 0


def doubled(ctx, x):
    return 2 * x


def test_right_functions_keep_it_or_say_that_they_cannot_be_tested(right):
    report = check(*right, contracts=None, seed=5)

    assert not [finding for finding in report.findings if finding.kind == "batched"]


def test_right_functions_keep_it(asked):
    assert asked("batched", lambda x, y: (x @ y, x.sum()), (point(2, 3), point(3, 2, seed=2))) == []
    assert asked("batched", torch.sin, point()) == []
    assert asked("batched", lambda z: z.exp(), point(3, dtype=torch.complex128)) == []
    assert asked("batched", lambda x, y: x.sin(), (point(3), point(3, seed=2))) == []


def test_a_wrong_rule_for_batches_breaks_it(asked):
    (finding,) = asked("batched", with_context(doubled, lambda ctx, g: Twice.apply(g)), point(3))

    assert finding.argument == "x"
    assert "vmap" in finding.message


def test_a_backward_that_remembers_what_came_first_breaks_it(asked):
    kept = {}

    def backward(ctx, g):
        if torch._C._functorch.is_batchedtensor(g):
            return kept["first"]
        kept["first"] = g.clone()
        return g.clone()

    assert asked("batched", with_context(identity, backward), point(3))


def test_a_backward_that_cannot_be_batched_is_worth_a_note():
    report = check(with_context(identity, lambda ctx, g: g * (g.sum().item() * 0 + 1)), point(3), seed=0)

    assert report.verdict is Verdict.PASS
    assert any("Contract 'batched': " in note for note in report.notes)


def test_a_backward_that_cannot_be_batched_is_a_finding_where_it_was_requested(asked):
    (finding,) = asked("batched", with_context(identity, lambda ctx, g: g * (g.sum().item() * 0 + 1)), point(3))

    assert "torch.func.vmap" in finding.message


def _square_by(rule, *, backward=lambda ctx, g: 2 * g * ctx.saved_tensors[0]):
    """x², batched by a rule that may use the Function itself."""

    class Square(torch.autograd.Function):
        @staticmethod
        def forward(x):
            return x * x

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def vmap(info, in_dims, x):
            return rule(Square.apply, x, in_dims[0])

    Square.backward = staticmethod(backward)
    return Square.apply


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.complex128])
def test_a_vmap_rule_that_is_right_keeps_it(asked, dtype):
    def conjugated(ctx, g):
        return 2 * g * ctx.saved_tensors[0].conj()

    square = _square_by(lambda apply, x, dimension: (apply(x), dimension), backward=conjugated)

    assert asked("batched", square, point(3, dtype=dtype)) == []
    assert asked("batched", lambda x: square(x.sin()).sum(-1), point(2, 3, dtype=dtype)) == []


def test_a_vmap_rule_with_other_values_breaks_it(asked):
    (finding,) = asked("batched", _square_by(lambda apply, x, dimension: (3 * apply(x), dimension)), point(3))

    assert "output differs from that in a loop" in finding.message
    assert "vmap staticmethod of Square" in finding.hint


def test_a_vmap_rule_with_another_gradient_breaks_it(asked):
    square = _square_by(lambda apply, x, dimension: (apply(x).detach(), dimension))
    (finding,) = asked("batched", square, point(3))

    assert "gradient of torch.func.vmap of the function" in finding.message


def test_a_vmap_rule_with_another_dimension_breaks_it(asked):
    (finding,) = asked("batched", _square_by(lambda apply, x, dimension: (apply(x), 1)), point(3))

    assert "(2,) instead of (3,)" in finding.message


def test_a_vmap_rule_of_a_function_that_cannot_be_batched_as_a_whole_keeps_it(asked):
    square = _square_by(lambda apply, x, dimension: (apply(x), dimension))

    assert asked("batched", lambda x: square(x) * float(x.detach().sum()), point(3)) == []


def copied_to_one_place(x, y):
    """An index without a dimension, for which torch.func.vmap and is_grads_batched=True have rules of their own."""
    return x.index_copy(0, torch.tensor(2), y)


def test_a_backward_that_torch_batches_in_one_of_its_two_ways_keeps_it(asked):
    tensors = point(4), point(1, seed=2)
    gradient = torch.autograd.grad(copied_to_one_place(*tensors), tensors, torch.eye(4).double(), is_grads_batched=True)
    assert gradient[1].flatten().tolist() == [0, 0, 1, 0]

    assert asked("batched", copied_to_one_place, tensors) == []
    assert gradcheck(copied_to_one_place, tensors, check_batched_grad=True)


def test_a_wrong_batch_breaks_it_in_the_second_way_too(asked):
    refused = []

    def backward(ctx, g):
        if torch._C._functorch.is_batchedtensor(g):
            refused.append(g)
            raise RuntimeError("no rule for batches")
        return 2 * g if refused and refused.pop() is not None else g.clone()

    (finding,) = asked("batched", with_context(identity, backward), point(3))

    assert finding.message.startswith("With is_grads_batched=True the gradient with respect to x differs")
