"""The sweep's cases of other kinds: kernels beside references, functions of many inputs, numbers of extreme size."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from benchmarks.compare import DTYPES, results, with_wrong_entry
from benchmarks.compare_kernels import PAIRS, Pair, drawing
from benchmarks.held_out import draw
from benchmarks.scale import planted
from benchmarks.shapes import BUILDERS
from benchmarks.sweep_cases import Case, Skipped, Subject
from benchmarks.sweep_functions import COVERAGES, Function, Rule, with_bugs
from gradproof.frameworks.torch.comparison.perturbation import incoming_like

WRONG = 2  # wrong entries of each kernel and dtype: one of the value, one of a gradient
ENTRIES = 200_000  # of a large input: enough for the engine to take samples
BUILT = ("elementwise", "softmax", "matmul")
SIZES = (1e-120, 1e-60, 1e60, 1e120)


def compared() -> Iterator[Case]:
    """Kernels beside their references, right and with one wrong entry."""
    for pair in PAIRS:
        for dtype in DTYPES:
            name, reference = f"{pair.name} {str(dtype).removeprefix('torch.')}", {"reference": pair.reference}
            yield Case("compared", name, partial(_kernel, pair, dtype), reference)
            for seed in range(WRONG):
                make = partial(_wrong_kernel, pair, dtype, seed)
                options = {**reference, "seed": seed}  # the incoming gradient for which the entry was chosen
                yield Case("compared", f"{name}, wrong entry {seed}", make, options, planted=True, wrong=True)


def _kernel(pair: Pair, dtype: torch.dtype) -> Subject:
    torch.manual_seed(0)
    return Subject(pair.kernel, pair.inputs(drawing(dtype)))


def _wrong_kernel(pair: Pair, dtype: torch.dtype, seed: int) -> Subject:
    torch.manual_seed(seed)
    inputs = pair.inputs(drawing(dtype))
    wrong = with_wrong_entry(pair, dtype, seed, inputs, incoming_like(results(pair.kernel, inputs, None)[0], seed))
    if wrong is None:
        raise Skipped("no entry can show it")
    return Subject(wrong.kernel, inputs)


def large() -> Iterator[Case]:
    """Functions of many inputs, with a right gradient, one wrong entry, and an error throughout."""
    for name in BUILT:
        for title, victim in (("right", slice(0)), ("one entry", ENTRIES // 3), ("throughout", slice(None))):
            wrong = title != "right"
            yield Case("large", f"{name}, {title}", partial(_large, name, victim), planted=wrong, wrong=wrong)


def _large(name: str, victim: int | slice) -> Subject:
    torch.manual_seed(0)
    function, x = BUILDERS[name](ENTRIES)
    return Subject(planted(function, victim, 1.1), (x,))


def extreme() -> Iterator[Case]:
    """Inputs and outputs that are very large or very small."""
    for size in SIZES:
        functions: dict[str, Function] = {
            "square": lambda x, size=size: (x / size).square() * size,
            "quotient": lambda x, size=size: x / (1 + (x / size).square()),
            "sin": lambda x, size=size: (x / size).sin(),
        }
        for name, function in functions.items():
            rule = Rule(function, function)
            for coverage, options in COVERAGES.items():
                yield from with_bugs(
                    "extreme", f"{name} at {size:.0e} {coverage}", rule, partial(_sized, size), options
                )


def _sized(size: float) -> Tensor:
    return (size * draw(4, 6).detach()).requires_grad_()
