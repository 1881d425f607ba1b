"""Several heads on one pattern: what each head would give alone, and derivatives that gradproof accepts."""

import pytest
import torch

import gradproof
from gradproof import InputError
from gradproof.sparse import Pattern, attention, column_sums, matmul, row_softmax, row_sums, sampled_matmul
from support.sparse_matrices import COLUMNS, LAYOUTS, ROWS, sparse_matrix

MODES = ("reverse", "forward")
HEADS = 3


def random(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


def by_head(product, *operands):
    """The product of one head after the other; `operands` come with the dimension of their heads."""
    return torch.stack([product(*(tensor.select(dim, h) for tensor, dim in operands)) for h in range(HEADS)], 1)


def cases(pattern, dtype):
    values = random(*pattern.values_shape, HEADS, dtype=dtype)
    right = random(pattern.shape[1], HEADS, 2, dtype=dtype)
    left, columns = random(pattern.shape[0], HEADS, 2, dtype=dtype), random(2, HEADS, pattern.shape[1], dtype=dtype)
    made = {
        "product": (
            lambda v, d: matmul((pattern, v), d),
            lambda v, d: by_head(lambda v, d: matmul((pattern, v), d), (v, -1), (d, 1)),
            (values, right),
        ),
        "sampled": (
            lambda x, y: sampled_matmul(pattern, x, y).reshape(pattern.entries, HEADS),
            lambda x, y: by_head(lambda x, y: sampled_matmul(pattern, x, y).reshape(-1), (x, 1), (y, 1)),
            (left, columns),
        ),
        "row sums": (
            lambda v: row_sums((pattern, v)),
            lambda v: by_head(lambda v: row_sums((pattern, v)), (v, -1)),
            (values,),
        ),
        "column sums": (
            lambda v: column_sums((pattern, v)),
            lambda v: by_head(lambda v: column_sums((pattern, v)), (v, -1)),
            (values,),
        ),
    }
    if not dtype.is_complex:
        made["softmax"] = (
            lambda v: row_softmax((pattern, v)).reshape(pattern.entries, HEADS),
            lambda v: by_head(lambda v: row_softmax((pattern, v)).reshape(-1), (v, -1)),
            (values,),
        )
    return made


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_heads_are_computed_as_if_each_was_alone(layout, dtype):
    for name, (ours, alone, operands) in cases(Pattern.of(sparse_matrix(layout)), dtype).items():
        result, expected = ours(*operands), alone(*operands)
        weights = torch.randn_like(expected)
        assert torch.allclose(result, expected), name
        gradients = (torch.autograd.grad(found, operands, weights) for found in (result, expected))
        assert all(map(torch.allclose, *gradients)), name


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize(("layout", "dtype"), [("coo", torch.float64), ("csc", torch.complex128)])
def test_derivatives_with_heads_are_verified(layout, dtype, order):
    for name, (ours, _, operands) in cases(Pattern.of(sparse_matrix(layout)), dtype).items():
        report = gradproof.check(ours, operands, modes=MODES, order=order, seed=0)

        assert report.passed, f"{name}\n{report}"


@pytest.mark.parametrize("order", [1, 2])
def test_sparse_tensors_with_heads_are_multiplied(order):
    a = sparse_matrix("csr", dense=(HEADS,))
    right = random(COLUMNS, HEADS, 2)

    expected = torch.einsum("ijh,jhk->ihk", a.detach().to_dense(), right.detach())
    assert torch.allclose(matmul(a, right), expected)
    report = gradproof.check(matmul, (a, right), masked=True, order=order, seed=0)
    assert report.passed, report


def test_one_dense_operand_serves_all_heads_and_batches():
    pattern = Pattern.random((4, 6), 0.5)
    values, right = random(12, HEADS), random(5, 6, 1, 2)

    expected = torch.stack([torch.stack([matmul((pattern, v), d[:, 0]) for v in values.T], 1) for d in right])
    assert torch.allclose(matmul((pattern, values), right), expected)


@pytest.mark.parametrize("name", ["product", "sampled", "row sums", "softmax"])
def test_products_with_heads_are_mapped_over_a_batch(name):
    ours, alone, operands = cases(Pattern.of(sparse_matrix("coo")), torch.float64)[name]
    for k, operand in enumerate(operands):
        dims = tuple(0 if j == k else None for j in range(len(operands)))
        stack = torch.stack([operand.detach(), 2 * operand.detach()])
        arguments = [stack if j == k else other for j, other in enumerate(operands)]
        mapped = [torch.func.vmap(product, in_dims=dims)(*arguments) for product in (ours, alone)]
        assert torch.allclose(*mapped)


def dense_attention(mask, query, key, value):
    scores = torch.einsum("ihk,jhk->hij", query, key) / query.shape[-1] ** 0.5
    weights = scores.masked_fill(~mask, -torch.inf).softmax(-1).nan_to_num(0.0)
    return torch.einsum("hij,jhk->ihk", weights, value)


@pytest.mark.parametrize("layout", ["coo", "csr", "csc"])
def test_attention_is_that_of_the_dense_computation(layout):
    pattern = Pattern.of(sparse_matrix(layout))
    operands = random(ROWS, HEADS, 2), random(COLUMNS, HEADS, 2), random(COLUMNS, HEADS, 4)

    assert torch.allclose(attention(pattern, *operands), dense_attention(pattern.mask(), *operands))
    without_heads = [operand[:, 0] for operand in operands]
    assert torch.allclose(attention(pattern, *without_heads), attention(pattern, *operands)[:, 0])


@pytest.mark.parametrize("order", [1, 2])
def test_derivatives_of_attention_are_verified(order):
    pattern = Pattern.of(sparse_matrix("coo"))
    operands = random(ROWS, 2, 2), random(COLUMNS, 2, 2), random(COLUMNS, 2, 3), random(pattern.entries, 2)

    report = gradproof.check(
        lambda q, k, v, b: attention(pattern, q, k, v, bias=b), operands, modes=MODES, order=order, seed=0
    )

    assert report.passed, report


def test_attention_keeps_no_line_of_features_for_each_edge():
    pattern, width = Pattern.random((50, 50), 0.5), 64
    operands = [torch.randn(50, 1, width, requires_grad=True) for _ in range(3)]
    saved = []

    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: saved.append(tensor.numel()) or tensor, lambda t: t):
        attention(pattern, *operands)

    assert max(saved) <= 50 * width < pattern.entries * width


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda p, v: matmul((p, v), torch.ones(6, 2)), "heads"),
        (lambda p, v: matmul((p, v), torch.ones(6, 4, 2)), "it needs them, or ones"),
        (lambda p, v: matmul(torch.ones(2, 4), (p, v)), "pattern.transposed"),
        (lambda p, v: sampled_matmul(p, torch.ones(4, 3, 2), torch.ones(2, 2, 6)), "the same heads"),
        (lambda p, v: attention(p, torch.ones(4, 3, 2), torch.ones(6, 2), torch.ones(6, 2)), "key has shape"),
        (lambda p, v: attention(3, v, v, v), "The pattern is a int"),
        (
            lambda p, v: attention(p, torch.ones(4, 2), torch.ones(6, 2), torch.ones(6, 2), bias=torch.ones(3)),
            "bias has",
        ),
    ],
)
def test_operands_whose_heads_do_not_fit_are_refused(ask, words):
    with pytest.raises(InputError, match=words):
        ask(Pattern.random((4, 6), 0.5), torch.ones(12, HEADS))
