"""Gradients of sparse leaves: on the stored entries, in the leaf's layout, added up over backwards."""

import gc
import weakref

import pytest
import torch

from gradproof.sparse import Pattern, matmul, repack, unpack
from support.sparse_matrices import LAYOUTS, sparse_matrix

KINDS = [(layout, batch, dense) for layout in LAYOUTS for batch in ((), (2,)) for dense in ((), (3,))]


@pytest.mark.parametrize(("layout", "batch", "dense"), KINDS)
def test_backward_leaves_a_gradient_of_the_leafs_layout(layout, batch, dense):
    a = sparse_matrix(layout, batch=batch, dense=dense)

    unpack(a)[0].square().sum().backward()

    assert a.grad.layout is a.layout
    assert torch.allclose(a.grad.to_dense(), 2 * a.detach().to_dense())


@pytest.mark.parametrize(("layout", "batch", "dense"), KINDS)
def test_gradients_add_up_within_a_backward_and_over_several(layout, batch, dense):
    a = sparse_matrix(layout, batch=batch, dense=dense)

    (unpack(a)[0] * unpack(a)[0]).sum().backward()
    unpack(a)[0].sum().backward()
    unpack(a)[0].square().sum().backward()

    expected = 4 * a.detach().to_dense() + Pattern.of(a).mask().reshape(
        *a.shape[: a.ndim - len(dense)], *[1] * len(dense)
    )
    assert a.grad.layout is a.layout
    assert torch.allclose(a.grad.to_dense(), expected)


@pytest.mark.parametrize(("layout", "batch", "dense"), KINDS)
@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph=True")
def test_a_gradient_can_be_differentiated_again(layout, batch, dense):
    a = sparse_matrix(layout, batch=batch, dense=dense)

    unpack(a)[0].pow(3).sum().backward(create_graph=True)
    (second,) = torch.autograd.grad(unpack(a.grad)[0].sum(), a)
    a.grad = None  # a gradient with a history and its leaf hold each other

    assert torch.allclose(second.to_dense(), 6 * a.detach().to_dense())


def test_what_torch_added_already_is_added_to():
    a = sparse_matrix("csc")
    mask = Pattern.of(a).mask()

    a.sum().backward()  # a strided gradient, by torch's own rule
    strided = a.grad.layout
    unpack(a)[0].sum().backward()
    unpack(a)[0].sum().backward()

    assert strided is torch.strided
    assert torch.allclose(a.grad.to_dense()[mask], torch.full((int(mask.sum()),), 3.0, dtype=torch.float64))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_sparse_tensor_that_is_no_leaf_passes_its_gradient_on(layout):
    pattern = Pattern.of(sparse_matrix(layout))
    values = torch.randn(pattern.values_shape, dtype=torch.float64, requires_grad=True)
    a = repack(values, pattern)

    (unpack(a)[0] * unpack(a)[0]).sum().backward()

    assert torch.allclose(values.grad, 2 * values.detach())


def test_entries_that_need_no_gradient_have_none():
    assert not unpack(sparse_matrix("csr").detach())[0].requires_grad


def test_leaves_of_every_layout_are_freed_when_they_are_gone():
    gone = {}
    for layout in LAYOUTS:
        a = sparse_matrix(layout)
        matmul(a, torch.ones(6, 2, dtype=torch.float64)).sum().backward()
        gone[layout] = weakref.ref(a)
    del a
    gc.collect()

    assert [layout for layout, leaf in gone.items() if leaf() is not None] == []
