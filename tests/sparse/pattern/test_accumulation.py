"""Gradients that reach one sparse leaf by several ways: their sum, in the leaf's layout, with nothing lost."""

import itertools

import pytest
import torch

from gradproof import check
from gradproof.sparse import convert, mask, matmul, optimizer, repack, unpack
from support.sparse_matrices import BLOCKS, LAYOUTS, sparse_matrix, stored_mask

KINDS = [(layout, batch, dense) for layout in LAYOUTS for batch in ((), (2,)) for dense in ((), (3,))]
PLAIN_AND_FULL = [kind for kind in KINDS if bool(kind[1]) == bool(kind[2])]  # neither batch nor dense, or both


def weights_like(leaf):
    return torch.arange(1.0, leaf.numel() + 1, dtype=leaf.dtype).reshape(leaf.shape)


def converted(tensor, layout):
    return convert(tensor, LAYOUTS[layout], blocksize=BLOCKS if layout in ("bsr", "bsc") else None)


def uses_of(leaf):
    """Scalars of a leaf by every way of reading it, each with its gradient."""
    weights, stored = weights_like(leaf), stored_mask(leaf)
    other = mask(
        weights, converted((weights * (weights % 3 == 0)).to_sparse(len(leaf.shape) - leaf.dense_dim()), "coo")
    )

    def weighted(tensor):
        return (unpack(tensor)[0] * unpack(mask(weights, tensor.detach()))[0]).sum()

    def unpacked(leaf, *, masked):
        values, pattern = unpack(leaf, masked=masked)
        return (values * unpack(mask(weights, pattern))[0]).sum()

    uses = {
        "entries": (weighted, weights * stored),
        "unpack, masked": (lambda leaf: unpacked(leaf, masked=True), weights * stored),
        "unpack": (lambda leaf: unpacked(leaf, masked=False), weights),
        "mask": (lambda leaf: weighted(mask(leaf, other)), weights * stored_mask(other)),
        "strided": (lambda leaf: (convert(leaf, torch.strided) * weights).sum(), weights),
    }
    for target in LAYOUTS:
        made = converted(leaf.detach(), target)
        if made.layout is not leaf.layout:
            uses[target] = (
                lambda leaf, target=target: weighted(converted(leaf, target)),
                weights * stored_mask(made),
            )
    return uses


@pytest.mark.parametrize(("layout", "batch", "dense"), PLAIN_AND_FULL)
def test_two_uses_of_a_leaf_add_up_in_its_layout(layout, batch, dense):
    a = sparse_matrix(layout, batch=batch, dense=dense)
    for (name, (one, its)), (other_name, (other, others)) in itertools.combinations_with_replacement(
        uses_of(a).items(), 2
    ):
        a.grad = None

        (one(a) + other(a)).backward()

        assert torch.equal(a.grad.to_dense(), its + others), (name, other_name)
        assert "strided" in (name, other_name) or a.grad.layout is a.layout, (name, other_name)


@pytest.mark.parametrize(("layout", "batch", "dense"), KINDS)
def test_the_gradients_of_many_backwards_add_up(layout, batch, dense):
    a = sparse_matrix(layout, batch=batch, dense=dense)
    uses = list(uses_of(a).values())

    for order in (uses, uses[::-1]):
        a.grad, expected = None, torch.zeros(a.shape, dtype=a.dtype)
        for use, gradient in order:
            use(a).backward()
            expected += gradient

            assert torch.equal(a.grad.to_dense(), expected)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_gradient_on_fewer_entries_than_the_leaf_has_can_be_stepped_along(layout):
    a = sparse_matrix(layout)
    before = a.detach().to_dense()
    corner = torch.zeros_like(before)
    corner[0, 0] = 1.0
    sgd = optimizer(torch.optim.SGD, [a], lr=1.0)

    unpack(mask(a, corner.to_sparse()))[0].sum().backward()
    sgd.step()

    assert torch.equal(a.detach().to_dense(), before - corner)


@pytest.mark.parametrize(("layout", "batch", "dense"), PLAIN_AND_FULL)
@pytest.mark.parametrize("order", [1, 2])
def test_functions_that_read_a_leaf_in_several_ways_pass_a_check(layout, batch, dense, order):
    a = sparse_matrix(layout, batch=batch, dense=dense)

    def mixed(a):
        values, pattern = unpack(a, masked=True)
        return repack(values**2, pattern), unpack(a)[0].sin(), unpack(converted(a, "coo"))[0].square()

    report = check(mixed, a, masked=True, order=order, seed=0)

    assert report.passed, report


def test_a_leaf_is_multiplied_and_masked():
    a = sparse_matrix("bsc")
    x = torch.randn(6, 2, dtype=torch.float64)

    (matmul(a, x).sum() + unpack(mask(a, torch.eye(4, 6).to_sparse()))[0].sum()).backward()

    expected = x.sum(1).expand(4, 6) * stored_mask(a) + torch.eye(4, 6, dtype=torch.float64)
    assert a.grad.layout is torch.sparse_bsc
    assert torch.allclose(a.grad.to_dense(), expected)


def test_the_kind_of_index_is_kept_where_a_gradient_has_more_entries():
    a = torch.sparse_csc_tensor(
        torch.tensor([0, 1, 2], dtype=torch.int32),
        torch.tensor([0, 1], dtype=torch.int32),
        torch.ones(2),
        (2, 2),
        requires_grad=True,
    )

    (unpack(a, masked=False)[0].sum() + unpack(a)[0].sum()).backward()

    assert a.grad.row_indices().dtype is torch.int32
    assert torch.equal(a.grad.to_dense(), torch.tensor([[2.0, 1.0], [1.0, 2.0]]))
