"""A chart reads what it makes, moves a point along, and names every coordinate as the user would."""

import itertools
import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.masked import masked_tensor

from gradproof import check
from gradproof.errors import InputError
from gradproof.frameworks.torch.charts import Semantics, chart_of, observed, widened
from gradproof.frameworks.torch.charts.sampling import ALL
from gradproof.frameworks.torch.layouts import index_tensors, stored_values
from gradproof.frameworks.torch.makeup import data_and_mask
from support.sparse_samples import EXAMPLES, EXAMPLES_OF_EACH, Form, build, example, samples

DTYPES = (torch.float64, torch.complex128)
MASKED, FULL = Semantics(masked=True), Semantics(masked=False)


def drawn(size, seed=0):
    return torch.randn(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def width(tensor):
    return 2 if tensor.is_complex() else 1


def places(chart, tensor):
    """The index of every coordinate, and whether it is stored."""
    return [chart.index(offset) for offset in range(chart.size // width(tensor))]


def entries(coordinates, tensor):
    """Coordinates as numbers of the tensor's kind."""
    if tensor.is_complex():
        return torch.view_as_complex(coordinates.reshape(-1, 2))
    return coordinates


@EXAMPLES_OF_EACH
@given(sample=samples(dtypes=DTYPES, duplicates=False), masked=st.booleans())
def test_reading_what_was_made_gives_the_coordinates(sample, masked):
    chart = chart_of(sample.tensor, Semantics(masked=masked))
    coordinates = drawn(chart.size)

    assert torch.equal(chart.read(chart.make(coordinates)), coordinates)


@EXAMPLES_OF_EACH
@given(sample=samples(dtypes=DTYPES), masked=st.booleans())
def test_what_is_made_is_of_the_tensor_s_kind(sample, masked):
    chart = chart_of(sample.tensor, Semantics(masked=masked))
    made = chart.make(drawn(chart.size))

    assert chart.fits(made)
    assert (made.shape, made.layout, made.dtype) == (sample.tensor.shape, sample.tensor.layout, sample.tensor.dtype)
    assert index_tensors(made)[0].dtype == index_tensors(sample.tensor)[0].dtype


@EXAMPLES_OF_EACH
@given(sample=samples(dtypes=DTYPES))
def test_under_masked_semantics_the_coordinates_are_the_stored_entries(sample):
    chart = chart_of(sample.tensor, MASKED)

    assert places(chart, sample.tensor) == [(entry, True) for entry in sample.entries()]
    assert torch.equal(entries(chart.origin(sample.tensor), sample.tensor), stored_values(sample.tensor).reshape(-1))


@EXAMPLES_OF_EACH
@given(sample=samples(dtypes=DTYPES))
def test_under_full_semantics_every_entry_is_a_coordinate_and_those_stored_are_told(sample):
    chart = chart_of(sample.tensor, FULL)
    found = places(chart, sample.tensor)
    stored = set(sample.entries())

    assert {index for index, _ in found} == set(itertools.product(*map(range, sample.form.shape)))
    assert all(own == (index in stored) for index, own in found)
    assert len(found) == sample.dense.numel() + len(list(sample.entries())) - len(stored)


@EXAMPLES_OF_EACH
@given(sample=samples(dtypes=DTYPES), masked=st.booleans(), seed=st.integers(0, 99))
def test_a_direction_made_of_coordinates_has_them_where_the_index_says(sample, masked, seed):
    chart = chart_of(sample.tensor, Semantics(masked=masked))
    coordinates = drawn(chart.size, seed)
    expected = torch.zeros_like(sample.dense)
    for (index, _), number in zip(places(chart, sample.tensor), entries(coordinates, sample.tensor), strict=True):
        expected[index] += number

    torch.testing.assert_close(chart.make(coordinates).to_dense(), expected)


@EXAMPLES_OF_EACH
@given(sample=samples(dtypes=DTYPES), masked=st.booleans(), t=st.sampled_from([-2.0, 0.25, 1.0]))
def test_a_moved_point_is_the_point_plus_the_step(sample, masked, t):
    chart = chart_of(sample.tensor, Semantics(masked=masked))
    step = chart.make(drawn(chart.size))

    moved = chart.moved(sample.tensor, step, t, None)

    torch.testing.assert_close(moved.to_dense(), sample.dense + t * step.to_dense())
    assert moved.layout == sample.tensor.layout


@EXAMPLES_OF_EACH
@given(sample=samples(dtypes=DTYPES), masked=st.booleans())
def test_a_point_moved_in_memory_given_is_the_same(sample, masked):
    chart = chart_of(sample.tensor, Semantics(masked=masked))
    step = chart.make(drawn(chart.size))
    memory = chart.moved(sample.tensor, step, 1.0, None)

    again = chart.moved(sample.tensor, step, -3.0, memory)

    torch.testing.assert_close(again.to_dense(), sample.dense - 3 * step.to_dense())
    torch.testing.assert_close(sample.tensor.to_dense(), sample.dense)


@EXAMPLES_OF_EACH
@given(sample=samples(), masked=st.booleans())
def test_a_point_not_moved_is_the_point_as_it_is(sample, masked):
    chart = chart_of(sample.tensor, Semantics(masked=masked))

    still = chart.moved(sample.tensor, chart.make(drawn(chart.size)), 0.0, None)

    assert all(map(torch.equal, index_tensors(still), index_tensors(sample.tensor)))
    assert torch.equal(stored_values(still), stored_values(sample.tensor))
    if still.layout == torch.sparse_coo:
        assert still.is_coalesced() == sample.tensor.is_coalesced()


@EXAMPLES_OF_EACH
@given(sample=samples(dtypes=DTYPES), masked=st.booleans(), seed=st.integers(0, 9))
def test_a_strided_gradient_is_read_at_every_coordinate(sample, masked, seed):
    chart = chart_of(sample.tensor, Semantics(masked=masked))
    gradient = drawn(sample.dense.numel(), seed).reshape(sample.form.shape).to(sample.dense.dtype)
    found = entries(chart.read(gradient), sample.tensor)

    for (index, _), number in zip(places(chart, sample.tensor), found, strict=True):
        assert number == gradient[index]


@pytest.mark.parametrize("name", EXAMPLES)
def test_explicit_zeros_are_coordinates(name):
    sample = example(name, zeros=True)
    chart = chart_of(sample.tensor, MASKED)

    assert chart.size == len(list(sample.entries()))
    assert 0.0 in chart.origin(sample.tensor)


def test_each_duplicate_is_a_coordinate_and_has_the_gradient_of_its_entry():
    tensor = torch.sparse_coo_tensor([[0, 0, 1], [1, 1, 0]], [1.0, 2.0, 3.0], (2, 2), check_invariants=True)
    chart = chart_of(tensor, MASKED)

    assert places(chart, tensor) == [((0, 1), True), ((0, 1), True), ((1, 0), True)]
    assert chart.read(torch.tensor([[5.0, 6.0], [7.0, 8.0]])).tolist() == [6.0, 6.0, 7.0]


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize(
    "form",
    [
        Form("COO", (), (0,)),
        Form("COO", (), (3, 0)),
        Form("CSR", (), (0, 3)),
        Form("CSC", (), (3, 0)),
        Form("BSR", (), (0, 2), (2, 2)),
        Form("BSC", (), (2, 0), (1, 3)),
        Form("CSR", (2,), (0, 0)),
    ],
    ids=str,
)
def test_a_tensor_without_entries_has_no_coordinates(form, masked):
    sample = build(form, [[] for _ in form.batches()])
    chart = chart_of(sample.tensor, Semantics(masked=masked))

    assert chart.size == 0
    assert chart.make(drawn(0)).shape == form.shape
    assert chart.read(sample.tensor).shape == (0,)


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name != "uncoalesced COO"])
def test_an_empty_pattern_has_no_coordinates_under_masked_and_all_under_full_semantics(name):
    form, stored = EXAMPLES[name]
    sample = build(form, [[] for _ in stored])

    assert chart_of(sample.tensor, MASKED).size == 0
    assert chart_of(sample.tensor, FULL).size == sample.dense.numel()


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("layout", ["COO", "CSR"])
def test_a_dense_dimension_of_length_zero_leaves_no_coordinates(layout, masked):
    sample = build(Form(layout, (), (2, 3), dense=(0,)), [[(0, 1), (1, 2)]])
    chart = chart_of(sample.tensor, Semantics(masked=masked))

    assert chart.read(chart.make(drawn(0))).shape == (0,)


@pytest.mark.parametrize("masked", [True, False])
def test_a_tensor_of_no_sparse_dimension_is_one_cell(masked):
    tensor = torch.sparse_coo_tensor(
        torch.zeros((0, 1), dtype=torch.int64), torch.ones(1, 3), (3,), check_invariants=True
    )
    chart = chart_of(tensor, Semantics(masked=masked))

    assert places(chart, tensor) == [((0,), True), ((1,), True), ((2,), True)]
    assert chart.read(torch.tensor([1.0, 2.0, 3.0])).tolist() == [1.0, 2.0, 3.0]


def test_a_tensor_of_no_sparse_dimension_may_hold_its_cell_twice():
    tensor = torch.sparse_coo_tensor(
        torch.zeros((0, 2), dtype=torch.int64), torch.ones(2, 3), (3,), is_coalesced=False, check_invariants=True
    )

    assert chart_of(tensor, FULL).size == 6


def test_a_malformed_input_is_refused_in_words():
    broken = torch.sparse_csr_tensor([0, 1, 3], [0, 1], [1.0, 2.0], (2, 2), check_invariants=False)

    called = []
    with pytest.raises(InputError, match=r"inputs\[0\] is a malformed CSR tensor: its CSR indices end at 3"):
        check(called.append, broken.requires_grad_(), masked=True)
    assert not called


LARGE = {
    "COO": torch.sparse_coo_tensor([[5, 70], [5, 90]], [1.0, 2.0], (90, 120), check_invariants=True),
    "uncoalesced COO": torch.sparse_coo_tensor([[70, 5], [5, 90]], [1.0, 2.0], (90, 120), check_invariants=True),
    "CSR": torch.eye(90, 120, dtype=torch.float64).to_sparse_csr(),
    "CSC": torch.eye(90, 120, dtype=torch.float64).to_sparse_csc(),
    "BSR": torch.eye(180, 240, dtype=torch.float64).to_sparse_bsr((2, 2)),
    "BSC": torch.eye(180, 240, dtype=torch.float64).to_sparse_bsc((2, 2)),
    "hybrid COO": torch.sparse_coo_tensor([[5, 70], [5, 90]], torch.ones(2, 2), (90, 120, 2), check_invariants=True),
    "three dimensions": torch.sparse_coo_tensor([[1], [2], [3]], [1.0], (20, 30, 25), check_invariants=True),
    "batched CSR": torch.eye(60, 70, dtype=torch.float64).expand(3, 60, 70).to_sparse_csr(),
    "batched BSC": torch.eye(120, 140, dtype=torch.float64).expand(3, 120, 140).to_sparse_bsc((2, 2)),
}


@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("seed", range(3))
def test_a_sample_of_a_large_grid_visits_every_row_and_every_column(name, seed):
    tensor = LARGE[name]
    chart = chart_of(tensor, Semantics(masked=False, seed=seed))
    visited = [index for index, _ in places(chart, tensor)]

    assert len(visited) < tensor.numel() // 3
    for dimension, length in enumerate(tensor.shape):
        assert {index[dimension] for index in visited} == set(range(length))


@pytest.mark.parametrize("name", LARGE)
def test_a_sample_is_drawn_from_the_seed(name):
    tensor = LARGE[name]
    first, again, other = (places(chart_of(tensor, Semantics(masked=False, seed=seed)), tensor) for seed in (3, 3, 4))

    assert first == again
    assert first != other


@pytest.mark.parametrize("name", LARGE)
def test_a_sample_holds_no_place_twice_and_tells_what_is_stored(name):
    tensor = LARGE[name]
    found = places(chart_of(tensor, Semantics(masked=False)), tensor)
    dense = torch.zeros(tensor.shape, dtype=torch.bool)
    for index, _ in places(chart_of(tensor, MASKED), tensor):
        dense[index] = True

    assert len(dict(found)) == len(found)
    assert {index for index, own in found if own} == set(map(tuple, dense.nonzero().tolist()))


@pytest.mark.parametrize("name", LARGE)
def test_a_complete_chart_leaves_no_entry_out(name):
    tensor = LARGE[name]

    assert chart_of(tensor, Semantics(masked=False, complete=True)).size == tensor.numel()


def test_a_grid_with_few_free_cells_is_probed_whole():
    tensor = torch.eye(64, dtype=torch.float64).to_sparse()

    assert tensor.numel() <= ALL
    assert chart_of(tensor, FULL).size == tensor.numel()


def test_a_sample_is_told_in_a_note_and_a_whole_is_not():
    large, small = LARGE["CSR"], example("CSR").tensor

    assert "of the 10,710 places where nothing is stored (masked=False)" in (chart_of(large, FULL).remarks("x")[0])
    assert chart_of(small, FULL).remarks("x") == []


def test_a_note_of_numbers_outside_the_mask_outlasts_a_gradient_that_is_zero_there():
    tensor = example("COO").tensor
    chart = chart_of(tensor, MASKED)
    everywhere = torch.ones(4, 6, dtype=torch.float64).to_sparse()

    chart.read(everywhere)
    chart.read(everywhere * 0)

    assert chart.remarks("x") == [
        "The gradient with respect to x holds 20 numbers where nothing is stored: masked=True ignores them."
    ]


def chart_of_output(values):
    """The chart of an output with these values, at the point and beside it."""
    pattern = None
    for value in values:
        pattern = widened("y", pattern, value)
    return observed(values[0], pattern, everywhere=len(values) > 1)


def in_order(tensor):
    """A COO tensor may store its entries in any order until it is coalesced."""
    return tensor.coalesce() if tensor.layout == torch.sparse_coo else tensor


@EXAMPLES_OF_EACH
@given(sample=samples(dtypes=DTYPES, duplicates=False))
def test_an_output_is_read_where_it_stores_something_and_one_number_stands_for_the_rest(sample):
    tensor = in_order(sample.tensor)
    chart = chart_of_output([sample.tensor])

    assert chart.size == 1 + width(tensor) * len(list(sample.entries()))
    assert torch.equal(entries(chart.read(tensor)[:-1], tensor), stored_values(tensor).reshape(-1))
    assert chart.index(stored_values(tensor).numel()) == ((), None)


@EXAMPLES_OF_EACH
@given(sample=samples(dtypes=DTYPES, duplicates=False))
def test_an_incoming_gradient_has_the_output_s_pattern(sample):
    chart = chart_of_output([sample.tensor])
    made = chart.make(drawn(chart.size))

    assert torch.equal(chart.read(made)[:-1], drawn(chart.size)[:-1])
    assert all(map(torch.equal, index_tensors(made), index_tensors(in_order(sample.tensor))))


def test_an_output_stored_elsewhere_beside_the_point_is_observed_there():
    form = Form("CSR", (), (2, 3))
    here, there = (build(form, [cells]).tensor for cells in ([(0, 1)], [(0, 1), (1, 2)]))
    chart = chart_of_output([here, there, here])

    assert [chart.index(number)[0] for number in range(3)] == [(0, 1), (1, 2), ()]
    assert chart.read(there)[:2].tolist() == stored_values(there).tolist()
    assert chart.read(here)[1:].tolist() == [0.0, 0.0]


def test_what_an_output_stores_nowhere_near_is_in_the_last_coordinate():
    form = Form("COO", (), (2, 3))
    here, far = build(form, [[(0, 1)]]).tensor, build(form, [[(0, 1), (1, 2)]]).tensor
    chart = chart_of_output([here, here, here])

    assert abs(chart.read(far)[-1]) == abs(stored_values(far)[1])


def hidden(layout):
    """A masked tensor of two rows, with one stored entry masked out."""
    data = torch.tensor([[1.0, 0.0, 2.0], [0.0, 3.0, 4.0]], dtype=torch.float64)
    mask = torch.tensor([[True, False, True], [False, False, True]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if layout == "strided":
            return masked_tensor(data, mask)
        convert = torch.Tensor.to_sparse_coo if layout == "COO" else torch.Tensor.to_sparse_csr
        data = convert(data)
        keep = torch.tensor([True, True, False, True])
        mask = (
            torch.sparse_coo_tensor(data.indices(), keep, data.shape, is_coalesced=True, check_invariants=True)
            if layout == "COO"
            else torch.sparse_csr_tensor(
                data.crow_indices(), data.col_indices(), keep, data.shape, check_invariants=True
            )
        )
        return masked_tensor(data, mask)


@pytest.mark.parametrize("layout", ["strided", "COO", "CSR"])
def test_the_coordinates_of_a_masked_tensor_are_those_not_masked_out(layout):
    tensor = hidden(layout)
    chart = chart_of(tensor, FULL)

    assert [index for index, _ in places(chart, tensor)] == [(0, 0), (0, 2), (1, 2)]
    assert chart.origin(tensor).tolist() == [1.0, 2.0, 4.0]


@pytest.mark.parametrize("layout", ["strided", "COO", "CSR"])
def test_a_masked_tensor_is_read_as_it_was_made(layout):
    tensor = hidden(layout)
    chart = chart_of(tensor, FULL)
    coordinates = drawn(chart.size)

    assert torch.equal(chart.read(chart.make(coordinates)), coordinates)


@pytest.mark.parametrize("layout", ["strided", "COO", "CSR"])
def test_a_masked_tensor_is_moved_where_it_is_not_masked_out(layout):
    tensor = hidden(layout)
    chart = chart_of(tensor, FULL)
    moved = chart.moved(tensor, chart.make(torch.ones(chart.size, dtype=torch.float64)), 2.0, None)

    (data, mask), (before, same) = data_and_mask(moved), data_and_mask(tensor)
    gain = data.to_dense() - before.to_dense()
    assert torch.equal(gain, 2 * torch.tensor([[1.0, 0, 1], [0, 0, 1]], dtype=torch.float64))
    assert torch.equal(mask.to_dense(), same.to_dense())
    assert chart.fits(moved)


@pytest.mark.parametrize(
    "layout",
    [
        "strided",
        "COO",
        "CSR",
    ],
)
def test_what_a_gradient_masks_out_counts_as_zero(layout):
    tensor = hidden(layout)
    chart = chart_of(tensor, FULL)
    data, mask = data_and_mask(tensor)
    narrower = mask.clone()
    (narrower if layout == "strided" else narrower.values())[(0, 0) if layout == "strided" else 0] = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gradient = masked_tensor(data, narrower)

    assert chart.read(gradient).tolist() == [0.0, 2.0, 4.0]


def test_a_masked_tensor_says_how_much_of_it_is_valid():
    assert chart_of(hidden("strided"), FULL).words() == "masked, 3 valid"
    assert chart_of(hidden("CSR"), FULL).words() == "masked CSR, 4 stored, 3 valid"
