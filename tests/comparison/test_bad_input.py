"""What cannot be compared is refused in a sentence."""

from __future__ import annotations

import os

import pytest
import torch

from gradproof import InputError, Reason, Verdict, compare


def x(dtype=torch.float32):
    return torch.linspace(0.1, 1, 12, dtype=dtype).reshape(3, 4).requires_grad_()


@pytest.mark.parametrize(
    ("kernel", "reference", "words"),
    [
        (lambda x: x * 2, lambda x: (x * 2, x), r"returns 1 floating tensor \(output\), and .* 2 floating tensors"),
        (lambda x: x.sum(0), lambda x: x.sum(1), r"has shape \[4\], and of .* \[3\]"),
        (lambda x: x * 2, lambda x: (x * 2).half() if x.dtype == torch.float32 else x * 2, "less precise"),
        (lambda x: x * 2, lambda x: x.mul_(2) if not x.requires_grad else x.data.mul_(2) + 0 * x, "writes to"),
        (lambda x: x * 2, lambda x: x @ torch.ones(4, 4), "raised RuntimeError in double precision"),
        (lambda x: x @ x, lambda x: x * 2, "raised RuntimeError at the given inputs"),
        (lambda x: 3, lambda x: x * 2, "nothing to compare"),
        (lambda x: x.to_sparse(), lambda x: x, "layout"),
        ("kernel", lambda x: x, "cannot be called"),
        (lambda x: x, None, "cannot be called"),
    ],
)
def test_functions_that_do_not_fit_are_refused(kernel, reference, words):
    with pytest.raises(InputError, match=words):
        compare(kernel, reference, x())


@pytest.mark.parametrize("draws", [0, 1, 2.5, True, "many"])
def test_a_number_of_draws_that_is_none_is_refused(draws):
    with pytest.raises(InputError, match="draws="):
        compare(torch.sin, torch.sin, x(), draws=draws)


def test_inputs_on_different_devices_are_refused():
    with pytest.raises(InputError, match="different devices"):
        compare(torch.add, torch.add, (x(), torch.ones(3, 4, device="meta")))


def test_an_unknown_input_is_refused():
    with pytest.raises(InputError, match="names no tensor"):
        compare(torch.sin, torch.sin, x(), wrt="weight")


def test_an_unknown_contract_is_refused():
    with pytest.raises(InputError, match="contracts="):
        compare(torch.sin, torch.sin, x(), contracts=("fast",))


def test_a_complex_output_beside_a_real_one_is_named():
    def reference(x):
        return (x * 2).to(torch.complex128)

    with pytest.raises(InputError, match=r"output of .* is real, and of .*reference complex"):
        compare(lambda x: x * 2, reference, x())


def test_a_kernel_that_raises_in_its_own_precision_is_named_with_its_error():
    def kernel(x):
        raise NotImplementedError(f"no kernel for {x.dtype}")

    with pytest.raises(
        InputError, match=r"kernel raised NotImplementedError at the given inputs: no kernel for torch.f"
    ):
        compare(kernel, lambda x: x, x())


@pytest.mark.parametrize("writes", [lambda x: x.mul_(2), lambda x: x.data.mul_(2), lambda x: 1 / 0])
def test_nothing_of_the_callers_changes_where_a_comparison_is_refused(writes):
    given = x()
    given.grad = torch.ones_like(given)
    before, state = given.detach().clone(), torch.get_rng_state()

    with torch.no_grad(), pytest.raises(InputError):
        compare(lambda x: x * 2, lambda x: writes(x.detach()) + x, given)

    assert torch.equal(given, before)
    assert torch.equal(given.grad, torch.ones_like(given))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    "reference", [lambda x: x * torch.rand_like(x), lambda x: x * int.from_bytes(os.urandom(4), "big")]
)
def test_a_random_reference_leaves_a_comparison_open(reference):
    report = compare(lambda x: x * 0.5, reference, x(), seed=0)

    assert report.verdict is Verdict.INCONCLUSIVE
    assert report.reason is Reason.NONDETERMINISTIC


def test_random_numbers_that_kernel_and_reference_share_are_no_obstacle():
    def dropped(x):
        return torch.nn.functional.dropout(x, 0.3)

    assert compare(dropped, lambda x: dropped(x) * 1, x(), seed=0).passed


def test_a_reference_that_loses_most_digits_in_the_kernels_precision_judges_a_precise_kernel():
    def one_by_one(x):
        total = torch.zeros_like(x[:, 0])
        for column in range(x.shape[1]):
            total = total + x[:, column] ** 2
        return total

    given = torch.linspace(-2, 2, 12_000).reshape(20, 600).bfloat16().requires_grad_()

    assert compare(lambda x: x.float().square().sum(1).to(x.dtype), one_by_one, given, seed=0).passed


def test_entries_that_are_no_numbers_on_either_side_are_noted_and_prove_nothing():
    given = x().detach()
    given[0, 0] = torch.nan
    part = compare(torch.sin, torch.sin, given.requires_grad_(), seed=0)
    nothing = compare(torch.sin, torch.sin, torch.full((3,), torch.nan, requires_grad=True), seed=0)

    assert part.passed
    assert any("not finite" in note for note in part.notes)
    assert nothing.verdict is Verdict.INCONCLUSIVE
