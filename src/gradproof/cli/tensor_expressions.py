"""Tensors from small expressions, such as `randn(3, 4)` or `complex128 csr(100, 100, density=.05)`.

An expression is parsed, never evaluated as Python: it has numbers, lists, the four operations and the makers below.
"""

from __future__ import annotations

import ast
import math
import operator
import warnings
from collections.abc import Callable
from typing import Any

import torch

from gradproof.errors import InputError

DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float64,
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.complex128,
        torch.complex64,
        torch.int64,
        torch.bool,
    )
}
LONG = 200  # characters of an expression that are shown
FIXED = "fixed"  # needs no gradient
LAYOUTS = ("coo", "csr", "csc", "bsr", "bsc")
OPERATIONS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def tensor_from(text: str, generator: torch.Generator) -> Any:
    """Evaluate an expression. A tensor has double precision and requires grad, unless the expression says otherwise.

    >>> tensor_from("fixed float32 2 * ones(2)", torch.Generator())
    tensor([2., 2.])
    >>> tensor_from("fixed ones(2, dtype=bfloat16)", torch.Generator())
    tensor([1., 1.], dtype=torch.bfloat16)
    >>> tensor_from("csr(4, 4, density=.5)", torch.Generator()).layout
    torch.sparse_csr
    """
    words, rest, dtype, fixed = text.split(), text, torch.float64, False
    while words and (words[0] in DTYPES or words[0] == FIXED):
        word = words.pop(0)
        rest = rest.strip().removeprefix(word)
        fixed, dtype = (True, dtype) if word == FIXED else (fixed, DTYPES[word])
    try:
        tree = ast.parse(rest.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise InputError(f"The input {_shortened(text)} is not an expression. {_help()}") from None
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse .* tensor support is in beta")  # torch says it once
            value = _Maker(dtype, generator).value(tree)
    except InputError:
        raise
    except (TypeError, ValueError, RuntimeError, ArithmeticError, MemoryError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"The input {_shortened(text)} cannot be made: {reason}. {_help()}") from None
    if not fixed:
        for each in _tensors(value):
            each.requires_grad_(each.is_floating_point() or each.is_complex())
    return value


def _shortened(text: str) -> str:
    return repr(text if len(text) <= LONG else f"{text[:LONG]}…")


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, (list, tuple)):
        return [tensor for each in value for tensor in _tensors(each)]
    return [value] if isinstance(value, torch.Tensor) else []


def _help() -> str:
    return (
        f"Write a number, or one of {', '.join(sorted(MAKERS))} with sizes, such as 'randn(3, 4)', "
        "'complex128 randn(5)', 'csr(100, 100, density=.05)' or 'fixed 2 * rand(3) - 1'."
    )


class _Maker:
    """A visitor of a parsed expression."""

    def __init__(self, dtype: torch.dtype, generator: torch.Generator) -> None:
        self.dtype, self.generator = dtype, generator

    def value(self, node: ast.expr) -> Any:
        """Return the value of a node of one of the allowed kinds."""
        match node:
            case ast.Constant(value=bool() | int() | float() | complex() | None as number):
                return number
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self.value(operand)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATIONS:
                return OPERATIONS[type(op)](self.value(left), self.value(right))
            case ast.List(elts=items):
                return [self.value(item) for item in items]
            case ast.Tuple(elts=items):
                return tuple(self.value(item) for item in items)
            case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords) if name in MAKERS and all(
                each.arg for each in keywords
            ):
                named = {str(each.arg): each.value for each in keywords}
                maker = self._of_dtype(named.pop("dtype")) if "dtype" in named else self
                options = {key: self.value(each) for key, each in named.items()}
                return MAKERS[name](maker, *map(self.value, args), **options)
        raise InputError(f"{ast.unparse(node)!r} is not allowed in an input. {_help()}")

    def _of_dtype(self, node: ast.expr) -> _Maker:
        """Return a maker of tensors of the dtype that is named."""
        name = ast.unparse(node).removeprefix("torch.")
        if name not in DTYPES:
            raise InputError(f"dtype={name} is not known. Choose from {', '.join(DTYPES)}.")
        return _Maker(DTYPES[name], self.generator)

    def normal(self, *size: int) -> torch.Tensor:
        """Return a tensor of normally distributed numbers."""
        dtype = self.dtype if self.dtype.is_floating_point or self.dtype.is_complex else torch.float64
        return torch.randn(size, dtype=dtype, generator=self.generator).to(self.dtype)

    def uniform(self, *size: int, low: float = 0.0, high: float = 1.0) -> torch.Tensor:
        """Return a tensor of uniformly distributed numbers."""
        return (torch.rand(size, dtype=torch.float64, generator=self.generator) * (high - low) + low).to(self.dtype)

    def integers(self, *size: int, low: int = 0, high: int) -> torch.Tensor:
        """Return a tensor of random integers, which need no gradient."""
        return torch.randint(low, high, size, generator=self.generator)

    def full(self, *size: int, value: float) -> torch.Tensor:
        """Return a tensor that is filled with one number."""
        return torch.full(size, value, dtype=self.dtype)

    def listed(self, numbers: Any) -> torch.Tensor:
        """Return a tensor of the given numbers."""
        return torch.tensor(numbers, dtype=self.dtype)

    def spaced(self, low: float, high: float, count: int) -> torch.Tensor:
        """Return a tensor of evenly spaced numbers."""
        return torch.linspace(low, high, count, dtype=self.dtype)

    def sparse(
        self, layout: str, *size: int, density: float = 0.1, blocksize: tuple[int, int] = (2, 2)
    ) -> torch.Tensor:
        """Return a sparse tensor with random entries in a fraction `density` of each matrix, and at least one entry."""
        if len(size) < 2 or min(size) < 1 or not 0 < density <= 1:
            raise InputError(f"{layout} needs two sizes at least and a density above 0 and at most 1. {_help()}")
        if layout == "coo":
            positions = self._positions(size, density)
            values = self.normal(positions.shape[1])
            return torch.sparse_coo_tensor(positions, values, size, is_coalesced=True, check_invariants=True)
        block = tuple(blocksize) if layout in ("bsr", "bsc") else ()
        rows, columns = (extent // part for extent, part in zip(size[-2:], block or (1, 1), strict=True))
        if block and (rows * block[0], columns * block[1]) != size[-2:]:
            raise InputError(f"{layout} of size {size} is not made of blocks of size {block}: pass blocksize=.")
        along = (rows, columns) if layout in ("csr", "bsr") else (columns, rows)
        matrices = [self._compressed(along, density, block) for _ in range(math.prod(size[:-2]))]
        parts = [torch.stack(part) for part in zip(*matrices, strict=True)]
        pointers, others, values = (part.reshape(*size[:-2], *part.shape[1:]) for part in parts)
        kind = getattr(torch, f"sparse_{layout}")
        return torch.sparse_compressed_tensor(
            pointers, others, values, size=size, layout=kind, dtype=self.dtype, check_invariants=True
        )

    def _compressed(self, along: tuple[int, ...], density: float, block: tuple[int, ...]) -> list[torch.Tensor]:
        """Return compressed indices, plain indices and values."""
        major, minor = self._positions(along, density)
        compressed = torch.zeros(along[0] + 1, dtype=torch.int64)
        compressed[1:] = torch.bincount(major, minlength=along[0]).cumsum(0)
        return [compressed, minor, self.normal(minor.shape[0], *block)]

    def _positions(self, size: tuple[int, ...], density: float) -> torch.Tensor:
        """Draw sorted random positions, in memory proportional to their number."""
        total = math.prod(size)
        count = max(1, round(density * total))
        if 2 * count > total:
            chosen = torch.randperm(total, generator=self.generator)[:count]
        else:
            drawn: set[int] = set()
            while len(drawn) < count:
                drawn.update(torch.randint(total, (count,), generator=self.generator).tolist())
            chosen = torch.tensor(list(drawn))[torch.randperm(len(drawn), generator=self.generator)[:count]]
        chosen = chosen.sort().values
        positions = []
        for extent in reversed(size):
            positions.append(chosen % extent)
            chosen = chosen // extent
        return torch.stack(positions[::-1])


def _sparse(layout: str) -> Callable[..., torch.Tensor]:
    def make(maker: _Maker, *size: int, **options: Any) -> torch.Tensor:
        return maker.sparse(layout, *size, **options)

    return make


MAKERS: dict[str, Callable[..., torch.Tensor]] = {
    "randn": _Maker.normal,
    "rand": _Maker.uniform,
    "randint": _Maker.integers,
    "full": _Maker.full,
    "zeros": lambda maker, *size: maker.full(*size, value=0),
    "ones": lambda maker, *size: maker.full(*size, value=1),
    "tensor": _Maker.listed,
    "linspace": _Maker.spaced,
    **{layout: _sparse(layout) for layout in LAYOUTS},
}
