"""Solutions of sparse systems: those of the dense computation, and derivatives that gradproof accepts."""

import pytest
import torch

import gradproof
from gradproof import InputError
from gradproof.sparse import Pattern, solve, unpack
from support.sparse_matrices import LAYOUTS

pytest.importorskip("scipy")
MODES = ("reverse", "forward")
ROWS = 6


def matrix(method, dtype=torch.float64, seed=0):
    """A well-conditioned sparse matrix that the method can solve, dense."""
    generator = torch.Generator().manual_seed(seed)
    whole = torch.randn(ROWS, ROWS, dtype=dtype, generator=generator) / 4
    whole = whole * (torch.rand(ROWS, ROWS, generator=generator) < 0.4)
    if method == "cg":
        whole = whole + whole.mH
    whole = {"lower": torch.tril, "upper": torch.triu}.get(method, lambda whole: whole)(whole)
    return whole - torch.diag(whole.diagonal()) + 2 * torch.eye(ROWS, dtype=dtype)


def system(method, dtype=torch.float64):
    """Pattern, values and right sides; values of "cg" from those of one half, so that the matrix stays Hermitian."""
    whole = matrix(method, dtype)
    pattern = Pattern.from_mask(whole != 0)
    right = torch.randn(ROWS, 2, dtype=dtype, requires_grad=True)
    return pattern, whole[whole != 0].clone().requires_grad_(), right


def hermitian(pattern, values):
    """The mean of a matrix and its adjoint, whose pattern is the same."""
    row, column = pattern.coordinates
    twin = torch.argsort(column * ROWS + row)
    return (values + values[twin].conj()) / 2


def solved(method, pattern):
    def run(values, right):
        return solve((pattern, hermitian(pattern, values) if method == "cg" else values), right, method=method)

    return run


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128, torch.float32])
@pytest.mark.parametrize("method", ["lu", "cg", "lower", "upper"])
def test_solutions_and_gradients_are_those_of_the_dense_system(method, dtype):
    pattern, values, right = system(method, dtype)

    def dense(values, right):
        stored = hermitian(pattern, values) if method == "cg" else values
        whole = torch.zeros(ROWS, ROWS, dtype=dtype).index_put(tuple(pattern.coordinates), stored)
        return torch.linalg.solve(whole, right)

    results = [run(values, right) for run in (solved(method, pattern), dense)]
    weights = torch.randn_like(results[0])
    gradients = [torch.autograd.grad(result, (values, right), weights) for result in results]

    tolerance = {"rtol": 1e-3, "atol": 1e-4} if dtype is torch.float32 else {"rtol": 1e-7, "atol": 1e-9}
    assert torch.allclose(*results, **tolerance)
    assert all(torch.allclose(*pair, **tolerance) for pair in zip(*gradients, strict=True))


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("method", ["lu", "cg", "lower", "upper"])
def test_derivatives_of_solutions_are_verified(method, dtype, order):
    pattern, values, right = system(method, dtype)

    report = gradproof.check(solved(method, pattern), (values, right), modes=MODES, order=order, seed=0)

    assert report.passed, report


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("order", [1, 2])
def test_sparse_matrices_of_every_layout_are_solved(layout, order):
    blocks = (2, 3) if layout in ("bsr", "bsc") else None
    a = matrix("lu").to_sparse(layout=LAYOUTS[layout], blocksize=blocks)
    a = (a.coalesce() if layout == "coo" else a).requires_grad_()
    right = torch.randn(ROWS, dtype=torch.float64, requires_grad=True)

    assert torch.allclose(solve(a, right), torch.linalg.solve(matrix("lu"), right))
    report = gradproof.check(solve, (a, right), masked=True, order=order, seed=0)
    assert report.passed, report
    solve(a, right).sum().backward()
    assert a.grad.layout is a.layout


def test_a_matrix_is_factored_once_for_a_solution_and_its_gradients(monkeypatch):
    import scipy.sparse.linalg

    pattern, values, right = system("lu")
    factored, splu = [], scipy.sparse.linalg.splu
    monkeypatch.setattr(scipy.sparse.linalg, "splu", lambda matrix: factored.append(matrix) or splu(matrix))

    result = solve((pattern, values), right)
    gradients = torch.autograd.grad(result.square().sum(), (values, right), create_graph=True)
    sum(gradient.square().sum() for gradient in gradients).backward()

    assert len(factored) == 1


def test_a_preconditioner_saves_iterations():
    scales = torch.logspace(0, 4, 50, dtype=torch.float64)
    whole = torch.diag(scales) + torch.diag(torch.full((49,), 0.1, dtype=torch.float64), 1)
    a, right = (whole + whole.T).to_sparse_csr(), torch.ones(50, dtype=torch.float64)

    found = solve(a, right, method="cg", max_iterations=12)
    given = solve(a, right, method="cg", preconditioner=lambda r: r / (2 * scales).unsqueeze(1), max_iterations=12)

    assert torch.allclose(found, torch.linalg.solve(whole + whole.T, right))
    assert torch.allclose(given, found)
    with pytest.raises(InputError, match="did not converge in 12"):
        solve(a, right, method="cg", preconditioner=None, max_iterations=12)


def test_solutions_are_mapped_over_a_batch():
    pattern, values, right = system("lu")
    values, right = values.detach(), right.detach()

    def dense(values, right):
        return torch.linalg.solve(torch.zeros(ROWS, ROWS, dtype=values.dtype).index_put(at, values), right)

    at = tuple(pattern.coordinates)
    stacks = torch.stack([values, 2 * values]), torch.stack([right, right + 1])
    for dims in ((0, 0), (0, None), (None, 0)):
        arguments = [stacks[k] if dims[k] == 0 else (values, right)[k] for k in range(2)]
        ours, theirs = (torch.func.vmap(run, in_dims=dims)(*arguments) for run in (solved("lu", pattern), dense))
        assert torch.allclose(ours, theirs)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda a, b: solve(a, b, method="qr"), "lu, cg, lower, upper"),
        (lambda a, b: solve(torch.ones(2, 3).to_sparse_csr(), b), "not one square matrix"),
        (lambda a, b: solve(a, b[:2]), r"right side has shape \[2\]"),
        (lambda a, b: solve(a.half(), b.half()), "single or double"),
        (lambda a, b: solve(a, b.to("meta")), "are on meta"),
        (lambda a, b: solve(a, b, method="upper"), "below the diagonal"),
        (lambda a, b: solve(a, b, method="lower"), "above the diagonal"),
        (lambda a, b: solve(a, b, method="cg", preconditioner="ilu"), "jacobi"),
        (lambda a, b: solve(-a, b, method="cg"), "not positive"),
        (lambda a, b: solve(torch.ones(6, 6).to_sparse_csr(), b), "singular"),
        (lambda a, b: solve(torch.eye(6).roll(1, 0).tril().to_sparse_csr(), b, method="lower"), "whole diagonal"),
        (lambda a, b: solve(None, b), "not a tensor"),
        (lambda a, b: solve(a, 3), "not a tensor"),
    ],
)
def test_systems_that_cannot_be_solved_are_refused(ask, words):
    with pytest.raises(InputError, match=words):
        ask((torch.eye(6) * 2 + torch.eye(6).roll(1, 0)).to_sparse_csr(), torch.ones(6))


def test_gradients_of_both_reach_a_sparse_leaf():
    a = matrix("lu").to_sparse_csc().requires_grad_()

    solve(a, torch.ones(ROWS, dtype=torch.float64)).sum().backward()

    inverse = torch.linalg.inv(matrix("lu"))
    full = -torch.outer(inverse.T.sum(1), inverse.sum(1))
    assert torch.allclose(a.grad.to_dense(), full * Pattern.of(a).mask())
    assert unpack(a.grad)[0].shape == a.values().shape
