"""What a sparse tensor stores: keys, grids, and tensors made on given cells, against the dense tensor."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gradproof.errors import InputError
from gradproof.sparse.pattern.grid import PIECE, Grid, grid_of, key_pieces, keys_of, on_cells, unravel
from gradproof.sparse.pattern.layouts import BY_COLUMN, index_tensors, name_of, stored_values, with_values
from support.layouts import LAYOUTS
from support.sparse_samples import EXAMPLES, EXAMPLES_OF_EACH, Form, build, example, samples


def validated(tensor):
    """The same tensor, made again with torch looking at its indices."""
    indices, values = index_tensors(tensor), stored_values(tensor)
    if tensor.layout == torch.sparse_coo:
        return torch.sparse_coo_tensor(
            *indices, values, tensor.shape, is_coalesced=tensor.is_coalesced(), check_invariants=True
        )
    return torch.sparse_compressed_tensor(*indices, values, tensor.shape, layout=tensor.layout, check_invariants=True)


def spelt_out(tensor):
    """The dense tensor, one number at a time, by the keys."""
    grid, keys = grid_of(tensor), keys_of(tensor)
    values = stored_values(tensor).reshape(len(keys), *grid.payload)
    dense = torch.zeros(tensor.shape, dtype=tensor.dtype)
    for key, payload in zip(keys.tolist(), values, strict=True):
        for offset, number in enumerate(payload.reshape(-1)):
            dense[grid.index(key, offset)] += number
    return dense


@EXAMPLES_OF_EACH
@given(sample=samples())
def test_the_samples_mean_what_torch_says_they_mean(sample):
    assert torch.equal(sample.tensor.to_dense(), sample.dense)


@EXAMPLES_OF_EACH
@given(sample=samples(dtypes=(torch.float64, torch.complex128, torch.float32)))
def test_keys_and_values_spell_out_the_dense_tensor(sample):
    torch.testing.assert_close(spelt_out(sample.tensor), sample.dense)


@EXAMPLES_OF_EACH
@given(sample=samples())
def test_the_grid_is_the_form(sample):
    form = sample.form

    by_column = sample.tensor.layout in BY_COLUMN
    assert grid_of(sample.tensor) == Grid(form.batch, form.sparse, form.block, form.dense, by_column)
    assert grid_of(sample.tensor).cells == len(form.cells()) * len(form.batches())


@EXAMPLES_OF_EACH
@given(sample=samples())
def test_keys_rise_unless_a_cell_comes_twice(sample):
    keys = keys_of(sample.tensor)

    if sample.tensor.layout != torch.sparse_coo or sample.tensor.is_coalesced():
        assert bool((keys[1:] > keys[:-1]).all())


@pytest.mark.parametrize("layout", ["COO", "CSR", "CSC"])
def test_many_keys_come_in_pieces(layout):
    lines, width = 3 * PIECE // 1000, 1000
    keys = torch.arange(0, lines * width, 2)
    tensor = on_cells(build(Form(layout, (), (lines, width) if layout != "CSC" else (width, lines)), [[]]).tensor, keys)
    pieces = list(key_pieces(tensor))

    assert len(pieces) > 1
    assert torch.equal(torch.cat([piece for _, piece in pieces]), keys)
    assert [where.stop - where.start for where, _ in pieces] == [len(piece) for _, piece in pieces]


@pytest.mark.parametrize("name", EXAMPLES)
def test_keys_are_long_whatever_the_kind_of_index(name):
    assert keys_of(example(name).tensor).dtype == torch.int64


def test_keys_of_a_large_grid_do_not_overflow_int32_indices():
    tensor = torch.sparse_csr_tensor(
        torch.tensor([0] * 100_000 + [1], dtype=torch.int32),
        torch.tensor([99_998], dtype=torch.int32),
        torch.ones(1),
        (100_000, 99_999),
        check_invariants=True,
    )

    assert keys_of(tensor).tolist() == [99_999 * 99_999 + 99_998]


@EXAMPLES_OF_EACH
@given(sample=samples(), data=st.data())
def test_on_cells_stores_the_cells_requested_and_is_well_formed(sample, data):
    like, grid = sample.tensor, grid_of(sample.tensor)
    wanted = data.draw(st.lists(st.integers(0, grid.cells - 1), unique=True, max_size=8)) if grid.cells else []

    made = on_cells(like, torch.tensor(wanted, dtype=torch.int64))

    keys, values = keys_of(validated(made)), stored_values(made)
    assert set(wanted) <= set(keys.tolist())
    assert len(set(keys.tolist())) == len(keys)
    assert bool(grid.batch) or len(keys) == len(wanted)
    assert not values.any()
    assert (made.layout, made.dtype, made.shape) == (like.layout, like.dtype, like.shape)
    assert grid_of(made) == grid
    assert index_tensors(made)[0].dtype == index_tensors(like)[0].dtype


@EXAMPLES_OF_EACH
@given(sample=samples(layouts=("CSR", "CSC", "BSR", "BSC"), least=3), data=st.data())
def test_a_batched_tensor_stores_as_many_cells_in_every_batch(sample, data):
    grid = grid_of(sample.tensor)
    wanted = data.draw(st.lists(st.integers(0, grid.cells - 1), unique=True, max_size=8)) if grid.cells else []
    area = max(1, len(sample.form.cells()))
    most = max([sum(key // area == batch for key in wanted) for batch in range(len(sample.form.batches()))], default=0)

    made = on_cells(sample.tensor, torch.tensor(wanted, dtype=torch.int64))

    assert len(keys_of(made)) == most * len(sample.form.batches())


@EXAMPLES_OF_EACH
@given(sample=samples(dtypes=(torch.float64, torch.complex128)))
def test_with_values_keeps_the_pattern_and_takes_the_values(sample):
    made = with_values(sample.tensor, 2 * stored_values(sample.tensor))

    validated(made)
    assert torch.equal(made.to_dense(), 2 * sample.dense)
    assert made.layout == sample.tensor.layout
    assert all(map(torch.equal, index_tensors(made), index_tensors(sample.tensor)))
    if made.layout == torch.sparse_coo:
        assert made.is_coalesced() == sample.tensor.is_coalesced()


def test_with_values_takes_other_indices():
    one = example("COO").tensor
    moved = one._indices().flip(1)

    made = with_values(example("uncoalesced COO").tensor, stored_values(one).flip(0), (moved,))

    assert torch.equal(made.to_dense(), one.to_dense())


@pytest.mark.parametrize("name", EXAMPLES)
def test_stored_values_are_no_copies_and_carry_no_graph(name):
    tensor = example(name).tensor.requires_grad_()
    values = stored_values(tensor)

    assert not values.requires_grad
    assert values.data_ptr() == stored_values(tensor).data_ptr()


@pytest.mark.parametrize("name", EXAMPLES)
def test_stored_values_count_duplicates(name):
    sample = example(name)

    assert stored_values(sample.tensor).numel() == len(list(sample.entries()))


@pytest.mark.parametrize("layout", ["COO", "CSR"])
def test_cells_that_hold_nothing_are_counted(layout):
    sample = build(Form(layout, (), (2, 3), dense=(0,)), [[(0, 1), (1, 2)]])

    assert keys_of(sample.tensor).tolist() == [1, 5]
    assert stored_values(sample.tensor).shape == (2, 0)


@pytest.mark.parametrize("layout", ["CSR", "BSC"])
def test_a_tensor_of_no_batch_is_made_anew(layout):
    like = build(Form(layout, (0,), (2, 3), (2, 2) if layout == "BSC" else ()), []).tensor

    assert on_cells(like, torch.zeros(0, dtype=torch.int64)).shape == like.shape


def test_a_grid_that_cannot_be_numbered_is_refused():
    tensor = torch.sparse_coo_tensor([[0], [0]], [1.0], (2**31, 2**31), check_invariants=True)

    with pytest.raises(InputError, match="more cells than can be numbered"):
        keys_of(tensor)


def test_a_grid_of_many_cells_is_numbered():
    tensor = torch.sparse_coo_tensor([[2**31 - 2], [2**30 - 2]], [1.0], (2**31 - 1, 2**30 - 1), check_invariants=True)
    keys = keys_of(tensor)

    assert grid_of(tensor).index(int(keys), 0) == (2**31 - 2, 2**30 - 2)


@EXAMPLES_OF_EACH
@given(shape=st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple), data=st.data())
def test_unravelled_is_what_numpy_says(shape, data):
    number = data.draw(st.integers(0, int(np.prod(shape)) - 1))

    assert unravel(number, shape) == tuple(map(int, np.unravel_index(number, shape)))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_have_names(layout):
    assert name_of(LAYOUTS[layout]) == layout


def test_keys_of_columns_count_column_by_column():
    sample = build(Form("CSC", (2,), (3, 2)), [[(0, 0), (2, 1)], [(1, 1), (2, 0)]])

    cells = {batch * 6 + column * 3 + row for batch, cells in enumerate(sample.stored) for row, column in cells}
    assert set(keys_of(sample.tensor).tolist()) == cells == {0, 5, 8, 10}


def test_every_entry_of_a_block_has_its_own_index():
    grid = Grid((2,), (2, 2), (2, 3), (2,))
    indices = [grid.index(key, offset) for key, offset in itertools.product(range(grid.cells), range(12))]

    assert sorted(indices) == list(itertools.product(range(2), range(4), range(6), range(2)))
