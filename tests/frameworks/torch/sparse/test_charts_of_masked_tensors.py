"""The chart of a masked tensor: the entries that are not masked out."""

import warnings

import pytest
import torch
from torch.masked import masked_tensor

from gradproof.frameworks.torch.charts import chart_of
from gradproof.frameworks.torch.storage import data_and_mask
from support.charts import FULL, drawn, places


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
