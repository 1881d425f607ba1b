"""Where sparse results are observed: on the patterns of inputs where they are the same, and in no more memory."""

import pytest
import torch

from gradproof import check
from gradproof.frameworks.torch.charts import Semantics
from gradproof.frameworks.torch.subject.torch_subject import TorchSubject
from gradproof.sparse.pattern.layouts import index_tensors, stored_values

DIAGONAL = {"COO": torch.eye(4).double().to_sparse(), "CSR": torch.eye(4).double().to_sparse_csr()}


def subject_of(function, tensor, *, masked):
    return TorchSubject.of(function, tensor.clone().requires_grad_(), None, Semantics(masked=masked))


@pytest.mark.parametrize("layout", DIAGONAL)
@pytest.mark.parametrize("masked", [True, False])
def test_an_output_on_the_pattern_of_an_input_shares_its_indices(layout, masked):
    subject = subject_of(lambda tensor: 2 * tensor, DIAGONAL[layout], masked=masked)
    asked, moved = (space.tensors(torch.ones(space.size)) for space in (subject.outputs, subject.inputs))

    assert [index.data_ptr() for index in index_tensors(asked[0])] == [
        index.data_ptr() for index in index_tensors(moved[0])
    ]


def test_a_shared_pattern_keeps_the_output_s_kind_of_number():
    tensor = torch.eye(4, dtype=torch.complex128).to_sparse().mul(1 + 2j).requires_grad_()

    assert check(torch.abs, tensor, masked=True, contracts=()).passed


@pytest.mark.parametrize("layout", DIAGONAL)
def test_the_point_moves_by_a_step_where_it_stores_nothing_too(layout):
    point = 3 * DIAGONAL[layout]
    subject = subject_of(lambda tensor: 2 * tensor, point, masked=False)
    (step,) = subject.inputs.tensors(torch.arange(16.0, dtype=torch.float64))
    (moved,) = subject.inputs.displaced(subject.points, [step], 0.5, None)

    assert torch.equal(moved.to_dense(), point.to_dense() + torch.arange(16).double().reshape(4, 4) / 2)


def test_a_pattern_takes_no_memory_for_values():
    subject = subject_of(lambda tensor: 2 * tensor, DIAGONAL["CSR"], masked=False)

    assert stored_values(subject.inputs.parts[0].chart.template).untyped_storage().nbytes() == 8


def test_a_complex_sparse_output_without_a_gradient_is_diagnosed():
    tensor = torch.eye(4, dtype=torch.complex128).to_sparse().requires_grad_()

    assert check(lambda tensor: (2 * tensor).detach(), tensor, masked=True).verdict.value == "fail"
