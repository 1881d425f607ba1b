"""Functions of masked tensors."""

import pytest
import torch
from torch.masked import masked_tensor

import gradproof
from support.sparse_rules import with_values


def masked(layout):
    data = torch.tensor([[1.0, 0.0, 2.0], [0.0, 3.0, 4.0]], dtype=torch.float64)
    data = data.to_sparse_coo() if layout == "COO" else data.to_sparse_csr()
    return masked_tensor(data, with_values(data, torch.ones(4, dtype=torch.bool)), requires_grad=True)


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch's, of what masked tensors are made of
@pytest.mark.parametrize("layout", ["COO", "CSR"])
def test_a_masked_sum_that_torch_cuts_from_the_graph_is_found(layout):
    report = gradproof.check(lambda x: x.sum(), masked(layout), seed=0)

    assert [finding.kind for finding in report.findings] == ["detached"]


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch's, of what masked tensors are made of
def test_of_a_masked_tensor_it_is_not_said_that_every_entry_is_an_input():
    report = gradproof.check(lambda x: x.sum(), masked("CSR"), seed=0)

    assert "every entry is an input" not in report.findings[0].message


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch's, of what masked tensors are made of
@pytest.mark.parametrize("layout", ["COO", "CSR"])
def test_functions_of_masked_sparse_data_pass(layout):
    assert gradproof.check(lambda x: x.sin(), masked(layout), seed=0).passed
    assert gradproof.check(lambda x: x * x, masked(layout), seed=0, coverage="full").passed
