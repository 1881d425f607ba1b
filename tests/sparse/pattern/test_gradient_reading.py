"""Gradients read at patterns: equal indices are found by comparison, once for each tensor."""

import pytest
import torch

from gradproof import InputError
from gradproof.sparse import Pattern, apply_gradient_, optimizer
from gradproof.sparse.pattern.layouts import index_tensors, stored_values, with_values
from gradproof.sparse.pattern.values import read_at
from support.sparse_matrices import LAYOUTS


@pytest.fixture
def comparisons(monkeypatch):
    """Count how often indices are compared."""
    seen, equal = [], torch.equal
    monkeypatch.setattr(torch, "equal", lambda one, other: seen.append(one.shape) or equal(one, other))
    return seen


def diagonal(layout, *, flipped=False):
    """A matrix with entries, or blocks, along one diagonal or the other: as many, at other places."""
    whole = torch.eye(4).flip(0) if flipped else torch.eye(4)
    blocksize = (2, 2) if layout in ("bsr", "bsc") else None
    return whole.to_sparse(layout=LAYOUTS[layout], blocksize=blocksize)


def copied(leaf):
    """A gradient of a leaf whose indices are copies of the leaf's, as torch's own backwards make it."""
    indices = tuple(index.clone() for index in index_tensors(leaf.detach()))
    return with_values(leaf.detach(), torch.ones_like(stored_values(leaf)), indices)


@pytest.mark.parametrize("layout", ["coo", "csr"])  # torch's backwards bring no others
def test_a_gradient_that_a_backward_brought_is_not_compared_again_in_the_step(layout, comparisons):
    a = diagonal(layout).requires_grad_()
    before = stored_values(a).clone()
    sgd = optimizer(torch.optim.SGD, [a], lr=0.5)

    torch.autograd.backward([a], [copied(a)])
    compared = len(comparisons)
    sgd.step()
    sgd.step()

    assert 0 < compared == len(comparisons)
    assert stored_values(a).equal(before - 1)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_new_gradient_is_compared(layout):
    a = diagonal(layout).requires_grad_()
    sgd = optimizer(torch.optim.SGD, [a], lr=0.5)
    a.grad = copied(a)
    sgd.step()
    before = stored_values(a).clone()

    a.grad = diagonal(layout, flipped=True)

    with pytest.raises(InputError, match="has another pattern"):
        sgd.step()
    assert stored_values(a).equal(before)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_gradient_whose_indices_were_written_to_is_compared_again(layout):
    a = diagonal(layout).requires_grad_()
    sgd = optimizer(torch.optim.SGD, [a], lr=0.5)
    a.grad = copied(a)
    sgd.step()
    before = stored_values(a).clone()

    for index, other in zip(index_tensors(a.grad), index_tensors(diagonal(layout, flipped=True)), strict=True):
        index.copy_(other)

    with pytest.raises(InputError, match="has another pattern"):
        sgd.step()
    assert stored_values(a).equal(before)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_gradient_is_compared_again_where_the_leafs_indices_were_written_to(layout):
    a = diagonal(layout).requires_grad_()
    gradient = copied(a)
    apply_gradient_(a, gradient, 0.5)

    for index, other in zip(index_tensors(a.detach()), index_tensors(diagonal(layout, flipped=True)), strict=True):
        index.copy_(other)

    with pytest.raises(InputError, match="has another pattern"):
        apply_gradient_(a, gradient, 0.5)


def test_blocks_of_another_size_at_the_same_places_are_another_pattern():
    a = torch.zeros(2, 4).index_fill_(1, torch.tensor([0, 1]), 1.0).to_sparse_bsr((2, 2)).requires_grad_()
    gradient = torch.ones(2, 4).to_sparse_bsr((2, 4))

    with pytest.raises(InputError, match="has another pattern"):
        apply_gradient_(a, gradient, 1.0)
    assert apply_gradient_(a, gradient, 1.0, on_mismatch="project").detach().to_dense().equal(torch.zeros(2, 4))


def test_a_gradient_made_in_inference_mode_is_read_and_not_remembered(comparisons):
    pattern = Pattern.of(torch.eye(3).to_sparse_csr())
    with torch.inference_mode():
        gradient = torch.eye(3).to_sparse_csr()

    first = read_at(pattern, gradient)
    compared = len(comparisons)
    read_at(pattern, gradient)

    assert first.tolist() == [1, 1, 1]
    assert 0 < compared < len(comparisons)
