"""Solutions of sparse linear systems, differentiable to any order by the adjoint equation.

With A x = b, the gradient of b solves Aᴴ b̄ = x̄, and that of A is −b̄ xᴴ, read at the stored entries alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from gradproof.errors import InputError
from gradproof.sparse.autograd import bilinear
from gradproof.sparse.autograd.kernels import NATIVE
from gradproof.sparse.autograd.linear_solvers import ConjugateGradients, LinearSolver, LowerUpper, Triangular
from gradproof.sparse.autograd.products import Sparse, parts
from gradproof.sparse.autograd.transforms import apply, nested
from gradproof.sparse.pattern import Pattern
from gradproof.sparse.pattern.arguments import require_choice, require_size, require_strided
from gradproof.sparse.pattern.values import with_signature

METHODS = ("lu", "cg", "lower", "upper")


def solve(
    sparse: Sparse,
    right: Tensor,
    *,
    method: str = "lu",
    preconditioner: str | Callable[[Tensor], Tensor] | None = "jacobi",
    rtol: float | None = None,
    max_iterations: int | None = None,
) -> Tensor:
    """Solve A x = b for a sparse A, a tensor or a pair of pattern and values, with gradients of both.

    >>> import torch
    >>> a = torch.tensor([[2.0, 1.0], [0.0, 4.0]]).to_sparse_csr().requires_grad_()
    >>> x = solve(a, torch.tensor([4.0, 8.0]), method="upper")
    >>> x
    tensor([1., 2.], grad_fn=...)
    >>> x.sum().backward()
    >>> a.grad.values()
    tensor([-0.5000, -1.0000, -0.2500])

    Args:
        sparse: A, one square matrix in single or double precision, real or complex.
        right: b, a vector or a matrix of right-hand sides.
        method: "lu" for any A (SciPy's SuperLU, on the CPU), "lower" or "upper" for a triangular A (SciPy, on the
            CPU), "cg" for a Hermitian positive definite A (conjugate gradients). CG does not check that A is Hermitian;
            its gradient is that of A⁻¹ b, each stored entry taken alone.
        preconditioner: of "cg": "jacobi" divides by the diagonal, None does nothing, and a function returns about
            A⁻¹ r for the residuals r, one a column, by a Hermitian positive definite map.
        rtol: of "cg": the residual over the right side at which to stop; the dtype's unit of rounding to the power 2/3
            by default.
        max_iterations: of "cg": after so many the solution is given up; ten times the rows by default.
    """
    require_choice(method, "method", METHODS)
    if rtol is not None and not (isinstance(rtol, (int, float)) and rtol > 0):
        raise InputError(f"rtol={rtol!r}: pass a positive number.")
    if max_iterations is not None:
        require_size(max_iterations, "max_iterations", least=1)
    pattern, values = parts(sparse)
    pattern.require_matrix()
    if pattern.batch or pattern.shape[0] != pattern.shape[1]:
        raise InputError(f"{pattern!r} is not one square matrix: a system to solve is.")
    pattern.require_device(require_strided(right, "right"), "The right side's entries")
    if right.ndim not in (1, 2) or right.shape[0] != pattern.shape[0]:
        raise InputError(f"The right side has shape {list(right.shape)}: pass [{pattern.shape[0]}] or one column each.")
    dtype = torch.promote_types(values.dtype, right.dtype)
    if dtype not in NATIVE:
        raise InputError(f"The system has dtype {dtype}: it is solved in single or double precision. Convert it first.")
    solver: LinearSolver
    if method == "cg":
        limit = 10 * max(1, pattern.shape[0]) if max_iterations is None else max_iterations
        tolerance = torch.finfo(dtype).eps ** (2 / 3) if rtol is None else rtol
        solver = ConjugateGradients(pattern, preconditioner, rtol=tolerance, max_iterations=limit)
    else:
        if pattern.device.type != "cpu":
            raise InputError(f"method={method!r} runs on the CPU, and A is on {pattern.device}. Move it, or use 'cg'.")
        solver = LowerUpper(pattern) if method == "lu" else Triangular(pattern, lower=method == "lower")
    columns = right.to(dtype).reshape(len(right), -1 if right.numel() else right[:1].numel())
    return apply(_Solve, values.to(dtype).reshape(-1), columns, pattern, solver, False).reshape(right.shape)


class _Solve(Function):
    """The solution of A x = b, or of Aᴴ x = b."""

    @staticmethod
    @with_signature
    def forward(values: Tensor, right: Tensor, pattern: Pattern, solver: LinearSolver, adjoint: bool) -> Tensor:
        return solver.solve(values.detach(), right.detach(), adjoint=adjoint)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        values, _, ctx.pattern, ctx.solver, ctx.adjoint = inputs
        ctx.save_for_backward(values, output)
        ctx.save_for_forward(values, output)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *incoming: Tensor | None) -> tuple[Tensor | None, ...]:
        (gradient,), (values, solution) = incoming, ctx.saved_tensors
        if gradient is None:
            return None, None, None, None, None
        of_right = apply(_Solve, values, gradient, ctx.pattern, ctx.solver, not ctx.adjoint)
        of_values = None
        if ctx.needs_input_grad[0]:
            row, column = (solution, of_right) if ctx.adjoint else (of_right, solution)
            of_values = -bilinear.sample(row, column.conj(), ctx.pattern)
        return of_values, of_right, None, None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> Tensor | None:
        of_values, of_right, *_ = tangents
        with nested(ctx.saved_tensors) as (values, solution):
            change = of_right
            if of_values is not None:
                moved = of_values.conj() if ctx.adjoint else of_values
                product = bilinear.multiply(moved, solution, ctx.pattern, transposed=ctx.adjoint)
                change = -product if of_right is None else of_right - product
            return None if change is None else apply(_Solve, values, change, ctx.pattern, ctx.solver, ctx.adjoint)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> tuple[Tensor, int]:
        values, right, *others = arguments
        if in_dims[0] is None:
            assert in_dims[1] is not None
            stacked = right.movedim(in_dims[1], 1)
            return apply(_Solve, values, stacked.flatten(1), *others).reshape(stacked.shape), 1
        rights = [right] * info.batch_size if in_dims[1] is None else right.unbind(in_dims[1])
        pairs = zip(values.unbind(in_dims[0]), rights, strict=True)
        return torch.stack([apply(_Solve, one, other, *others) for one, other in pairs]), 0
