"""Conversion: values out of sparse tensors and back, masks, layouts; each held against the dense computation."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gradproof import check
from gradproof.errors import InputError
from gradproof.sparse import Pattern, convert, mask, repack, unpack
from support.layouts import LAYOUTS

BLOCKS = {torch.sparse_bsr: (2, 3), torch.sparse_bsc: (2, 3)}


def dense(*shape, seed=0, density=0.4, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(shape, dtype=dtype, generator=generator)
    return values * (torch.rand(shape, generator=generator) < density)


def sparse(layout, *shape, **options):
    return convert(dense(*shape, **options), layout, blocksize=BLOCKS.get(layout))


every_layout = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
both_semantics = pytest.mark.parametrize("masked", [True, False], ids=["masked", "full"])


@every_layout
@both_semantics
def test_what_is_unpacked_is_repacked(layout, masked):
    tensor = sparse(layout, 4, 6)

    values, form = unpack(tensor, masked=masked)

    assert torch.equal(repack(values, form).to_dense(), tensor.to_dense())
    assert repack(values, form).layout == layout


@every_layout
def test_masked_values_are_the_stored_ones(layout):
    tensor = sparse(layout, 4, 6)

    values, _ = unpack(tensor, masked=True)

    assert values.numel() == (tensor._nnz() if layout not in BLOCKS else 6 * tensor._nnz())


def test_of_a_large_tensor_a_sample_of_what_is_not_stored_is_unpacked():
    tensor = torch.sparse_coo_tensor([[5], [7]], [1.0], (1_000_000, 1_000_000)).coalesce()

    values, _ = unpack(tensor, masked=False)

    assert 400 < len(values) < 1000
    assert values.sum() == 1.0


@every_layout
@both_semantics
@pytest.mark.parametrize("order", [1, 2])
def test_gradients_through_unpacking_and_repacking_are_right(layout, masked, order):
    tensor = sparse(layout, 4, 6).requires_grad_()

    def squared(tensor):
        values, form = unpack(tensor, masked=masked)
        return repack(values**3, form)

    report = check(squared, tensor, masked=masked, order=order)

    assert report.passed, report


@every_layout
@pytest.mark.parametrize("source", ["strided", *LAYOUTS])
def test_masking_keeps_what_the_pattern_stores(layout, source):
    whole = dense(4, 6, density=0.7)
    tensor = whole if source == "strided" else convert(whole, LAYOUTS[source], blocksize=BLOCKS.get(LAYOUTS[source]))
    pattern = sparse(layout, 4, 6, seed=1)

    masked = mask(tensor, pattern)

    assert masked.layout == layout
    stored = convert(torch.ones_like(whole), layout, blocksize=BLOCKS.get(layout))
    stored = mask(stored, pattern).to_dense() != 0
    assert torch.equal(masked.to_dense(), torch.where(stored, whole, 0.0))


@every_layout
@pytest.mark.parametrize(
    ("source", "order"), [*((source, 1) for source in ("strided", *LAYOUTS)), ("strided", 2), ("CSR", 2)]
)
def test_gradients_of_masking_are_right(layout, source, order):
    whole = dense(4, 6, density=0.7)
    tensor = whole if source == "strided" else convert(whole, LAYOUTS[source], blocksize=BLOCKS.get(LAYOUTS[source]))
    pattern = sparse(layout, 4, 6, seed=1)

    report = check(lambda tensor: mask(tensor, pattern), tensor.requires_grad_(), masked=False, order=order)

    assert report.passed, report


@every_layout
def test_a_pattern_masks_as_the_tensor_that_it_is_of_does(layout):
    tensor = sparse(layout, 4, 6, seed=1)

    masked = mask(dense(4, 6, density=0.7), Pattern.of(tensor))

    assert masked.layout == layout
    assert torch.equal(masked.to_dense(), mask(dense(4, 6, density=0.7), tensor).to_dense())


def test_an_empty_pattern_masks_everything():
    pattern = torch.zeros(3, 3).to_sparse_csr()

    assert mask(torch.ones(3, 3), pattern)._nnz() == 0


def test_a_mask_of_duplicates_counts_each_place_once():
    pattern = torch.sparse_coo_tensor([[0, 0], [1, 1]], [1.0, 1.0], (2, 2))

    assert torch.equal(mask(torch.ones(2, 2), pattern).to_dense(), torch.tensor([[0.0, 1.0], [0.0, 0.0]]))


@every_layout
@pytest.mark.parametrize("target", ["strided", *LAYOUTS])
def test_every_layout_becomes_every_other(layout, target):
    tensor = sparse(layout, 4, 6)
    wanted = torch.strided if target == "strided" else LAYOUTS[target]

    converted = convert(tensor, wanted, blocksize=BLOCKS.get(wanted))

    assert converted.layout == wanted
    assert torch.equal(converted.to_dense(), tensor.to_dense())


@every_layout
@pytest.mark.parametrize("target", LAYOUTS)
@pytest.mark.parametrize(("dtype", "masked"), [(torch.float64, False), (torch.complex128, True)], ids=str)
def test_gradients_of_conversion_are_right(layout, target, dtype, masked):
    tensor = sparse(layout, 4, 6, dtype=dtype).requires_grad_()
    wanted = LAYOUTS[target]

    report = check(lambda tensor: convert(tensor, wanted, blocksize=BLOCKS.get(wanted)), tensor, masked=masked)

    assert report.passed, report


@every_layout
def test_second_derivatives_through_conversion_are_right(layout):
    tensor = sparse(layout, 4, 6).requires_grad_()

    def cubed(tensor):
        values, form = unpack(convert(tensor, torch.sparse_coo), masked=True)
        return repack(values**3, form)

    report = check(cubed, tensor, masked=True, order=2)

    assert report.passed, report


@given(
    rows=st.integers(0, 5), columns=st.integers(0, 5), density=st.floats(0, 1), seed=st.integers(0, 99), data=st.data()
)
def test_conversion_keeps_every_number_whatever_the_shape(rows, columns, density, seed, data):
    source, target = (data.draw(st.sampled_from(["COO", "CSR", "CSC"])) for _ in range(2))
    tensor = convert(dense(rows, columns, seed=seed, density=density), LAYOUTS[source])

    assert torch.equal(convert(tensor, LAYOUTS[target]).to_dense(), tensor.to_dense())


def test_batches_hold_as_many_entries_each():
    whole = dense(3, 4, 4, density=0.3)

    batched = convert(whole.to_sparse(), torch.sparse_csr)

    assert batched.shape == (3, 4, 4)
    assert torch.equal(batched.to_dense(), whole)


def test_dense_dimensions_are_kept():
    hybrid = dense(4, 5, 2).to_sparse(2)

    converted = convert(hybrid, torch.sparse_csr)

    assert converted.dense_dim() == 1
    assert torch.equal(converted.to_dense(), hybrid.to_dense())


def test_a_large_tensor_is_converted_without_being_spread_out():
    tensor = torch.sparse_coo_tensor([[5, 900_000], [7, 3]], [1.0, 2.0], (1_000_000, 1_000_000)).coalesce()

    converted = convert(tensor, torch.sparse_csc)

    assert converted._nnz() == 2
    assert torch.equal(convert(converted, torch.sparse_coo).indices(), tensor.indices())


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: unpack(torch.eye(3), masked=True), "no pattern"),
        (lambda: mask(torch.eye(3), torch.eye(3)), "no pattern"),
        (lambda: mask(torch.eye(3), torch.eye(4).to_sparse()), r"\(3, 3\) and the pattern \(4, 4\)"),
        (lambda: mask(torch.ones(3, 3, device="meta"), torch.eye(3).to_sparse()), "meta"),
        (lambda: repack(torch.ones(4), unpack(torch.eye(3).to_sparse(), masked=True)[1]), r"\[4\].*\[3\]"),
        (lambda: convert(torch.eye(3), torch.sparse_bsr), "blocksize"),
        (lambda: convert(torch.eye(3), torch.sparse_csr, blocksize=(1, 1)), "no blocks"),
        (lambda: convert(torch.eye(3), torch.sparse_bsr, blocksize=(2, 2)), "tile"),
        (lambda: convert(torch.ones(3), torch.sparse_csr), "two sparse dimensions"),
    ],
)
def test_what_cannot_be_is_a_clear_error(wrong, words):
    with pytest.raises(InputError, match=words):
        wrong()


def test_a_malformed_tensor_is_refused():
    broken = torch.sparse_csr_tensor([0, 1, 3], [0, 1], [1.0, 2.0], (2, 2), check_invariants=False)

    with pytest.raises(InputError, match="malformed"):
        convert(broken, torch.sparse_coo)


@every_layout
@both_semantics
def test_a_batch_is_made_strided_with_gradients_that_differ_from_matrix_to_matrix(layout, masked):
    tensor = sparse(layout, 2, 4, 6).requires_grad_()

    def twice(tensor):
        return convert(tensor, torch.strided)[0].sin() + convert(tensor, torch.strided)[1]

    report = check(twice, tensor, masked=masked, coverage="full", seed=0)

    assert report.passed, report
