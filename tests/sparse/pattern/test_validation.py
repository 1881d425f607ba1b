"""What is wrong with a sparse tensor is said, and nothing that is right is called wrong."""

import pytest
import torch
from hypothesis import given

from gradproof.sparse.pattern.validation import fault_of
from support.layouts import LAYOUTS
from support.sparse_samples import EXAMPLES_OF_EACH, samples


def coordinates(indices, values, shape, **options):
    return torch.sparse_coo_tensor(
        torch.tensor(indices), torch.tensor(values), shape, check_invariants=False, **options
    )


def compressed(layout, lines, plain, values, shape, index=torch.int64, other=None):
    return torch.sparse_compressed_tensor(
        torch.tensor(lines, dtype=index),
        torch.tensor(plain, dtype=other or index),
        torch.as_tensor(values),
        shape,
        layout=LAYOUTS[layout],
        check_invariants=False,
    )


@EXAMPLES_OF_EACH
@given(sample=samples())
def test_a_well_formed_tensor_has_no_fault(sample):
    assert fault_of(sample.tensor) is None


@EXAMPLES_OF_EACH
@given(sample=samples())
def test_a_well_formed_tensor_that_needs_a_gradient_has_no_fault(sample):
    assert fault_of(sample.tensor.requires_grad_()) is None


def test_a_strided_tensor_has_no_fault():
    assert fault_of(torch.ones(2, 2)) is None


COO = {
    "an index too large": (coordinates([[0, 4], [1, 1]], [1.0, 2.0], (4, 6)), "index 4 "),
    "a column too large": (coordinates([[0, 3], [1, 6]], [1.0, 2.0], (4, 6)), "index 6 "),
    "a negative index": (coordinates([[0, -1], [1, 1]], [1.0, 2.0], (4, 6)), "index -1 "),
    "an index into nothing": (coordinates([[0], [0]], [1.0], (0, 6)), "index 0 "),
    "an index out of bounds in hybrid": (
        coordinates([[0, 5]], [[1.0, 2.0], [3.0, 4.0]], (4, 2)),
        "index 5 ",
    ),
    "a false claim of order": (
        coordinates([[3, 0], [1, 1]], [1.0, 2.0], (4, 6), is_coalesced=True),
        "claims to be coalesced",
    ),
    "a false claim of no duplicates": (
        coordinates([[0, 1, 1], [1, 2, 2]], [1.0, 2.0, 3.0], (4, 6), is_coalesced=True),
        "claims to be coalesced",
    ),
    "a false claim of order within a row": (
        coordinates([[1, 1], [2, 0]], [1.0, 2.0], (4, 6), is_coalesced=True),
        "claims to be coalesced",
    ),
    "a false claim in one dimension": (
        coordinates([[1, 1]], [1.0, 2.0], (4,), is_coalesced=True),
        "claims to be coalesced",
    ),
}


@pytest.mark.parametrize("name", COO)
def test_a_fault_of_coordinates_is_named(name):
    tensor, words = COO[name]

    assert words in fault_of(tensor)


@pytest.mark.parametrize("flag", [False, None])
def test_duplicates_in_any_order_are_no_fault_of_a_tensor_that_claims_nothing(flag):
    assert fault_of(coordinates([[3, 0, 0], [1, 1, 1]], [1.0, 2.0, 3.0], (4, 6), is_coalesced=flag)) is None


LINES = {
    "an end beyond what is stored": ([0, 1, 3], [0, 1], "indices end at 3, and 2 entries are stored"),
    "an end before what is stored": ([0, 1, 1], [0, 1], "indices end at 1, and 2 entries are stored"),
    "a beginning that is not zero": ([1, 1, 2], [0, 1], "indices begin at 1, and not at 0"),
    "counts that fall": ([0, 3, 2], [0, 1], "indices decrease"),
    "a negative count": ([0, -1, 2], [0, 1], "indices decrease"),
    "an index too large": ([0, 1, 2], [0, 3], "index 3 "),
    "a negative index": ([0, 1, 2], [-2, 1], "index -2 "),
    "an order that falls": ([0, 2, 2], [1, 0], "not in order within its"),
    "an index that comes twice": ([0, 2, 2], [1, 1], "or occurs twice"),
    "too few lines": ([0, 2], [0, 1], "has 2 compressed indices, and needs 3"),
    "too many lines": ([0, 1, 2, 2], [0, 1], "has 4 compressed indices, and needs 3"),
}


def sized(layout, index=torch.int64):
    """The shape, and the values of two stored cells, of a tensor with two lines of three cells."""
    shape = (2, 3) if layout in ("CSR", "BSR") else (3, 2)
    values = torch.ones(2)
    if layout.startswith("B"):
        shape, values = (2 * shape[0], 2 * shape[1]), torch.ones(2, 2, 2)
    return shape, values


@pytest.mark.parametrize("index", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("layout", ["CSR", "CSC", "BSR", "BSC"])
@pytest.mark.parametrize("name", LINES)
def test_a_fault_of_compressed_indices_is_named(name, layout, index):
    lines, plain, words = LINES[name]
    shape, values = sized(layout)

    assert words in fault_of(compressed(layout, lines, plain, values, shape, index))


@pytest.mark.parametrize("name", ["an end beyond what is stored", "an order that falls", "counts that fall"])
def test_a_fault_in_the_second_batch_alone_is_named(name):
    lines, plain, words = LINES[name]
    tensor = compressed("CSR", [[0, 1, 2], lines], [[0, 1], plain], torch.ones(2, 2), (2, 2, 3))

    assert words in fault_of(tensor)


def test_an_index_that_falls_from_one_line_to_the_next_is_no_fault():
    assert fault_of(compressed("CSR", [0, 2, 3], [1, 2, 0], torch.ones(3), (2, 3))) is None


def test_an_index_that_falls_from_one_batch_to_the_next_is_no_fault():
    tensor = compressed("CSC", [[0, 1, 1], [0, 1, 1]], [[2], [0]], torch.ones(2, 1), (2, 3, 2))

    assert fault_of(tensor) is None


def test_more_values_than_indices_are_a_fault():
    tensor = compressed("CSR", [0, 1, 2], [0, 1], torch.ones(3), (2, 3))

    assert "indices for (2,) entries and values for (3,)" in fault_of(tensor)


def test_indices_of_two_kinds_are_a_fault():
    tensor = compressed("CSR", [0, 1, 2], [0, 1], torch.ones(2), (2, 3), torch.int64, torch.int32)

    assert "torch.int64 and torch.int32" in fault_of(tensor)


def test_indices_of_different_batches_are_a_fault():
    tensor = compressed("CSR", [[0, 1, 2]], [0, 1], torch.ones(2), (2, 3))

    assert "its indices have shapes [1, 3] and [2]" in fault_of(tensor)


@pytest.mark.parametrize("values", [(2, 5), (2, 5, 1)], ids=str)
def test_values_of_another_dense_shape_are_a_fault(values):
    assert fault_of(compressed("CSR", [0, 1, 2], [0, 1], torch.ones(values), (2, 3))) is not None


@pytest.mark.parametrize(
    ("lines", "values"),
    [([0, 1, 2], (2, 0, 2)), ([0, 2], (2, 3, 2)), ([0, 1, 2], (2,)), ([0, 1, 2], (2, 2))],
    ids=["blocks without entries", "blocks that do not divide", "no blocks", "blocks of one dimension"],
)
def test_blocks_that_do_not_fit_are_a_fault(lines, values):
    assert fault_of(compressed("BSR", lines, [0, 1], torch.ones(values), (4, 6))) is not None


def test_a_malformed_tensor_is_named_while_it_needs_a_gradient():
    tensor = compressed("CSR", [0, 1, 3], [0, 1], torch.ones(2), (2, 3)).requires_grad_()

    assert "end at 3" in fault_of(tensor)
