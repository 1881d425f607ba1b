"""Second derivatives and forward mode of torch's sparse functions, where torch has them."""

import pytest
import torch

import gradproof
from gradproof import Reason, Verdict
from support.points import point
from support.sparse_rules import POINTS, sparse_point, values_of, with_values


def cubed(name, factor):
    """The cubes of the stored values, with a second derivative that is wrong by a factor."""

    class Slope(torch.autograd.Function):
        @staticmethod
        def forward(ctx, gradient, tensor):
            ctx.save_for_backward(gradient, tensor)
            return with_values(tensor, values_of(gradient) * 3 * values_of(tensor) ** 2)

        @staticmethod
        def backward(ctx, twice):
            gradient, tensor = ctx.saved_tensors
            first = values_of(twice) * 3 * values_of(tensor) ** 2
            second = factor * values_of(twice) * values_of(gradient) * 6 * values_of(tensor)
            return with_values(tensor, first), with_values(tensor, second)

    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, tensor):
            ctx.save_for_backward(tensor)
            return with_values(tensor, values_of(tensor) ** 3)

        @staticmethod
        def backward(ctx, gradient):
            return Slope.apply(gradient, *ctx.saved_tensors)

    return lambda **options: gradproof.check(
        Cube.apply, sparse_point(name), masked=True, contracts=(), seed=0, **options
    )


@pytest.mark.parametrize("name", ["COO", "CSR", "CSC", "BSR", "BSC", "batched CSR"])
def test_second_derivatives_of_a_sparse_input_are_held_to_the_first(name):
    assert cubed(name, 1.0)(order=2).verdict is Verdict.PASS
    wrong = cubed(name, 1.1)(order=2)
    assert wrong.verdict is Verdict.FAIL
    assert wrong.findings[0].mode == "reverse over reverse"
    assert cubed(name, 1.1)(order=1).verdict is Verdict.PASS


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("name", ["COO", "CSR", "CSC"])
def test_second_derivatives_of_torch_s_products_pass(name, masked):
    other = point(4, 2).detach()

    assert gradproof.check(lambda s: torch.mm(s, other), sparse_point(name), order=2, masked=masked, seed=0).passed
    assert gradproof.check(torch.sum, sparse_point(name), order=2, masked=masked, seed=0).passed


@pytest.mark.parametrize("name", ["COO", "CSR"])
def test_where_torch_has_no_forward_mode_its_reason_is_a_note_beside_what_was_checked(name):
    report = gradproof.check(torch.sum, sparse_point(name), modes=["reverse", "forward"], seed=0)

    assert report.verdict is Verdict.PASS
    (message,) = report.unsupported
    assert message.startswith("Torch has no derivative (forward) of this.")
    assert message in report.notes


@pytest.mark.parametrize("name", ["COO", "CSR"])
def test_where_torch_has_no_forward_mode_its_flag_fails(name):
    assert gradproof.gradcheck(torch.sum, sparse_point(name))
    assert not gradproof.gradcheck(torch.sum, sparse_point(name), check_forward_ad=True, raise_exception=False)
    with pytest.raises(gradproof.GradcheckError, match=r"no derivative \(forward\)"):
        gradproof.gradcheck(torch.sum, sparse_point(name), check_forward_ad=True)


@pytest.mark.parametrize("name", POINTS)
def test_where_torch_has_no_derivative_at_all_its_reason_is_the_report_s(name):
    report = gradproof.check(torch.sin, sparse_point(name), masked=True, seed=0)

    assert report.verdict is Verdict.INCONCLUSIVE
    assert report.reason is Reason.UNSUPPORTED
    assert report.message.startswith("Torch has no derivative (reverse) of this.")
    assert "Error: " in report.message


class Pushed(torch.autograd.Function):
    """Twice the values, with both rules."""

    @staticmethod
    def forward(tensor):
        return with_values(tensor, 2 * values_of(tensor))

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2

    @staticmethod
    def jvp(ctx, tangent):
        return tangent * 2


@pytest.mark.parametrize("name", ["COO", "CSR"])
def test_that_torch_pushes_no_sparse_tangent_is_not_held_against_a_function_with_a_jvp(name):
    report = gradproof.check(Pushed.apply, sparse_point(name), masked=True, seed=0)

    assert report.verdict is Verdict.PASS
    assert any("forward" in note for note in report.notes)
