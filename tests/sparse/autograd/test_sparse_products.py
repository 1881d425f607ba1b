"""Sparse times sparse: the numbers of the dense product, verified derivatives, entries only where two meet."""

import pytest
import torch

import gradproof
from gradproof import InputError
from gradproof.sparse import Pattern, SparseLinear, convert, matmul
from gradproof.sparse.autograd.sparse_products import Pairs, multiply
from support.sparse_matrices import LAYOUTS, sparse_matrix, stored_mask

DTYPES = (torch.float64, torch.complex128)
MODES = ("reverse", "forward")


def right_matrix(layout, dtype=torch.float64):
    """Six rows, and four columns of which one is empty."""
    whole = sparse_matrix("coo", dtype).detach().to_dense().mT
    sparse = whole.to_sparse(layout=LAYOUTS[layout], blocksize=(3, 2) if layout in ("bsr", "bsc") else None)
    return sparse.coalesce().requires_grad_() if layout == "coo" else sparse.requires_grad_()


@pytest.mark.parametrize("right", LAYOUTS)
@pytest.mark.parametrize("left", LAYOUTS)
def test_products_of_all_layouts_and_their_gradients_are_those_of_dense_matrices(left, right):
    a, b = sparse_matrix(left), right_matrix(right)
    whole = [matrix.detach().to_dense().requires_grad_() for matrix in (a, b)]
    weights = torch.randn(4, 4, dtype=torch.float64)

    product = matmul(a, b)
    (convert(product, torch.strided) * weights).sum().backward()
    (whole[0] @ whole[1] * weights).sum().backward()

    assert product.layout is torch.sparse_csr
    assert torch.allclose(product.detach().to_dense(), (whole[0] @ whole[1]).detach())
    for sparse, dense in zip((a, b), whole, strict=True):
        assert sparse.grad.layout is sparse.layout
        assert torch.allclose(sparse.grad.to_dense(), dense.grad * stored_mask(sparse))


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_derivatives_of_the_product_are_verified(layout, dtype, order):
    patterns = [Pattern.of(sparse_matrix(layout, dtype)), Pattern.of(right_matrix(layout, dtype))]
    values = [torch.randn(pattern.values_shape, dtype=dtype, requires_grad=True) for pattern in patterns]

    def product(a, b):
        return multiply((patterns[0], a), (patterns[1], b))[1]

    report = gradproof.check(product, values, modes=MODES, order=order, seed=0)

    assert report.passed, report
    assert len(report.subject.derivatives) == 2 * order


@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_the_sparse_product_itself_is_verified_with_its_sparse_inputs(layout):
    a, b = sparse_matrix(layout), right_matrix(layout)

    report = gradproof.check(matmul, (a, b), masked=True, seed=0)

    assert report.passed, report


def test_an_entry_is_stored_wherever_two_meet_and_nowhere_else():
    a, b = sparse_matrix("csr").detach(), right_matrix("csc").detach()
    meetings = (a.to_dense() != 0).double() @ (b.to_dense() != 0).double()

    product = matmul(a, b)

    assert stored_mask(product).equal(meetings > 0)
    assert Pairs.of(Pattern.of(a), Pattern.of(b)).left.numel() == int(meetings.sum())


def test_memory_is_that_of_the_meetings():
    size = 100_000  # ten thousand million positions
    pattern = Pattern.from_indices(torch.arange(size).expand(2, size), (size, size))
    values = torch.randn(size)

    product = matmul((pattern, values), (pattern.transposed, values))

    assert product.values().equal(values * values)


def test_what_meets_is_found_once_for_two_patterns():
    a, b = Pattern.of(sparse_matrix("coo")), Pattern.of(right_matrix("csr"))

    assert Pairs.of(a, b) is Pairs.of(a, b)


@pytest.mark.parametrize("empty", ["left", "right"])
def test_nothing_times_something_is_nothing(empty):
    a, b = Pattern.random((3, 5), 0.0 if empty == "left" else 0.5), Pattern.random((5, 2), 0.0)

    product = matmul((a, torch.randn(a.entries)), (b, torch.randn(b.entries)))

    assert (product.shape, product.values().numel()) == ((3, 2), 0)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_sparse_linear_layer_takes_sparse_rows(layout):
    layer, x = SparseLinear(6, 3, density=0.5, dtype=torch.float64), sparse_matrix(layout)
    weights = torch.randn(4, 3, dtype=torch.float64)

    def of(rows):
        result = layer(rows)
        return [result, *torch.autograd.grad((result * weights).sum(), list(layer.parameters()))]

    assert all(map(torch.allclose, of(x), of(x.detach().to_dense())))


def test_derivatives_of_a_layer_with_a_sparse_input_are_verified():
    layer, x = SparseLinear(6, 3, density=0.5, dtype=torch.float64), sparse_matrix("csr")

    with_input = gradproof.check(layer, x, masked=True, seed=0)
    of_weights = gradproof.check(layer, x.detach(), modes=MODES, order=2, seed=0)

    assert with_input.passed, with_input
    assert of_weights.passed, of_weights


def test_a_batch_is_refused_with_a_reason():
    with pytest.raises(InputError, match="one by one"):
        matmul(sparse_matrix("csr", batch=(2,)), right_matrix("csr"))
