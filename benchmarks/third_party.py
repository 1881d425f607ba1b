"""Does a right gradient of code that others wrote ever fail? Functions and modules of packages from PyPI.

    pip install --no-deps --target /tmp/third_party entmax kornia ...   (the extra `third-party` has the list)
    PYTHONPATH=/tmp/third_party python -m benchmarks.third_party

Every case is checked by gradproof, and held against a judge that shares no code with it: central differences of the
eighth order in double precision, of the loss that a user would call `backward()` on, with respect to one input or
parameter at a time. Packages and cases that are not there are left out with a line.
"""

from __future__ import annotations

import argparse
import collections
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import gradproof
from benchmarks.third_party_cases import Case, Inputs, cases

STEPS = (1e-2, 1e-3, 1e-4, 1e-5)
WEIGHTS = {1: 4 / 5, 2: -1 / 5, 3: 4 / 105, 4: -1 / 280}  # central differences of the eighth order
RIGHT = 1e-7  # of the slope: as near is right at the best of the steps
WRONG = 1e-5  # of the slope: as far is wrong, where all steps agree among themselves
SHARE = 0.1  # of the error: differences at two steps that are alike to as much know the slope
LIMIT = 60  # seconds a case


def main() -> None:
    """Print a line for every case that is no plain pass, a table of the packages, and the totals."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--package", help="check the cases of one package only")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_default_dtype(torch.float64)
    warnings.simplefilter("ignore")
    table: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    absent: dict[str, str] = {}
    for case in cases():
        if arguments.package in (None, case.package):
            _run(case, arguments.seed, table[case.package], absent)
    _print(table, absent)
    sys.exit(any(row["false alarm"] for row in table.values()))


def _run(case: Case, seed: int, row: collections.Counter[str], absent: dict[str, str]) -> None:
    torch.manual_seed(seed)
    try:
        function, inputs = case.factory()
        function(*inputs)
    except Exception as error:
        absent[f"{case.package}.{case.name}"] = (
            f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        )
        row["left out"] += 1
        return
    began = time.perf_counter()
    try:
        with _limited(LIMIT):
            report = gradproof.check(function, inputs, seed=seed, contracts=())
    except Exception as error:
        row["raised"] += 1
        print(f"{case.package}.{case.name}: raised {type(error).__name__}: {error}")
        return
    row["seconds"] += round(1000 * (time.perf_counter() - began))
    verdict, judged = report.verdict.value, _judge(function, inputs, seed)
    row[verdict] += 1
    row[f"{verdict}, {judged}"] += 1
    if verdict == "fail" and judged == "right":
        row["false alarm"] += 1
    if verdict != "pass" or judged == "wrong":
        print(f"{case.package}.{case.name}: {verdict}; the judge says {judged}. {report.message}")


def _judge(function: Callable[..., Any], inputs: Inputs, seed: int) -> str:
    """Return "right", "wrong" or "unclear": the loss's gradient against differences, tensor by tensor."""
    own = list(function.parameters()) if isinstance(function, nn.Module) else []
    varied = [tensor for tensor in (*inputs, *own) if tensor.requires_grad]
    try:
        with _limited(LIMIT):
            said = [_of_tensor(function, inputs, varied, tensor, seed) for tensor in varied]
    except Exception:
        return "unclear"
    return next((word for word in ("wrong", "unclear") if word in said), "right")


def _of_tensor(function: Callable[..., Any], inputs: Inputs, varied: list[Tensor], tensor: Tensor, seed: int) -> str:
    """Compare the slope of the loss along a random direction of one tensor."""
    before = [each.grad for each in varied]
    for each in varied:
        each.grad = None
    loss = _loss(function, inputs, seed)
    if loss.requires_grad:  # else the function lost its graph, and its gradient is zero
        loss.backward()
    gradient = torch.zeros_like(tensor) if tensor.grad is None else tensor.grad
    for each, grad in zip(varied, before, strict=True):
        each.grad = grad
    direction = torch.randn(tensor.shape, generator=torch.Generator().manual_seed(seed)).to(tensor)
    claimed = float((gradient * direction).sum())
    slopes = [_slope(function, inputs, tensor, direction, step, seed) for step in STEPS]
    size = max(abs(claimed), float((gradient * direction).norm()), 1e-8)  # random signs may cancel in the slope
    errors = [abs(slope - claimed) / size for slope in slopes]
    if min(errors) <= RIGHT:
        return "right"
    spread = max(slopes[1:3]) - min(slopes[1:3])
    return "wrong" if min(errors) > WRONG and spread < SHARE * min(errors) * size else "unclear"


def _slope(
    function: Callable[..., Any], inputs: Inputs, tensor: Tensor, direction: Tensor, step: float, seed: int
) -> float:
    """Return a central difference, with the tensor moved in place as an optimizer would and put back."""
    kept, total = tensor.detach().clone(), 0.0
    try:
        for count, weight in WEIGHTS.items():
            for sign in (1, -1):
                with torch.no_grad():
                    tensor.copy_(kept + sign * count * step * direction)
                total += sign * weight * float(_loss(function, inputs, seed).detach())
    finally:
        with torch.no_grad():
            tensor.copy_(kept)
    return total / step


def _loss(function: Callable[..., Any], inputs: Inputs, seed: int) -> Tensor:
    """Return a random combination of all results, the same for the same seed."""
    torch.manual_seed(seed)
    weights = torch.Generator().manual_seed(seed + 1)
    try:
        results = function(*inputs)
    except RuntimeError:  # a function that writes to its inputs does not take leaves
        results = function(*(each.clone() for each in inputs))
    total = torch.zeros(())
    for leaf in tree_leaves(results):
        if isinstance(leaf, Tensor) and leaf.is_floating_point():
            total = total + (leaf * torch.rand(leaf.shape, generator=weights)).sum()
    return total


@contextmanager
def _limited(seconds: int) -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise TimeoutError(f"{seconds} s are over")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


COLUMNS = ("pass", "fail", "inconclusive", "raised", "fail, wrong", "pass, wrong", "false alarm", "left out")


def _print(table: dict[str, collections.Counter[str]], absent: dict[str, str]) -> None:
    print("\nleft out:")
    for name, why in absent.items():
        print(f"  {name}: {why[:110]}")
    print(f"\n{'package':<28}" + "".join(f"{name:>14}" for name in COLUMNS) + f"{'ms a case':>12}")
    table["all"] = sum(table.values(), collections.Counter())
    for package, row in table.items():
        checked = max(1, sum(row[verdict] for verdict in COLUMNS[:3]))
        figures = "".join(f"{row[name]:>14}" for name in COLUMNS)
        print(f"{package:<28}{figures}{row['seconds'] // checked:>12}")


if __name__ == "__main__":
    main()
