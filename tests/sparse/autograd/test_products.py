"""Every product in every layout: the same numbers as the dense computation, and derivatives that gradproof accepts."""

import pytest
import torch

import gradproof
from gradproof import InputError
from gradproof.sparse import (
    Pattern,
    column_sums,
    matmul,
    multiply,
    repack,
    row_softmax,
    row_sums,
    sampled_matmul,
    unpack,
)
from support.sparse_matrices import COLUMNS, LAYOUTS, ROWS, sparse_matrix

DTYPES = (torch.float64, torch.complex128)
PLACES = [(layout, batch) for layout in LAYOUTS for batch in ((), (2,))]
MODES = ("reverse", "forward")


def random(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


def masked_softmax(whole, mask):
    return whole.masked_fill(~mask, -torch.inf).softmax(-1).nan_to_num(0.0) * mask


def cases(layout, batch, dtype):
    """Name, the product of (values, other), the same on dense tensors, and the other operand."""
    pattern = Pattern.of(sparse_matrix(layout, dtype, batch=batch))
    at = tuple(pattern.coordinates)

    def whole(values):
        return torch.zeros(pattern.shape, dtype=values.dtype).index_put(at, values.reshape(-1))

    def stored(dense):
        return dense[at].reshape(pattern.values_shape)

    values = random(*pattern.values_shape, dtype=dtype)
    right, left = random(*batch, COLUMNS, 3, dtype=dtype), random(*batch, 3, ROWS, dtype=dtype)
    thin = random(*batch, ROWS, 2, dtype=dtype)
    wide = random(*batch, 2, COLUMNS, dtype=dtype)
    vector = random(COLUMNS, dtype=dtype)
    full = random(*batch, ROWS, COLUMNS, dtype=dtype)
    row = random(1, COLUMNS, dtype=dtype)
    made = {
        "sparse × matrix": (lambda v, d: matmul((pattern, v), d), lambda v, d: whole(v) @ d, (values, right)),
        "sparse × vector": (lambda v, d: matmul((pattern, v), d), lambda v, d: whole(v) @ d, (values, vector)),
        "matrix × sparse": (lambda v, d: matmul(d, (pattern, v)), lambda v, d: d @ whole(v), (values, left)),
        "sampled": (lambda x, y: sampled_matmul(pattern, x, y), lambda x, y: stored(x @ y), (thin, wide)),
        "by a full one": (lambda v, d: multiply((pattern, v), d), lambda v, d: stored(whole(v) * d), (values, full)),
        "by a row": (lambda v, d: multiply((pattern, v), d), lambda v, d: stored(whole(v) * d), (values, row)),
        "row sums": (lambda v: row_sums((pattern, v)), lambda v: whole(v).sum(-1), (values,)),
        "column sums": (lambda v: column_sums((pattern, v)), lambda v: whole(v).sum(-2), (values,)),
    }
    if not dtype.is_complex:
        made["softmax"] = (
            lambda v: row_softmax((pattern, v)),
            lambda v: stored(masked_softmax(whole(v), pattern.mask())),
            (values,),
        )
    return made


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("layout", "batch"), PLACES)
def test_products_are_those_of_the_dense_computation(layout, batch, dtype):
    for name, (sparse, dense, operands) in cases(layout, batch, dtype).items():
        ours, theirs = sparse(*operands), dense(*operands)
        weights = torch.randn_like(theirs)
        assert torch.allclose(ours, theirs), name
        mine = torch.autograd.grad(ours, operands, weights)
        expected = torch.autograd.grad(theirs, operands, weights)
        assert all(map(torch.allclose, mine, expected)), name


# The first derivatives of real numbers are held against the dense computation above.
VERIFIED = [(layout, batch, torch.complex128, 1) for layout, batch in PLACES] + [
    (layout, batch, torch.float64, 2) for layout, batch in PLACES
]


@pytest.mark.parametrize(
    ("layout", "batch", "dtype", "order"),
    [*VERIFIED, ("coo", (), torch.complex128, 2), ("bsc", (2,), torch.complex128, 2)],
)
def test_derivatives_of_products_are_verified(layout, batch, dtype, order):
    for name, (sparse, _, operands) in cases(layout, batch, dtype).items():
        report = gradproof.check(sparse, operands, modes=MODES, order=order, seed=0)
        assert report.passed, f"{name}\n{report}"
        assert len(report.subject.derivatives) == 2 * order


@pytest.mark.parametrize("layout", ["coo", "csr", "csc"])
def test_every_entry_of_a_products_jacobian_is_verified(layout):
    for name, (sparse, _, operands) in cases(layout, (), torch.float64).items():
        report = gradproof.check(sparse, operands, modes=MODES, coverage="full", seed=0)
        assert report.passed, f"{name}\n{report}"


def test_a_wrong_derivative_of_a_product_would_be_found(monkeypatch):
    pattern, values, dense = Pattern.random((4, 6), 0.5), random(12), random(6, 3)
    right = pattern.by_columns
    monkeypatch.setitem(pattern.__dict__, "by_columns", type(right)(6, 4, right.crow_indices, right.col_indices, None))

    assert not gradproof.check(lambda d: matmul((pattern, values.detach()), d), dense, seed=0).passed


@pytest.mark.parametrize("name", ["sparse × matrix", "matrix × sparse", "sampled", "row sums", "softmax"])
def test_products_are_mapped_over_a_batch_of_either_operand(name):
    sparse, dense, operands = cases("csr", (), torch.float64)[name]
    stacks = [torch.stack([operand.detach(), 2 * operand.detach(), operand.detach() - 1]) for operand in operands]

    assert torch.allclose(torch.func.vmap(sparse)(*stacks), torch.func.vmap(dense)(*stacks))
    for k, stack in enumerate(stacks):
        dims = tuple(0 if j == k else None for j in range(len(stacks)))
        arguments = [stack if j == k else operand for j, operand in enumerate(operands)]
        assert torch.allclose(
            torch.func.vmap(sparse, in_dims=dims)(*arguments), torch.func.vmap(dense, in_dims=dims)(*arguments)
        )


def test_a_third_derivative_in_forward_mode_is_right():
    pattern = Pattern.from_mask(torch.ones(1, 1, dtype=torch.bool))

    def cube(x):
        return matmul((pattern, x), matmul((pattern, x), x.reshape(1, 1))).squeeze()

    x = one = torch.ones(1, dtype=torch.float64)
    derivative = cube
    for _ in range(3):
        derivative = (lambda f: lambda x: torch.func.jvp(f, (x,), (one,))[1])(derivative)

    assert float(derivative(2 * x)) == 6


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("batch", [(), (2,)])
def test_sparse_tensors_multiply_as_their_values_do(layout, batch):
    a, dense = sparse_matrix(layout, batch=batch), random(*batch, COLUMNS, 3)
    whole = a.detach().to_dense().requires_grad_()
    other = dense.detach().clone().requires_grad_()

    matmul(a, dense).square().sum().backward()
    (whole @ other).square().sum().backward()

    assert torch.allclose(dense.grad, other.grad)
    assert a.grad.layout is a.layout
    assert torch.allclose(a.grad.to_dense(), whole.grad * Pattern.of(a).mask())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_sparse_results_have_the_layout_of_what_they_come_from(layout):
    a = sparse_matrix(layout)
    factor = torch.randn(ROWS, COLUMNS, dtype=torch.float64)
    mask = Pattern.of(a).mask()
    left, right = random(ROWS, 2), random(2, COLUMNS)

    for result, expected in (
        (multiply(a, factor), a.detach().to_dense() * factor),
        (row_softmax(a), masked_softmax(a.detach().to_dense(), mask)),
        (sampled_matmul(a, left, right), (left @ right) * mask),
    ):
        assert result.layout is a.layout
        assert torch.allclose(result.detach().to_dense(), expected)


def test_gradients_flow_through_sparse_results():
    a = sparse_matrix("csc")

    unpack(row_softmax(multiply(a, torch.tensor(2.0, dtype=torch.float64))))[0].square().sum().backward()

    values = Pattern.of(a), a.detach().values().requires_grad_()
    row_softmax((values[0], values[1] * 2)).square().sum().backward()
    assert torch.allclose(a.grad.values(), values[1].grad)


def test_unsorted_values_keep_their_order_in_products():
    pattern = Pattern.from_indices(torch.tensor([[2, 0, 1], [0, 2, 1]]), (3, 4))
    values, dense, left = random(3), random(4, 2), random(2, 3)
    whole = repack(values.detach(), pattern).to_dense()

    assert torch.allclose(matmul((pattern, values), dense), whole @ dense)
    assert torch.allclose(matmul(left, (pattern, values)), left @ whole)
    gradproof.assert_gradients(lambda v, d: matmul((pattern, v), d), (values, dense), modes=MODES)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.complex64])
@pytest.mark.parametrize("width", [1, 5, 40])
def test_low_precision_products_are_as_good_as_their_type(dtype, width):
    pattern = Pattern.random((30, 20), 0.3)
    values, dense, weights = (torch.randn(shape, dtype=dtype) for shape in ((180,), (20, width), (30, width)))
    values.requires_grad_()
    dense.requires_grad_()
    exact = torch.complex128 if dtype.is_complex else torch.float64

    result = matmul((pattern, values), dense)
    gradients = torch.autograd.grad(result, (values, dense), weights)
    wide = [tensor.detach().to(exact).requires_grad_() for tensor in (values, dense)]
    expected = matmul((pattern, wide[0]), wide[1])
    right = torch.autograd.grad(expected, wide, weights.to(exact))

    for mine, its in zip((result, *gradients), (expected, *right), strict=True):
        assert mine.dtype == dtype
        error = (mine.detach().to(exact) - its.detach()).abs().max()
        assert float(error) < 16 * torch.finfo(dtype).eps * float(its.detach().abs().max())


def test_operands_of_two_dtypes_meet_in_the_wider():
    pattern = Pattern.random((3, 4), 0.5)

    assert matmul((pattern, torch.ones(6)), torch.ones(4, 2, dtype=torch.float64)).dtype == torch.float64
    assert matmul((pattern, torch.ones(6)), torch.ones(4, 2, dtype=torch.bfloat16)).dtype == torch.float32


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (3, 4)])
def test_products_without_entries_are_zero(shape):
    pattern = Pattern.from_mask(torch.zeros(shape, dtype=torch.bool))
    values, dense = random(0), random(shape[1], 2)

    result = matmul((pattern, values), dense)
    result.sum().backward()

    assert result.equal(torch.zeros(shape[0], 2, dtype=torch.float64))
    assert dense.grad.equal(torch.zeros(shape[1], 2, dtype=torch.float64))
    assert values.grad.shape == (0,)
    assert matmul((pattern, values), random(shape[1], 0)).shape == (shape[0], 0)


def test_nothing_of_the_sparse_shape_is_ever_made():
    n = 200_000  # a dense matrix of this size takes 160 GB
    pattern = Pattern.random((n, n), 2 / n)
    values, dense = torch.randn(pattern.entries, requires_grad=True), torch.randn(n, 2, requires_grad=True)

    result = matmul((pattern, row_softmax((pattern, values))), dense).square().sum() + row_sums((pattern, values)).sum()
    result.backward()

    assert values.grad.shape == values.shape


def test_dense_dimensions_take_part_in_sums_and_softmax():
    a = sparse_matrix("csr", dense=(2,))
    whole, mask = a.detach().to_dense(), Pattern.of(a).mask()[..., None]

    assert torch.allclose(row_sums(a), whole.sum(1))
    assert torch.allclose(column_sums(a), whole.sum(0))
    expected = masked_softmax(whole.movedim(1, -1), mask.movedim(1, -1)).movedim(-1, 1)
    assert torch.allclose(row_softmax(a).to_dense(), expected)


def test_softmax_of_large_numbers_does_not_overflow():
    pattern = Pattern.from_mask(torch.ones(1, 2, dtype=torch.bool))

    assert row_softmax((pattern, torch.tensor([1000.0, 1000.0]))).tolist() == [0.5, 0.5]


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda p, v: matmul((p, v), torch.ones(3, 2)), r"has shape \[3, 2\], and the sparse one has 6 columns"),
        (lambda p, v: matmul(torch.ones(2, 3), (p, v)), "has 4 rows"),
        (lambda p, v: matmul((p, v[:-1]), torch.ones(6, 2)), "one for each stored entry"),
        (lambda p, v: matmul((p, v.long()), torch.ones(6, 2)), "floating-point or complex"),
        (lambda p, v: matmul((p, v), torch.ones(6, 2, device="meta")), "are on meta and the pattern is on cpu"),
        (lambda p, v: matmul((p, v.to("meta")), torch.ones(6, 2)), "The values are on meta"),
        (lambda p, v: matmul((p, v), (p, v)), "does not exist"),
        (lambda p, v: matmul(torch.ones(2, 2), torch.ones(2, 2)), "Neither side"),
        (lambda p, v: matmul((p, v), torch.tensor(1.0)), r"has shape \[\]"),
        (lambda p, v: sampled_matmul(p, torch.ones(4, 2), torch.ones(3, 6)), r"needs \[4\] \+ \[k\]"),
        (lambda p, v: multiply((p, v), torch.ones(5, 6)), "cannot be broadcast"),
        (lambda p, v: row_softmax((p, v.to(torch.complex64))), "have no order"),
        (lambda p, v: row_sums((Pattern.from_indices(torch.tensor([[1]]), (3,)), v[:1])), "no rows and columns"),
        (lambda p, v: matmul(sparse_matrix("csr", batch=(2,)), torch.ones(3, 6, 2)), "batches do not fit"),
    ],
)
def test_bad_operands_are_refused_with_a_reason(ask, words):
    with pytest.raises(InputError, match=words):
        ask(Pattern.random((4, 6), 0.5), torch.ones(12))


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize(("layout", "batch"), PLACES)
def test_products_of_sparse_tensors_keep_every_contract(layout, batch, order):
    a = sparse_matrix(layout, batch=batch)
    ones = torch.ones(*batch, COLUMNS, 1, dtype=torch.float64)
    for product in (lambda a: row_sums(a) * row_sums(a), row_softmax, lambda a: matmul(a, ones)):
        report = gradproof.check(product, a, masked=True, order=order, seed=0)

        assert report.passed, report
        assert a.grad is None


@pytest.mark.parametrize("layout", ["csr", "csc", "bsr", "bsc"])
def test_indices_of_32_bits_stay_so(layout):
    wide = sparse_matrix(layout)
    compressed, plain = (index.int() for index in Pattern.of(wide).indices)
    a = torch.sparse_compressed_tensor(
        compressed, plain, wide.detach().values(), wide.shape, layout=wide.layout, requires_grad=True
    )
    dense = random(COLUMNS, 2)

    (matmul(a, dense).sum() + row_sums(row_softmax(a)).sum() + unpack(multiply(a, dense.sum()))[0].sum()).backward()
    (
        matmul(wide, dense).sum() + row_sums(row_softmax(wide)).sum() + unpack(multiply(wide, dense.sum()))[0].sum()
    ).backward()

    assert {index.dtype for index in Pattern.of(a.grad).indices} == {torch.int32}
    assert torch.allclose(a.grad.to_dense(), wide.grad.to_dense())
