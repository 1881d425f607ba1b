"""Solvers of sparse linear systems, without derivatives: LU factors, substitution, conjugate gradients."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, final

import torch
from torch import Tensor

from gradproof.errors import InputError
from gradproof.sparse.autograd import kernels
from gradproof.sparse.pattern import Pattern


class LinearSolver(ABC):
    """Solves systems whose matrix has one pattern."""

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern

    @abstractmethod
    def solve(self, values: Tensor, right: Tensor, *, adjoint: bool) -> Tensor:
        """Solve A x = b, or Aᴴ x = b, for the matrix with these values and each column of b."""

    def scipy(self, values: Tensor) -> Any:
        """Build the matrix as a SciPy CSR array."""
        import scipy.sparse

        build: Any = scipy.sparse.csr_array
        rows = self.pattern.by_rows
        data = rows.in_row_order(values).resolve_conj().contiguous().numpy()
        return build((data, rows.col_indices.numpy(), rows.crow_indices.numpy()), shape=self.pattern.shape)


@final
class LowerUpper(LinearSolver):
    """Sparse LU factors with pivoting, by SuperLU, computed once for the values of a solution and its gradients."""

    def __init__(self, pattern: Pattern) -> None:
        super().__init__(pattern)
        self._factored: tuple[Tensor, int, Any] | None = None  # values, kept so that their memory is not used again

    def solve(self, values: Tensor, right: Tensor, *, adjoint: bool) -> Tensor:
        """Solve A x = b, or Aᴴ x = b."""
        if not right.numel():
            return right.clone()
        columns = right.resolve_conj().contiguous().numpy()
        return torch.from_numpy(self._factors(values).solve(columns, "H" if adjoint else "N")).contiguous()

    def _factors(self, values: Tensor) -> Any:
        import scipy.sparse.linalg

        factor: Any = scipy.sparse.linalg.splu
        version = 0 if values.is_inference() else values._version
        if self._factored is not None:
            known, its_version, factors = self._factored
            if known.data_ptr() == values.data_ptr() and its_version == version:
                return factors
        try:
            factors = factor(self.scipy(values).tocsc())
        except RuntimeError as error:
            raise InputError(f"The matrix is singular, so the system has no single solution: {error}.") from error
        self._factored = values, version, factors
        return factors


@final
class Triangular(LinearSolver):
    """Substitution with a triangular matrix."""

    def __init__(self, pattern: Pattern, *, lower: bool) -> None:
        super().__init__(pattern)
        self.lower = lower
        above = pattern.column_of_entry - pattern.row_of_entry
        if bool((above > 0 if lower else above < 0).any()):
            kind = "above" if lower else "below"
            raise InputError(f"The matrix stores entries {kind} the diagonal, so it is not triangular as method= says.")
        if int((above == 0).sum()) < pattern.shape[0]:
            raise InputError("The triangular matrix does not store its whole diagonal, so it is singular.")

    def solve(self, values: Tensor, right: Tensor, *, adjoint: bool) -> Tensor:
        """Solve A x = b, or Aᴴ x = b."""
        import scipy.sparse.linalg

        substitute: Any = scipy.sparse.linalg.spsolve_triangular
        if not right.numel():
            return right.clone()
        if bool((values.reshape(-1)[self.pattern.row_of_entry == self.pattern.column_of_entry] == 0).any()):
            raise InputError("The triangular matrix has a zero on its diagonal, so it is singular.")
        matrix = self.scipy(values)
        if adjoint:
            matrix = matrix.conj().T.tocsr()
        columns = right.resolve_conj().contiguous().numpy()
        return torch.from_numpy(substitute(matrix, columns, lower=self.lower != adjoint)).contiguous()


@final
class ConjugateGradients(LinearSolver):
    """Preconditioned conjugate gradients for a Hermitian positive definite matrix (Hestenes and Stiefel, 1952)."""

    def __init__(
        self,
        pattern: Pattern,
        preconditioner: str | Callable[[Tensor], Tensor] | None,
        *,
        rtol: float,
        max_iterations: int,
    ) -> None:
        super().__init__(pattern)
        if not (preconditioner is None or isinstance(preconditioner, str) or callable(preconditioner)) or (
            isinstance(preconditioner, str) and preconditioner != "jacobi"
        ):
            raise InputError(f"preconditioner={preconditioner!r} is not known. Pass 'jacobi', a function or None.")
        self.preconditioner, self.rtol, self.max_iterations = preconditioner, rtol, max_iterations

    def solve(self, values: Tensor, right: Tensor, *, adjoint: bool) -> Tensor:
        """Solve A x = b; the adjoint system is the same, as the matrix is Hermitian."""
        matrix = self.pattern.by_rows
        ordered = matrix.in_row_order(values)
        precondition = self._preconditioner(values)
        solution, residual = torch.zeros_like(right), right.resolve_conj().clone()
        direction = prepared = precondition(residual)
        energy = _dot(residual, prepared)
        goal = self.rtol * _norm(right)
        for _ in range(self.max_iterations):
            if bool((_norm(residual) <= goal).all()):
                return solution
            product = kernels.multiply(matrix, ordered, direction)
            curvature = _dot(direction, product)
            step = torch.where(curvature == 0, 0, energy / curvature)  # a column that is solved stays
            solution, residual = solution + step * direction, residual - step * product
            prepared = precondition(residual)
            before, energy = energy, _dot(residual, prepared)
            direction = prepared + torch.where(before == 0, 0, energy / before) * direction
        worst = float((_norm(residual) / _norm(right)).max())
        raise InputError(
            f"Conjugate gradients did not converge in {self.max_iterations} iterations: the residual is {worst:.1e} of "
            f"the right side, and rtol={self.rtol:.1e}. The matrix may not be Hermitian positive definite, or ill-"
            "conditioned: pass a better preconditioner, more max_iterations, a larger rtol, or method='lu'."
        )

    def _preconditioner(self, values: Tensor) -> Callable[[Tensor], Tensor]:
        if callable(self.preconditioner):
            return self._checked(self.preconditioner)
        if self.preconditioner is None:
            return lambda residual: residual
        pattern = self.pattern
        on_diagonal = pattern.row_of_entry == pattern.column_of_entry
        diagonal = values.new_ones(pattern.shape[0])
        diagonal[pattern.row_of_entry[on_diagonal]] = values.reshape(-1)[on_diagonal]
        if bool((diagonal.real <= 0).any()):
            raise InputError("The matrix has a diagonal entry that is not positive, so it is not positive definite.")
        return lambda residual: residual / diagonal.unsqueeze(1)

    @staticmethod
    def _checked(given: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        def precondition(residual: Tensor) -> Tensor:
            found = given(residual)
            if not isinstance(found, Tensor) or found.shape != residual.shape or found.dtype != residual.dtype:
                came = f"{found.dtype} of {list(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
                raise InputError(
                    f"The preconditioner returned {came} for residuals of {residual.dtype}, {list(residual.shape)}: it "
                    "has to return as many, one a column."
                )
            return found

        return precondition


def _dot(one: Tensor, other: Tensor) -> Tensor:
    return (one.conj() * other).sum(0)


def _norm(columns: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(columns, dim=0)
    return norms
