"""A chart reads what it makes, moves a point along, and names every coordinate as the user would."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gradproof import check
from gradproof.errors import InputError
from gradproof.frameworks.torch.charts import Semantics, chart_of
from gradproof.sparse.pattern.layouts import index_tensors, stored_values
from support.charts import DTYPES, FULL, MASKED, drawn, entries, places
from support.sparse_samples import EXAMPLES, EXAMPLES_OF_EACH, Form, build, example, samples


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
def test_under_full_semantics_every_entry_is_a_coordinate_and_those_stored_are_marked(sample):
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
    with pytest.raises(InputError, match=r"object is a malformed CSR tensor: its CSR indices end at 3"):
        check(called.append, broken.requires_grad_(), masked=True)
    assert not called
