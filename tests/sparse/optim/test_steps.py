import pytest
import torch

from gradproof import InputError
from gradproof.sparse import Pattern, apply_gradient_, matmul, unpack
from support.sparse_matrices import LAYOUTS, sparse_matrix

KINDS = [(layout, batch, dense) for layout in LAYOUTS for batch in ((), (2,)) for dense in ((), (3,))]


def image(sparse):
    """Everything that a tensor holds, copied."""
    detached = sparse.detach()
    return [index.clone() for index in Pattern.of(sparse).indices], detached.to_dense()


def same_indices(before, sparse):
    return all(map(torch.equal, before[0], Pattern.of(sparse).indices))


@pytest.mark.parametrize(("layout", "batch", "dense"), KINDS)
def test_a_step_along_its_own_gradient_moves_the_stored_entries(layout, batch, dense):
    a = sparse_matrix(layout, batch=batch, dense=dense)
    before = image(a)
    unpack(a)[0].square().sum().backward()

    result = apply_gradient_(a, a.grad, lr=0.25)

    assert result is a
    assert same_indices(before, a)
    assert torch.allclose(a.detach().to_dense(), 0.5 * before[1])


@pytest.mark.parametrize(("layout", "batch", "dense"), KINDS)
def test_a_dense_gradient_is_read_at_the_stored_entries(layout, batch, dense):
    a = sparse_matrix(layout, batch=batch, dense=dense)
    before, gradient = image(a), torch.randn(a.shape, dtype=a.dtype)
    mask = Pattern.of(a).mask().reshape(*a.shape[: a.ndim - len(dense)], *[1] * len(dense))

    apply_gradient_(a, gradient, lr=0.5)

    assert same_indices(before, a)
    assert torch.allclose(a.detach().to_dense(), before[1] - 0.5 * gradient * mask)


@pytest.mark.parametrize("other", LAYOUTS)
@pytest.mark.parametrize("layout", ["coo", "csr", "csc"])
def test_a_gradient_of_another_layout_is_read_entry_by_entry(layout, other):
    a, gradient = sparse_matrix(layout), sparse_matrix(other).detach()
    before = image(a)

    apply_gradient_(a, gradient, lr=1.0, on_mismatch="project")

    assert same_indices(before, a)
    assert torch.allclose(a.detach().to_dense(), before[1] - gradient.to_dense() * Pattern.of(a).mask())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_gradient_of_another_pattern_is_an_error_unless_it_is_projected(layout):
    a = sparse_matrix(layout)
    before = image(a)
    gradient = torch.zeros_like(before[1])
    gradient[0, 0], gradient[1, 1] = 1.0, 5.0

    with pytest.raises(InputError, match="has another pattern"):
        apply_gradient_(a, gradient.to_sparse(), lr=1.0)
    assert image(a)[1].equal(before[1])

    apply_gradient_(a, gradient.to_sparse(), lr=1.0, on_mismatch="project")
    expected = before[1] - gradient * Pattern.of(a).mask()
    assert a.detach().to_dense().equal(expected)


def test_an_uncoalesced_gradient_is_added_up_first():
    a = torch.eye(2).to_sparse().coalesce()
    gradient = torch.sparse_coo_tensor([[0, 1, 0], [0, 1, 0]], [1.0, 2.0, 3.0], (2, 2), check_invariants=True)

    apply_gradient_(a, gradient, lr=1.0)

    assert a.to_dense().tolist() == [[-3, 0], [0, -1]]


def test_a_backward_through_values_from_before_the_step_is_an_error():
    a, x = sparse_matrix("csr"), torch.ones(6, 2, dtype=torch.float64, requires_grad=True)
    unpack(a)[0].sum().backward()
    result = matmul(a, x)
    apply_gradient_(a, a.grad, lr=1.0)

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        (lambda a: (a, torch.ones(3, 3, dtype=a.dtype), 1.0), {}, "a gradient has the shape"),
        (lambda a: (a, torch.ones(4, 6), 1.0), {}, "has dtype torch.float32"),
        (lambda a: (a, torch.ones(4, 6, dtype=a.dtype, device="meta"), 1.0), {}, "are on meta"),
        (lambda a: (a, None, 1.0), {}, "loss.backward"),
        (lambda a: (a, 3, 1.0), {}, "a int"),
        (lambda a: (a, a.detach(), float("nan")), {}, "learning rate is nan"),
        (lambda a: (a, a.detach(), 1.0), {"on_mismatch": "ignore"}, "error, project"),
        (lambda a: (a.detach().to_dense(), a.detach(), 1.0), {}, "strided"),
        (lambda a: (torch.cat([a.detach().to_sparse()] * 2).transpose(0, 1), None, 1.0), {}, "coalesce"),
    ],
)
def test_bad_input_is_refused_before_anything_is_changed(arguments, options, words):
    a = sparse_matrix("csr")
    before = image(a)

    with pytest.raises(InputError, match=words):
        apply_gradient_(*arguments(a), **options)

    assert image(a)[1].equal(before[1])
