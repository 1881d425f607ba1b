"""A step of an optimiser on a sparse parameter, beside the same step on a dense vector of its stored entries.

Both take turns in one process, with one gradient: one that was made with the parameter's own indices, as the products
of `gradproof.sparse` make it, or with a copy of them, which has to be compared. Times are medians, and the ratio is
that of the medians. The exit status is 1 where a step of AdamW along the first kind of gradient takes more than 1.3
times the dense one's time.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor

from gradproof.sparse import entries, optimiser

ENTRIES_A_ROW = 10
MOST = 1.3
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "COO": lambda matrix: matrix.to_sparse_coo().coalesce(),
    "CSR": lambda matrix: matrix,
    "CSC": lambda matrix: matrix.to_sparse_csc(),
}


def matrix(entries: int) -> Tensor:
    """A square CSR matrix with ten entries in every row."""
    rows = entries // ENTRIES_A_ROW
    places = (torch.arange(rows).unsqueeze(1) + torch.arange(ENTRIES_A_ROW) * (rows // ENTRIES_A_ROW)) % rows
    starts = torch.arange(0, entries + 1, ENTRIES_A_ROW)
    return torch.sparse_csr_tensor(starts, places.sort(1).values.reshape(-1), torch.randn(entries), (rows, rows))


def blocks(entries: int) -> Tensor:
    """A square BSR matrix of 2 × 2 blocks, with ten entries in every row."""
    rows = entries // 4 // (ENTRIES_A_ROW // 2)
    small = matrix(entries // 4 // (ENTRIES_A_ROW // 2) * ENTRIES_A_ROW)
    starts, places = torch.arange(0, entries // 4 + 1, ENTRIES_A_ROW // 2), small.col_indices().view(rows, -1)[:, ::2]
    values = torch.randn(entries // 4, 2, 2)
    return torch.sparse_bsr_tensor(starts, places.reshape(-1), values, (2 * rows, 2 * rows))


def one_step(step: Callable[[], object]) -> float:
    began = time.perf_counter()
    step()
    return time.perf_counter() - began


def measured(leaf: Tensor, kind: type[torch.optim.Optimizer], copied: bool, rounds: int) -> tuple[float, float]:
    """The medians of a step on a sparse parameter, and on a dense vector of as many entries."""
    stepping = optimiser(kind, [leaf.requires_grad_()], lr=1e-3)
    values = entries(leaf)
    values.square().sum().backward()
    if copied:
        assert leaf.grad is not None
        leaf.grad = leaf.grad.clone()
    dense = values.detach().reshape(-1).clone().requires_grad_()
    dense.grad = 2 * dense.detach()
    steps = stepping.step, kind([dense], lr=1e-3).step
    times = [[one_step(step) for step in steps] for _ in range(rounds)][3:]  # the first ones make the state
    ours, theirs = zip(*times, strict=True)
    return statistics.median(ours), statistics.median(theirs)


def main() -> int:
    parser = argparse.ArgumentParser(description="What a step on a sparse parameter takes.")
    parser.add_argument("--entries", type=int, default=10**6)
    parser.add_argument("--rounds", type=int, default=60)
    options = parser.parse_args()
    torch.manual_seed(0)
    print(f"{options.entries:,} stored entries, float32, {torch.get_num_threads()} threads")
    print(f"{'optimiser':<10}{'layout':<8}{'indices':<9}{'sparse':>10}{'dense':>10}{'ratio':>8}")
    worst = 0.0
    for kind, copied in itertools.product((torch.optim.AdamW, torch.optim.SGD), (False, True)):
        made = {name: make(matrix(options.entries)) for name, make in LAYOUTS.items()}
        for name, leaf in {**made, "BSR": blocks(options.entries)}.items():
            ours, theirs = measured(leaf, kind, copied, options.rounds)
            if kind is torch.optim.AdamW and not copied:
                worst = max(worst, ours / theirs)
            words = f"{kind.__name__:<10}{name:<8}{'copied' if copied else 'own':<9}"
            print(f"{words}{1e3 * ours:>7.2f} ms{1e3 * theirs:>7.2f} ms{ours / theirs:>8.2f}")
    print(f"AdamW, own indices: at most {worst:.2f} times the dense step (goal {MOST})")
    return int(worst > MOST)


if __name__ == "__main__":
    sys.exit(main())
