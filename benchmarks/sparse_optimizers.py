"""A step of an optimizer on a sparse parameter, beside the same step on a dense vector of its stored entries.

Both take turns in one process, along one gradient, in one of four ways:

- own: the gradient has the parameter's own indices, as the products of `gradproof.sparse` make it;
- once: it has one copy of them, which the first step compares and later steps find in the cache;
- arrived: it has a new copy for every step, from a backward of torch's; a hook compares them before the step;
- anew: it has a new copy for every step, passed by hand, so that the step itself has to compare them.

The time of a step does not include its preparation: the backward and the copy are shown in the column "before". The two
steps take turns in coming first, since the one before leaves the caches cold. Times are medians, and the ratio is that
of the medians. The exit status is 1 if a step of AdamW takes more than 1.3 times as long as the dense one, except in
the last way: reading a million new indices alone takes longer.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor

from gradproof.sparse import optimizer, unpack

ENTRIES_A_ROW = 10
MOST = 1.3
WARM = 3  # the first steps make the state
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "COO": lambda matrix: matrix.to_sparse_coo().coalesce(),
    "CSR": lambda matrix: matrix,
    "CSC": lambda matrix: matrix.to_sparse_csc(),
}


def matrix(entries: int) -> Tensor:
    """A square CSR matrix with ten entries in every row."""
    rows = entries // ENTRIES_A_ROW
    col_indices = (torch.arange(rows).unsqueeze(1) + torch.arange(ENTRIES_A_ROW) * (rows // ENTRIES_A_ROW)) % rows
    crow_indices = torch.arange(0, entries + 1, ENTRIES_A_ROW)
    return torch.sparse_csr_tensor(
        crow_indices, col_indices.sort(1).values.reshape(-1), torch.randn(entries), (rows, rows)
    )


def blocks(entries: int) -> Tensor:
    """A square BSR matrix of 2 × 2 blocks, with ten entries in every row."""
    rows = entries // 4 // (ENTRIES_A_ROW // 2)
    small = matrix(entries // 4 // (ENTRIES_A_ROW // 2) * ENTRIES_A_ROW)
    crow_indices, col_indices = (
        torch.arange(0, entries // 4 + 1, ENTRIES_A_ROW // 2),
        small.col_indices().view(rows, -1)[:, ::2],
    )
    values = torch.randn(entries // 4, 2, 2)
    return torch.sparse_bsr_tensor(crow_indices, col_indices.reshape(-1), values, (2 * rows, 2 * rows))


def one_step(step: Callable[[], object]) -> float:
    began = time.perf_counter()
    step()
    return time.perf_counter() - began


def copied(gradient: Tensor) -> Tensor:
    """The same with indices of its own."""
    return gradient.detach().clone()


def given_by_hand(leaf: Tensor, gradient: Tensor) -> None:
    leaf.grad = copied(gradient)


def brought(leaf: Tensor, gradient: Tensor) -> None:
    """By a backward of torch's own; the gradient that it brings has other indices than the leaf."""
    leaf.grad = None
    torch.autograd.backward([leaf], [copied(gradient)])


def nothing(leaf: Tensor, gradient: Tensor) -> None:
    """The gradient of the last step is that of the next."""


PREPARED = {"own": nothing, "once": nothing, "arrived": brought, "anew": given_by_hand}
BOUNDED = ("own", "once", "arrived")
BROUGHT = (torch.sparse_coo, torch.sparse_csr)  # the layouts of which torch brings gradients


def measured(leaf: Tensor, kind: type[torch.optim.Optimizer], way: str, rounds: int) -> tuple[float, float, float]:
    """The medians of a step on a sparse parameter, of one on a dense vector, and of what came before the first."""
    stepping = optimizer(kind, [leaf.requires_grad_()], lr=1e-3)
    values = unpack(leaf)[0]
    values.square().sum().backward()
    assert leaf.grad is not None
    gradient = leaf.grad
    if way != "own":
        given_by_hand(leaf, gradient)
    dense = values.detach().reshape(-1).clone().requires_grad_()
    dense.grad = 2 * dense.detach()
    prepare = functools.partial(PREPARED[way], leaf, gradient)
    steps = {"ours": stepping.step, "theirs": kind([dense], lr=1e-3).step}
    times: dict[str, list[float]] = {"before": [], "ours": [], "theirs": []}
    for turn in range(rounds):
        times["before"].append(one_step(prepare))
        for name in sorted(steps, reverse=bool(turn % 2)):
            times[name].append(one_step(steps[name]))
    ours, theirs, before = (statistics.median(times[name][WARM:]) for name in ("ours", "theirs", "before"))
    return ours, theirs, before


def main() -> int:
    parser = argparse.ArgumentParser(description="What a step on a sparse parameter takes.")
    parser.add_argument("--entries", type=int, default=10**6)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(options.threads)
    print(f"{options.entries:,} stored entries, float32, {options.threads} threads")
    print(f"{'optimizer':<10}{'layout':<8}{'indices':<9}{'sparse':>10}{'dense':>10}{'ratio':>8}{'before':>11}")
    worst = dict.fromkeys(PREPARED, 0.0)
    for kind, way in itertools.product((torch.optim.AdamW, torch.optim.SGD), PREPARED):
        made = {name: make(matrix(options.entries)) for name, make in LAYOUTS.items()}
        for name, leaf in {**made, "BSR": blocks(options.entries)}.items():
            if way == "arrived" and leaf.layout not in BROUGHT:
                continue
            ours, theirs, before = measured(leaf, kind, way, options.rounds)
            if kind is torch.optim.AdamW:
                worst[way] = max(worst[way], ours / theirs)
            shown = f"{1e3 * before:>8.2f} ms" if way == "arrived" else ""
            words = f"{kind.__name__:<10}{name:<8}{way:<9}"
            print(f"{words}{1e3 * ours:>7.2f} ms{1e3 * theirs:>7.2f} ms{ours / theirs:>8.2f}{shown}")
    print(f"AdamW, times the dense step at most: {', '.join(f'{way} {most:.2f}' for way, most in worst.items())}")
    print(f"goal {MOST} for {', '.join(BOUNDED)}")
    return int(max(worst[way] for way in BOUNDED) > MOST)


if __name__ == "__main__":
    sys.exit(main())
