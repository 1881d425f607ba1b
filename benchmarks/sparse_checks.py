"""Does every product and layer of gradproof.sparse pass its own check, in first and second order?

Products of sparse tensors have gradients on the stored entries, and are checked in five layouts under masked semantics.
Products of pairs of a pattern and values, conversions and layers are checked under both semantics. All are real and
complex, in both modes. The exit status is 1 unless all pass.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from gradproof import check
from gradproof.sparse import (
    GraphAttention,
    GraphConvolution,
    Pattern,
    SparseLinear,
    add,
    aggregate,
    attention,
    block_diagonal,
    column_sums,
    concatenate,
    convert,
    mask,
    matmul,
    merged,
    multiply,
    repack,
    row_softmax,
    row_sums,
    sampled_matmul,
    select,
    solve,
    unpack,
)

LAYOUTS = {"COO": torch.sparse_coo, "CSR": torch.sparse_csr, "CSC": torch.sparse_csc}
BLOCKED = {"BSR": torch.sparse_bsr, "BSC": torch.sparse_bsc}
DTYPES = (torch.float64, torch.complex128)
SIZE = 6
NO_FORWARD = "A B, pair"  # its result is a sparse tensor, for which torch has no forward mode
EDGES = torch.tensor([[0, 1, 2, 3, 4, 5, 0, 2, 2], [1, 2, 3, 4, 5, 0, 3, 5, 5]])
Form = Callable[[Any], Any]  # of a sparse operand, a tensor or a pair

STORED = torch.tensor([[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]], dtype=torch.bool).repeat(2, 2)[:, :SIZE]
STORED = STORED | torch.eye(SIZE, dtype=torch.bool)


def numbers(*shape: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def stored_only(result: Any) -> Any:
    """The values of a sparse result, which are what a pair would give."""
    if isinstance(result, tuple):
        return result[1]
    return unpack(result)[0] if isinstance(result, Tensor) and result.layout is not torch.strided else result


def products(dtype: torch.dtype) -> dict[str, Form]:
    """Functions of one square sparse operand; all other operands are fixed."""
    x, vector = numbers(SIZE, 3, dtype=dtype, seed=1), numbers(SIZE, dtype=dtype, seed=2)
    batch, other = numbers(2, SIZE, 3, dtype=dtype, seed=3), Pattern.random((SIZE, SIZE), 0.4)
    values = numbers(other.entries, dtype=dtype, seed=4)
    found: dict[str, Form] = {
        "A x": lambda a: matmul(a, x),
        "A v": lambda a: matmul(a, vector),
        "A batch": lambda a: matmul(a, batch),
        "x A": lambda a: matmul(x.mT, a),
        "A B": lambda a: matmul(a, repack(values, other)),
        "row sums": row_sums,
        "column sums": column_sums,
        "A * dense": lambda a: multiply(a, vector.unsqueeze(1)),
        "A * B": lambda a: multiply(a, repack(values, other)),
        "A + B": lambda a: add(a, repack(values, other)),
        "below": lambda a: concatenate([a, a]),
        "diagonal": lambda a: block_diagonal([a, a]),
        "cut": lambda a: select(a, rows=[2, 0], columns=slice(1, 4)),
        "sum": lambda a: aggregate(a, x),
        "mean": lambda a: aggregate(a, x, reduce="mean"),
        "solve": lambda a: solve(a, vector),
    }
    return found if dtype.is_complex else {**found, "softmax": row_softmax}


def of_pairs(dtype: torch.dtype) -> dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]]:
    """Functions of values on a pattern, and of dense operands."""
    pattern = Pattern.from_mask(STORED)
    parallel = Pattern.from_edge_index(EDGES, nodes=SIZE, parallel=True)
    lower, upper = Pattern.from_mask(STORED.tril()), Pattern.from_mask(STORED.triu())
    diagonal = 4 * torch.eye(SIZE, dtype=dtype)

    def values(some: Pattern, *heads: int) -> Tensor:
        return numbers(some.entries, *heads, dtype=dtype) + (
            0 if heads else diagonal[tuple(some.coordinates)] if some is not parallel else 0
        )

    x, wide = numbers(SIZE, 3, dtype=dtype, seed=1), numbers(SIZE, 2, 3, dtype=dtype, seed=2)
    root = torch.linalg.qr(numbers(SIZE, SIZE, dtype=dtype, seed=5)).Q
    definite = root @ torch.diag(torch.arange(1.0, SIZE + 1).to(dtype)) @ root.mH
    whole = Pattern.from_mask(torch.ones(SIZE, SIZE) > 0)
    found: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
        "A x": (lambda v, x: matmul((pattern, v), x), (values(pattern), x)),
        "x A": (lambda v, x: matmul(x.mT, (pattern, v)), (values(pattern), x)),
        "A x, heads": (lambda v, x: matmul((pattern, v), x), (values(pattern, 2), wide)),
        "A x, parallel": (lambda v, x: matmul((parallel, v), x), (values(parallel), x)),
        "merged": (lambda v: merged((parallel, v))[1], (values(parallel),)),
        "A B": (lambda v, w: stored_only(matmul((pattern, v), (lower, w))), (values(pattern), values(lower))),
        "sampled": (lambda a, b: sampled_matmul(pattern, a, b.mT), (x, x + 1)),
        "sampled, heads": (lambda a, b: sampled_matmul(pattern, a, b.permute(2, 1, 0)), (wide, wide + 1)),
        "row sums": (lambda v: row_sums((pattern, v)), (values(pattern, 2),)),
        "column sums": (lambda v: column_sums((pattern, v)), (values(pattern, 2),)),
        "A * dense": (lambda v, x: multiply((pattern, v), x[:, :1]), (values(pattern), x)),
        "A * B": (lambda v, w: stored_only(multiply((pattern, v), (lower, w))), (values(pattern), values(lower))),
        "A + B": (lambda v, w: stored_only(add((pattern, v), (lower, w))), (values(pattern), values(lower))),
        "mean": (lambda v, x: aggregate((pattern, v), x, reduce="mean"), (values(pattern), x)),
        "solve": (lambda v, x: solve((pattern, v), x), (values(pattern), x)),
        "solve, lower": (lambda v, x: solve((lower, v), x, method="lower"), (values(lower), x)),
        "solve, upper": (lambda v, x: solve((upper, v), x, method="upper"), (values(upper), x)),
        "solve, cg": (
            lambda x: solve((whole, definite.reshape(-1)), x, method="cg", rtol=1e-13),
            (x,),
        ),
    }
    if not dtype.is_complex:
        found |= {
            "max": (lambda x: aggregate(pattern, x, reduce="max"), (x,)),
            "min": (lambda x: aggregate(pattern, x, reduce="min"), (x,)),
            "softmax": (lambda v: row_softmax((pattern, v)), (values(pattern, 2),)),
            "attention": (
                lambda q, k, v: attention(pattern, q, k, v),
                (wide, wide + 1, wide - 1),
            ),
        }
    return found


def layers(dtype: torch.dtype) -> dict[str, tuple[nn.Module, tuple[Any, ...]]]:
    x = numbers(SIZE, 4, dtype=dtype, seed=1)

    def convolution(normalization: str) -> nn.Module:
        return GraphConvolution(4, 3, edge_index=EDGES[:, :-1], nodes=SIZE, normalization=normalization, dtype=dtype)

    found: dict[str, tuple[nn.Module, tuple[Any, ...]]] = {
        "SparseLinear": (SparseLinear(4, 3, density=0.5, dtype=dtype), (x,)),
        "GraphConvolution": (convolution("free"), (x,)),
    }
    if not dtype.is_complex:
        found["GraphConvolution, softmax"] = (convolution("softmax"), (x,))
        graph, edge_features = Pattern.from_edge_index(EDGES, nodes=SIZE, parallel=True), numbers(9, 2, dtype=dtype)
        for score in ("additive", "dot"):
            attend = GraphAttention(4, 3, heads=2, score=score, edge_features=2, dtype=dtype)
            found[f"GraphAttention, {score}"] = (attend, (x, graph, edge_features))
    return found


def leaf(layout: torch.layout, dtype: torch.dtype) -> Tensor:
    whole = (numbers(SIZE, SIZE, dtype=dtype) + 4 * torch.eye(SIZE, dtype=dtype)) * STORED
    blocks = (2, 3) if layout in BLOCKED.values() else None
    return whole.to_sparse(layout=layout, blocksize=blocks).requires_grad_()


def cases() -> Any:
    """Yield a name, a function, its inputs and the semantics under which it is right."""
    for dtype in DTYPES:
        number = str(dtype).removeprefix("torch.")
        for name, layout in {**LAYOUTS, **BLOCKED}.items():
            for what, function in products(dtype).items():
                yield (
                    f"{what}, {name}, {number}",
                    lambda a, f=function: stored_only(f(a)),
                    (leaf(layout, dtype),),
                    (True,),
                )
            yield (
                f"mask, {name}, {number}",
                lambda a: mask(a, Pattern.from_mask(STORED)),
                (leaf(layout, dtype),),
                (True, False),
            )
            for target in LAYOUTS.values():
                yield (
                    f"convert, {name} to {target}, {number}",
                    lambda a, target=target: convert(a, target),
                    (leaf(layout, dtype),),
                    (True, False),
                )
        for what, (made, inputs) in of_pairs(dtype).items():
            yield f"{what}, pair, {number}", made, tuple(t.clone().requires_grad_() for t in inputs), (True, False)
        for what, (layer, given) in layers(dtype).items():
            inputs = tuple(t.requires_grad_() if isinstance(t, Tensor) else t for t in given)
            yield f"{what}, {number}", layer, inputs, (True, False)


def main() -> int:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    counts: Counter[str] = Counter()
    began, number = time.perf_counter(), 0
    for name, function, inputs, semantics in cases():
        number += 1
        for masked, order in itertools.product(semantics, (1, 2)):
            modes = ("reverse",) if name.startswith(NO_FORWARD) else ("reverse", "forward")
            report = check(function, inputs, masked=masked, order=order, modes=modes, seed=0)
            counts[report.verdict.value] += 1
            if not report.passed:
                print(f"{name}, masked={masked}, order {order}\n{report}\n", flush=True)
    total = counts.total()
    print(f"{number} functions, {total} checks: {dict(counts)}, {time.perf_counter() - began:.0f} s")
    return int(counts["pass"] != total)


if __name__ == "__main__":
    sys.exit(main())
