"""The incoming gradients that are given to `gradgradcheck`."""

from __future__ import annotations

import pytest
import torch

import gradproof
from support.cubes import cube, two
from support.marks import both_speeds
from support.points import positive

pytestmark = pytest.mark.usefixtures("forward_mode_is_loaded")
BOTH = [torch.autograd.gradgradcheck, gradproof.gradgradcheck]
both_checks = pytest.mark.parametrize("gradgradcheck", BOTH, ids=["torch", "gradproof"])


def incoming(requires_grad=(True, True)):
    given = [positive(3, seed=5), positive(seed=6)]
    return tuple(tensor.detach().requires_grad_(needs) for tensor, needs in zip(given, requires_grad, strict=True))


@both_checks
@both_speeds
@pytest.mark.parametrize("needs", [(True, True), (True, False), (False, True), (False, False)])
def test_given_incoming_gradients_are_true(gradgradcheck, fast_mode, needs):
    assert gradgradcheck(two, (positive(3), positive(3, seed=2)), incoming(needs), fast_mode=fast_mode) is True


@both_checks
def test_a_lone_incoming_gradient_need_not_be_in_a_tuple(gradgradcheck):
    assert gradgradcheck(torch.sin, positive(3), positive(3, seed=4)) is True
    assert gradgradcheck(torch.sin, positive(3), grad_outputs=[positive(3, seed=4)]) is True


@both_checks
@both_speeds
def test_an_incoming_gradient_that_does_not_require_grad_is_not_checked(gradgradcheck, fast_mode):
    wrong, x, g = cube("wrong in the incoming gradient"), positive(3), positive(3, seed=4)

    assert gradgradcheck(wrong, x, g, fast_mode=fast_mode, raise_exception=False) is False
    assert gradgradcheck(wrong, x, g.detach(), fast_mode=fast_mode, raise_exception=False) is True


@both_speeds
def test_the_incoming_gradients_that_are_given_are_those_that_count(fast_mode):
    wrong = cube("twice as much")
    nothing = torch.zeros(3, dtype=torch.float64)

    assert gradproof.gradgradcheck(wrong, positive(3), nothing, fast_mode=fast_mode, raise_exception=False) is True


@both_speeds
@pytest.mark.parametrize("output", [lambda x: x.sin(), lambda x: x.exp().sum(), lambda x: (x[:, 0], x.sum(1))])
def test_incoming_gradients_with_gaps_are_true(output, fast_mode):
    assert gradproof.gradgradcheck(output, positive(3, 4), gen_non_contig_grad_outputs=True, fast_mode=fast_mode)


@both_checks
@both_speeds
def test_a_second_backward_that_is_wrong_of_an_incoming_gradient_with_gaps_is_found(gradgradcheck, fast_mode):
    options = {"fast_mode": fast_mode, "raise_exception": False}

    assert gradgradcheck(cube("wrong with gaps"), positive(3), **options) is True
    assert gradgradcheck(cube("wrong with gaps"), positive(3), gen_non_contig_grad_outputs=True, **options) is False


@both_checks
@pytest.mark.parametrize(
    "given",
    [
        lambda: (positive(4),),
        lambda: (positive(3, 1),),
        lambda: (),
    ],
    ids=["another size", "another shape", "none"],
)
def test_incoming_gradients_that_do_not_fit_are_refused(gradgradcheck, given):
    with pytest.raises((RuntimeError, ValueError, TypeError)):
        gradgradcheck(torch.sin, positive(3), given())


@pytest.mark.parametrize("given", [lambda: (positive(4),), lambda: (positive(3),)], ids=["another size", "too few"])
def test_what_does_not_fit_is_the_same_kind_of_error_as_in_torch(given):
    for gradgradcheck in BOTH:
        with pytest.raises(RuntimeError):
            gradgradcheck(two, (positive(3), positive(3, seed=2)), given())


@pytest.mark.parametrize("raise_exception", [True, False])
@pytest.mark.parametrize(("output", "given"), [("real", "complex"), ("complex", "real")])
def test_incoming_gradients_are_complex_where_the_outputs_are(output, given, raise_exception):
    kinds = {"real": torch.float64, "complex": torch.complex128}
    x, incoming = (torch.ones(3, dtype=kinds[kind], requires_grad=True) for kind in (output, given))

    with pytest.raises(RuntimeError, match=rf"grad_outputs\[0\] is {kinds[given]}, and its output {kinds[output]}"):
        gradproof.gradgradcheck(torch.sin, x, grad_outputs=incoming, raise_exception=raise_exception)
