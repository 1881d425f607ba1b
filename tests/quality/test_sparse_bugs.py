"""Mistakes in the gradients of sparse tensors, in every layout, under both semantics, beside their right twins."""

import itertools

import pytest
import torch

import gradproof
from gradproof import Verdict
from support.findings import entries_of
from support.sparse_rules import (
    DENSE,
    POINTS,
    SPARSE,
    Rule,
    coordinates,
    everywhere,
    filled,
    once,
    place_outside,
    places_of,
    sparse_point,
    stored_indices,
    transposed,
    values_of,
    with_values,
)

LAYOUTS, OUTPUTS = list(POINTS), [DENSE, SPARSE]
PROBED = list(itertools.product(LAYOUTS, OUTPUTS))
# Coverage is the engine's, which knows neither layouts nor kinds of output: each of those meets both coverages.
FORMS = [
    (layout, output, "full" if (row + column) % 2 else "probe")
    for row, layout in enumerate(LAYOUTS)
    for column, output in enumerate(OUTPUTS)
]
SEMANTICS = {True: "masked=True", False: "masked=False"}


def on_the_pattern(gradient, tensor):
    return filled(once(tensor), gradient)


def everywhere_stored(gradient, tensor):
    return filled(everywhere(tensor), gradient)


def strided(gradient, tensor):
    return gradient


def right(masked):
    """A right gradient with as few stored entries as the semantics allow."""
    return on_the_pattern if masked else everywhere_stored


def scaled(entries, factor, then):
    """A backward with some entries off by a factor."""

    def backward(gradient, tensor):
        gradient = gradient.clone()
        for entry in entries:
            gradient[entry] *= factor
        return then(gradient, tensor)

    return backward


def exchanged(masked):
    """The gradient of the transposed matrix, on the transposed pattern."""

    def backward(gradient, tensor):
        pattern = transposed(tensor) if masked else everywhere(tensor)
        return filled(pattern, gradient.transpose(-1, -2).contiguous())

    return backward


def check(name, output, backward, contracts=(), **options):
    return gradproof.check(Rule(output, backward), sparse_point(name), seed=0, contracts=contracts, **options)


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize(("name", "output", "coverage"), FORMS)
def test_a_right_gradient_passes(name, output, coverage, masked):
    report = check(name, output, right(masked), masked=masked, coverage=coverage, contracts=None)

    assert report.verdict is Verdict.PASS, str(report)


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize(("name", "output", "coverage"), FORMS)
def test_one_wrong_stored_entry_is_named(name, output, coverage, masked):
    entry = POINTS[name][1]
    report = check(name, output, scaled([entry], 1.25, right(masked)), masked=masked, coverage=coverage)

    assert report.verdict is Verdict.FAIL
    assert {found.index for found in entries_of(report)} == {entry}
    assert all(found.stored is True for found in entries_of(report))
    assert all(SEMANTICS[masked] in finding.message for finding in report.findings)


@pytest.mark.parametrize(("name", "output", "coverage"), FORMS)
def test_one_wrong_entry_that_is_not_stored_is_named_under_full_semantics(name, output, coverage):
    entry = place_outside(name)
    report = check(name, output, scaled([entry], 1.25, everywhere_stored), masked=False, coverage=coverage)

    assert report.verdict is Verdict.FAIL
    assert [(found.index, found.stored) for found in entries_of(report)] == [(entry, False)]
    assert "where nothing is stored. (masked=False" in report.findings[0].message
    assert "(not stored)" in str(report)


@pytest.mark.parametrize(
    ("name", "output", "coverage"),
    FORMS,
)
def test_a_gradient_outside_the_mask_is_ignored_under_masked_semantics_with_a_note(name, output, coverage):
    wrong_there = scaled([place_outside(name)], 7.0, everywhere_stored)
    report = check(name, output, wrong_there, masked=True, coverage=coverage)

    assert report.verdict is Verdict.PASS
    if output == DENSE:  # the incoming gradient of a sparse output is zero where nothing is stored
        assert any("numbers where nothing is stored: masked=True ignores them" in note for note in report.notes)


@pytest.mark.parametrize(("name", "output"), PROBED)
def test_a_strided_gradient_is_read_on_the_mask_under_masked_semantics_with_a_note(name, output):
    report = check(name, output, scaled([place_outside(name)], 7.0, strided), masked=True)

    assert report.verdict is Verdict.PASS
    assert any("is read only where something is stored (masked=True)" in note for note in report.notes)


@pytest.mark.parametrize(("name", "output"), PROBED)
def test_a_strided_gradient_is_read_everywhere_under_full_semantics(name, output):
    entry = place_outside(name)
    passing = check(name, output, strided, masked=False)
    failing = check(name, output, scaled([entry], 7.0, strided), masked=False)

    assert passing.verdict is Verdict.PASS
    assert [(found.index, found.stored) for found in entries_of(failing)] == [(entry, False)]


@pytest.mark.parametrize(("name", "output", "coverage"), FORMS)
def test_a_gradient_missing_outside_the_mask_fails_under_full_semantics(name, output, coverage):
    report = check(name, output, on_the_pattern, masked=False, coverage=coverage)

    assert report.verdict is Verdict.FAIL
    assert not {found.index for found in entries_of(report)} & stored_indices(sparse_point(name))
    assert all(found.stored is False and found.claimed == 0 for found in entries_of(report))
    assert all("where nothing is stored. (masked=False" in finding.message for finding in report.findings)
    likeliest = report.findings[0].diagnoses[0]
    assert "is zero wherever nothing is stored, and right where something is" in likeliest.message
    assert "pass masked=True" in likeliest.hint


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize(("name", "output", "coverage"), FORMS)
def test_a_gradient_on_the_transposed_pattern_fails(name, output, coverage, masked):
    report = check(name, output, exchanged(masked), masked=masked, coverage=coverage)

    assert report.verdict is Verdict.FAIL
    assert all(SEMANTICS[masked] in finding.message for finding in report.findings)
    assert entries_of(report)


def doubled(share):
    """Every stored entry of the gradient comes twice, each with a share of it."""

    def backward(gradient, tensor):
        pattern = once(tensor)
        found = filled(pattern, share * gradient)
        return coordinates(
            torch.cat(2 * [found._indices()], 1), torch.cat(2 * [found._values()]), tensor.shape, is_coalesced=False
        )

    return backward


COORDINATES = [form for form in FORMS if "COO" in form[0]]


@pytest.mark.parametrize(("name", "output", "coverage"), COORDINATES)
def test_duplicates_in_a_gradient_count_together(name, output, coverage):
    assert check(name, output, doubled(0.5), masked=True, coverage=coverage).verdict is Verdict.PASS


@pytest.mark.parametrize(("name", "output", "coverage"), COORDINATES)
def test_duplicates_in_a_gradient_that_hold_the_whole_each_are_wrong(name, output, coverage):
    report = check(name, output, doubled(1.0), masked=True, coverage=coverage)

    assert report.verdict is Verdict.FAIL
    assert {found.index for found in entries_of(report)} == stored_indices(sparse_point(name))
    assert all(abs(found.claimed - 2 * found.numerical) < 1e-6 for found in entries_of(report))


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("coverage", ["probe", "full"])
@pytest.mark.parametrize("output", OUTPUTS)
def test_duplicates_of_the_input_that_each_bring_their_gradient_count_it_twice(output, coverage, masked):
    def once_for_each(gradient, tensor):
        gradient = gradient.clone()
        gradient.reshape(-1)[places_of(tensor)[[0]]] *= 2
        return right(masked)(gradient, tensor)

    report = check("uncoalesced COO", output, once_for_each, masked=masked, coverage=coverage)

    assert report.verdict is Verdict.FAIL
    assert {(found.index, found.stored) for found in entries_of(report)} == {((2, 0), True)}


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_millionth_too_much_in_one_stored_entry_is_found(name):
    entry = POINTS[name][1]
    rule = Rule(DENSE, scaled([entry], 1 + 1e-6, on_the_pattern))
    report = gradproof.check(rule, sparse_point(name), masked=True, seed=1)

    assert {found.index for found in entries_of(report)} == {entry}


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("fast_mode", [True, False])
@pytest.mark.parametrize("name", ["hybrid COO", "CSR", "BSC"])
def test_the_drop_in_tells_the_same(name, fast_mode, masked):
    options = {"masked": masked, "fast_mode": fast_mode, "raise_exception": False}

    assert gradproof.gradcheck(Rule(DENSE, right(masked)), sparse_point(name), **options) is True
    assert gradproof.gradcheck(Rule(DENSE, on_the_pattern), sparse_point(name), **options) is masked


class Doubled(torch.autograd.Function):
    """Twice the values on the same pattern; torch is left to make zeros of an undefined gradient."""

    @staticmethod
    def forward(ctx, tensor):
        return with_values(tensor, 2 * values_of(tensor))

    @staticmethod
    def backward(ctx, incoming):
        return with_values(incoming, 2 * values_of(incoming))


@pytest.mark.parametrize("name", LAYOUTS)
def test_what_torch_cannot_make_of_an_undefined_gradient_is_not_held_against_a_backward(name):
    assert gradproof.check(Doubled.apply, sparse_point(name), masked=True, seed=0).verdict is Verdict.PASS


class ByPosition(torch.autograd.Function):
    """Twice the values, with a backward that takes its incoming gradient to lie on the pattern of the output."""

    @staticmethod
    def forward(ctx, tensor, materialised):
        ctx.set_materialize_grads(materialised)
        ctx.pattern = tensor.detach()
        return with_values(tensor, 2 * values_of(tensor))

    @staticmethod
    def backward(ctx, incoming):
        twos = torch.full_like(values_of(ctx.pattern), 2.0)
        return with_values(ctx.pattern, twos * values_of(incoming)), None


@pytest.mark.parametrize("name", ["COO", "hybrid COO", "CSR", "CSC", "BSR", "BSC"])
@pytest.mark.parametrize("dense", [True, False])
def test_that_torch_s_zeros_of_an_undefined_gradient_store_nothing_is_not_held_against_a_backward(name, dense):
    def function(tensor):
        result = ByPosition.apply(tensor, True)
        return result.to_dense() if dense else result

    report = gradproof.check(function, sparse_point(name), masked=True, seed=0)

    assert report.verdict is Verdict.PASS, str(report)
    if dense or name not in ("BSR", "BSC"):  # which torch has no zeros of at all
        assert any("for a sparse incoming gradient that stores no entry" in note for note in report.notes)


@pytest.mark.parametrize("name", ["COO", "CSR"])
def test_a_backward_that_requests_none_and_cannot_take_it_is_found(name):
    report = gradproof.check(lambda tensor: ByPosition.apply(tensor, False), sparse_point(name), masked=True, seed=0)

    assert [finding.kind for finding in report.findings] == ["undefined"]


class BesideItsSum(torch.autograd.Function):
    """The same beside a dense output, each of which may be the only one that is used."""

    @staticmethod
    def forward(ctx, tensor):
        ctx.pattern = tensor.detach()
        return with_values(tensor, 2 * values_of(tensor)), values_of(tensor).sum()

    @staticmethod
    def backward(ctx, incoming, of_the_sum):
        ones = torch.ones_like(values_of(ctx.pattern))
        return with_values(ctx.pattern, ones * 2 * values_of(incoming) + ones * of_the_sum)


@pytest.mark.parametrize("name", ["COO", "CSR"])
def test_a_backward_that_raises_where_another_output_alone_is_used_is_found(name):
    report = gradproof.check(BesideItsSum.apply, sparse_point(name), masked=True, seed=0)

    assert [finding.kind for finding in report.findings] == ["undefined"]
    assert "undefined incoming gradients for output[0]" in report.findings[0].message
    assert "zeros that store nothing" in report.findings[0].hint


def spread_out(layout):
    """A large matrix with few entries, of which a sample of the others is probed."""
    indices = torch.tensor([[5, 40, 70], [5, 60, 90]])
    tensor = coordinates(indices, [0.5, -1.5, 2.0], (90, 120), is_coalesced=True)
    return (tensor if layout == "COO" else tensor.to_sparse(layout=getattr(torch, layout))).requires_grad_()


@pytest.mark.parametrize("layout", ["COO", "sparse_csr", "sparse_csc"])
@pytest.mark.parametrize("line", [(17,), (slice(None), 44)], ids=["row", "column"])
@pytest.mark.parametrize("seed", range(2))
def test_a_line_that_is_missing_from_the_gradient_of_a_large_matrix_is_found_in_its_sample(layout, line, seed):
    report = gradproof.check(
        Rule(DENSE, scaled([line], 0.0, strided)), spread_out(layout), masked=False, contracts=(), seed=seed
    )

    assert report.verdict is Verdict.FAIL
    assert {found.index[len(line) - 1] for found in entries_of(report)} == {line[-1]}
    assert all(found.stored is False for found in entries_of(report))


@pytest.mark.parametrize("layout", ["COO", "sparse_csr", "sparse_csc"])
def test_the_right_gradient_of_a_large_matrix_passes_and_says_what_was_sampled(layout):
    report = gradproof.check(Rule(DENSE, strided), spread_out(layout), masked=False, contracts=(), seed=0)

    assert report.verdict is Verdict.PASS
    assert any("of the 10,797 entries that are not stored (masked=False)" in note for note in report.notes)


def test_a_sparse_output_counts_as_many_outputs_as_it_stores():
    report = check("CSR", SPARSE, on_the_pattern, masked=True)

    assert report.subject.output_coordinates == 4
