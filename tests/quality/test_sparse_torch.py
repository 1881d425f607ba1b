"""What torch's own sparse functions give: the right ones pass, and its known mistakes are found."""

import pytest
import torch

import gradproof
from gradproof import Verdict
from support.findings import entries_of
from support.points import point
from support.sparse_rules import POINTS, coordinates, sparse_point, values_of

MATRICES = ["COO", "uncoalesced COO", "CSR", "CSC"]


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("coverage", ["probe", "full"])
@pytest.mark.parametrize("name", POINTS)
def test_a_sum_passes_under_both_semantics(name, coverage, masked):
    report = gradproof.check(torch.sum, sparse_point(name), masked=masked, coverage=coverage, seed=0)

    assert report.verdict is Verdict.PASS
    noted = any("is read only where something is stored (masked=True)" in note for note in report.notes)
    assert noted is masked


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("coverage", ["probe", "full"])
@pytest.mark.parametrize("name", MATRICES)
def test_a_product_passes_under_both_semantics(name, coverage, masked):
    report = gradproof.check(torch.mm, (sparse_point(name), point(4, 2)), masked=masked, coverage=coverage, seed=0)

    assert report.verdict is Verdict.PASS


@pytest.mark.parametrize("coverage", ["probe", "full"])
@pytest.mark.parametrize("name", ["COO", "uncoalesced COO", "CSR"])
def test_the_masked_product_passes_as_masked_and_fails_as_a_product(name, coverage):
    inputs, options = (sparse_point(name), point(4, 2)), {"coverage": coverage, "seed": 0}
    passing = gradproof.check(torch.sparse.mm, inputs, masked=True, **options)
    failing = gradproof.check(torch.sparse.mm, inputs, masked=False, **options)

    assert passing.verdict is Verdict.PASS
    assert failing.verdict is Verdict.FAIL
    assert [finding.argument for finding in failing.findings] == ["sparse"]
    assert all(entry.stored is False for entry in entries_of(failing))


@pytest.mark.parametrize("coverage", ["probe", "full"])
def test_to_dense_is_distinguished_from_its_masked_twin(coverage):
    verdicts = {
        (masked, twin): gradproof.check(
            lambda s, twin=twin: s.to_dense(masked_grad=twin),
            sparse_point("CSR"),
            masked=masked,
            coverage=coverage,
            seed=0,
        ).verdict
        for masked in (True, False)
        for twin in (True, False)
    }

    assert verdicts == {
        (True, True): Verdict.PASS,
        (True, False): Verdict.PASS,
        (False, True): Verdict.FAIL,
        (False, False): Verdict.PASS,
    }


ROW = coordinates([[0, 0], [0, 2]], [2.0, 3.0], (1, 4), is_coalesced=True)


def stretched(factor, *, masked_grad):
    return lambda s: (s * factor).to_dense(masked_grad=masked_grad)


def test_torch_s_product_with_a_sparse_row_that_is_stretched_forgets_all_rows_but_the_first():
    factor = point(3, 4).detach()

    assert not torch.equal((ROW * factor).to_dense(), ROW.to_dense() * factor)


@pytest.mark.parametrize("coverage", ["probe", "full"])
@pytest.mark.parametrize("masked", [True, False])
def test_the_gradient_of_a_stretched_sparse_row_is_wrong_in_the_rows_that_are_forgotten(masked, coverage):
    function = stretched(point(3, 4).detach(), masked_grad=False)
    report = gradproof.check(function, ROW.clone().requires_grad_(), masked=masked, coverage=coverage, seed=0)

    assert report.verdict is Verdict.FAIL
    assert {(0, 0), (0, 2)} <= {entry.index for entry in entries_of(report)}
    rows = {place.index[0] for entry in entries_of(report) for place in (entry.output, *entry.also) if place}
    assert rows == {1, 2}


def test_torch_s_masked_check_passes_the_masked_gradient_of_a_stretched_row_and_full_semantics_do_not():
    function = stretched(point(3, 4).detach(), masked_grad=True)

    assert torch.autograd.gradcheck(function, (ROW.clone().requires_grad_(),), masked=True)
    report = gradproof.check(function, ROW.clone().requires_grad_(), masked=False, seed=0)
    assert report.verdict is Verdict.FAIL
    assert all(entry.stored is False for entry in entries_of(report))


@pytest.mark.parametrize("masked", [True, False])
def test_the_malformed_gradient_of_a_csr_relu_is_a_finding_and_the_process_lives(masked):
    report = gradproof.check(
        lambda s: torch.relu(s).to_dense(masked_grad=False), sparse_point("CSR"), masked=masked, coverage="full", seed=0
    )

    assert report.verdict is Verdict.FAIL
    assert report.findings[0].kind == "malformed-gradient"
    assert "a CSR tensor is malformed: it has indices for" in report.findings[0].message


def test_the_malformed_gradient_of_a_csr_relu_is_said_once():
    report = gradproof.check(
        lambda s: torch.relu(s).to_dense(masked_grad=False), sparse_point("CSR"), coverage="full", seed=0
    )

    assert [finding.kind for finding in report.findings] == ["malformed-gradient"]


class Malformed(torch.autograd.Function):
    """The identity, whose gradient counts more entries than it stores."""

    @staticmethod
    def forward(ctx, tensor):
        return values_of(tensor).clone()

    @staticmethod
    def backward(ctx, gradient):
        return torch.sparse_csr_tensor(
            torch.tensor([0, 2, 2, 3, 5]), torch.tensor([1, 3, 0, 3]), gradient, (4, 4), check_invariants=False
        )


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("coverage", ["probe", "full"])
def test_a_malformed_gradient_of_one_s_own_is_a_finding_and_the_process_lives(coverage, masked):
    report = gradproof.check(Malformed.apply, sparse_point("CSR"), masked=masked, coverage=coverage, seed=0)

    assert report.verdict is Verdict.FAIL
    assert report.findings[0].kind == "malformed-gradient"
    assert "its CSR indices end at 5, and 4 entries are stored" in report.findings[0].message


@pytest.mark.parametrize("coverage", ["probe", "full"])
def test_of_several_gradients_the_malformed_one_is_named(coverage):
    def function(first, second):
        return first.to_dense().sum() + Malformed.apply(second)

    report = gradproof.check(
        function, (sparse_point("CSR"), sparse_point("CSR")), masked=True, coverage=coverage, seed=0
    )

    assert [finding.argument for finding in report.findings] == ["second"]
    assert "for second, a CSR tensor is malformed" in report.findings[0].message


@pytest.mark.parametrize("coverage", ["probe", "full"])
@pytest.mark.parametrize("converted", [True, False])
def test_a_sampled_product_passes_with_respect_to_its_dense_arguments(converted, coverage):
    pattern = POINTS["CSR"][0]

    def function(one, other):
        found = torch.sparse.sampled_addmm(pattern, one, other)
        return found.to_dense() if converted else found

    report = gradproof.check(function, (point(4, 2), point(2, 4, seed=2)), coverage=coverage, seed=0)

    assert report.verdict is Verdict.PASS


@pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled")  # torch's check's own
def test_torch_s_check_calls_the_sampled_product_wrong_where_its_pattern_is_passed_along():
    inputs = (POINTS["CSR"][0], point(4, 2), point(2, 4, seed=2).detach())

    def function(pattern, one, other):
        return torch.sparse.sampled_addmm(pattern, one, other).to_dense(masked_grad=False)

    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        torch.autograd.gradcheck(function, inputs)
    assert gradproof.gradcheck(function, inputs)
    assert gradproof.check(function, inputs, seed=0).verdict is Verdict.PASS


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("name", ["COO", "CSR"])
def test_two_sparse_gradients_are_added(name, masked):
    other = point(4, 2).detach()
    report = gradproof.check(
        lambda s: (s.to_dense(masked_grad=masked) @ other) * torch.mm(s, other).sum(),
        sparse_point(name),
        masked=masked,
        seed=0,
    )

    assert report.verdict is Verdict.PASS


@pytest.mark.parametrize("masked", [True, False])
def test_a_function_of_the_pattern_has_no_answer_under_full_semantics(masked):
    report = gradproof.check(
        lambda s: torch.sparse.sampled_addmm(s, point(4, 2), point(2, 4, seed=2)),
        sparse_point("CSR"),
        masked=masked,
        seed=0,
    )

    assert report.verdict is (Verdict.PASS if masked else Verdict.INCONCLUSIVE)
    assert masked or "only masked=True has a derivative" in report.hint


@pytest.mark.parametrize(
    "convert",
    [
        torch.Tensor.to_sparse,
        torch.Tensor.to_sparse_csr,
        torch.Tensor.to_sparse_csc,
        lambda x: x.to_sparse_bsr((2, 2)),
        lambda x: x.to_sparse_bsc((2, 2)),
    ],
    ids=["COO", "CSR", "CSC", "BSR", "BSC"],
)
@pytest.mark.parametrize("coverage", ["probe", "full"])
def test_an_output_whose_pattern_follows_the_values_is_observed_where_it_appears(convert, coverage):
    here = torch.zeros(4, 4, dtype=torch.float64)
    here[0, 1] = 1.5

    assert gradproof.check(convert, here.requires_grad_(), coverage=coverage, seed=0).verdict is Verdict.PASS


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128], ids=str)
@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("name", POINTS)
def test_other_kinds_of_number_pass(name, masked, dtype):
    tensor = POINTS[name][0].to(dtype).requires_grad_()

    assert gradproof.check(lambda s: s * 2, tensor, masked=masked, seed=0).verdict is Verdict.PASS


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("fast_mode", [True, False])
@pytest.mark.parametrize("name", ["COO", "CSR", "BSC"])
def test_what_torch_spreads_out_only_where_it_requires_grad_passes_through_its_wrapper(name, fast_mode, masked):
    gradcheck = torch.sparse.as_sparse_gradcheck(gradproof.gradcheck)

    assert gradcheck(lambda tensor: -tensor, (sparse_point(name),), masked=masked, fast_mode=fast_mode) is True


def test_an_output_that_changes_its_layout_is_reported_with_both_layouts():
    def function(x):
        return x * 2 if x[0] == 1 else (x * 2).to_sparse()

    report = gradproof.check(function, torch.ones(2, dtype=torch.float64, requires_grad=True), seed=0)

    assert report.verdict is Verdict.INCONCLUSIVE
    assert "changed from (2,) to (2,) (COO)" in report.message
