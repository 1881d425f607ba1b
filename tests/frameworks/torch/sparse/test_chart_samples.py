"""Of a large grid a chart takes a sample of the cells that store nothing."""

import pytest
import torch

from gradproof.frameworks.torch.charts import Semantics, chart_of
from gradproof.sparse.pattern.templates import ALL
from support.charts import FULL, MASKED, places
from support.sparse_samples import example

LARGE = {
    "COO": torch.sparse_coo_tensor([[5, 70], [5, 90]], [1.0, 2.0], (90, 120), check_invariants=True),
    "uncoalesced COO": torch.sparse_coo_tensor([[70, 5], [5, 90]], [1.0, 2.0], (90, 120), check_invariants=True),
    "CSR": torch.eye(90, 120, dtype=torch.float64).to_sparse_csr(),
    "CSC": torch.eye(90, 120, dtype=torch.float64).to_sparse_csc(),
    "BSR": torch.eye(132, 140, dtype=torch.float64).to_sparse_bsr((2, 2)),
    "BSC": torch.eye(132, 140, dtype=torch.float64).to_sparse_bsc((2, 2)),
    "hybrid COO": torch.sparse_coo_tensor([[5, 70], [5, 90]], torch.ones(2, 2), (90, 120, 2), check_invariants=True),
    "three dimensions": torch.sparse_coo_tensor([[1], [2], [3]], [1.0], (20, 30, 25), check_invariants=True),
    "batched CSR": torch.eye(60, 70, dtype=torch.float64).expand(3, 60, 70).to_sparse_csr(),
    "batched BSC": torch.eye(80, 84, dtype=torch.float64).expand(3, 80, 84).to_sparse_bsc((2, 2)),
}


@pytest.mark.parametrize("name", LARGE)
def test_a_sample_of_a_large_grid_visits_every_row_and_every_column(name):
    tensor = LARGE[name]
    chart = chart_of(tensor, Semantics(masked=False, seed=1))
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


def test_a_sample_is_noted_and_a_whole_is_not():
    large, small = LARGE["CSR"], example("CSR").tensor

    assert "of the 10,710 entries that are not stored (masked=False)" in (chart_of(large, FULL).remarks("x")[0])
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
