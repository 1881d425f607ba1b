"""Right networks under many seeds: each should have one verdict, and resolutions of one size.

`python -m benchmarks.seeds [SEEDS]` prints a row for each of 20 networks: its verdicts, the finest and the coarsest
resolution of its passes, and the slowest check beside the usual one.
"""

from __future__ import annotations

import statistics
import sys
import warnings
from collections import Counter
from collections.abc import Callable

import torch
from torch import Tensor, nn

import gradproof

Case = tuple[nn.Module, Tensor]


class Graph(nn.Module):
    """Two graph convolutions; an adjacency of `fixed` dtype makes other precisions raise."""

    def __init__(self, nodes: int, *, fixed: bool) -> None:
        super().__init__()
        ends = torch.randint(0, nodes, (2, 4 * nodes))
        stored = torch.sparse_coo_tensor(ends, torch.rand(4 * nodes), (nodes, nodes)).coalesce()
        self.adjacency, self.fixed = stored.to_sparse_csr(), fixed
        self.dtype: torch.dtype | None = None
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        """Return class probabilities."""
        self.dtype = self.dtype or x.dtype  # of the first call
        adjacency = self.adjacency.to(self.dtype if self.fixed else x.dtype)
        hidden = torch.relu(torch.sparse.mm(adjacency, self.first(x)) / 4)
        return torch.softmax(torch.sparse.mm(adjacency, self.second(hidden)) / 4, -1)


def mlp(width: int, *between: nn.Module) -> nn.Module:
    """Return linear layers with others between them."""
    layers = [layer for each in between for layer in (nn.Linear(width, width), each)]
    return nn.Sequential(*layers, nn.Linear(width, 10))


def convolutions(activation: nn.Module) -> nn.Module:
    """Return a small convolutional classifier."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), activation, nn.MaxPool2d(2), nn.Conv2d(8, 8, 3), activation, nn.Flatten(), nn.Linear(32, 10)
    )


NETWORKS: dict[str, Callable[[], Case]] = {
    "MLP, ReLU": lambda: (mlp(64, nn.ReLU(), nn.ReLU()), torch.randn(128, 64)),
    "MLP, tanh": lambda: (mlp(64, nn.Tanh(), nn.Tanh()), torch.randn(128, 64)),
    "MLP, GELU and layer norm": lambda: (mlp(32, nn.LayerNorm(32), nn.GELU()), torch.randn(64, 32)),
    "MLP, batch norm": lambda: (mlp(32, nn.BatchNorm1d(32), nn.SiLU()), torch.randn(64, 32)),
    "convolutions, ReLU": lambda: (convolutions(nn.ReLU()), torch.randn(8, 3, 10, 10)),
    "convolutions, softplus": lambda: (convolutions(nn.Softplus()), torch.randn(8, 3, 10, 10)),
    "encoder layer": lambda: (
        nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True), torch.randn(4, 8, 32)
    ),
    "recurrent": lambda: (Last(nn.GRU(16, 16, batch_first=True)), torch.randn(4, 6, 16)),
    "graph, ReLU": lambda: (Graph(500, fixed=False), torch.randn(500, 8)),
    "graph, ReLU, fixed dtype": lambda: (Graph(500, fixed=True), torch.randn(500, 8)),
}  # fmt: skip


class Last(nn.Module):
    """The last output of a recurrent layer."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        """Return the output at the last step."""
        found: Tensor = self.inner(x)[0][:, -1]
        return found


def main(seeds: int) -> int:
    """Print the table, and return 1 if a network has more than one verdict."""
    torch.set_num_threads(1)
    mixed = 0
    print(f"{'network':<38} {'verdicts':<24} {'resolution':<20} slowest / median")
    for name, make in NETWORKS.items():
        for dtype in (torch.float64, torch.float32):
            torch.manual_seed(0)
            module, x = make()
            reports = [gradproof.check(module.to(dtype), x.to(dtype), seed=seed) for seed in range(seeds)]
            verdicts = Counter(report.verdict.value for report in reports)
            mixed += len(verdicts) > 1
            told = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items())
            passed = sorted(report.resolution.relative for report in reports if report.passed) or [float("nan")]
            times = [report.cost.seconds for report in reports]
            label = f"{name}, {str(dtype).removeprefix('torch.')}"
            slow = max(times) / statistics.median(times)
            print(f"{label:<38} {told:<24} {passed[0]:.1e} to {passed[-1]:<8.1e} {slow:.1f}", flush=True)
    return int(mixed > 0)


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # torch's, about CSR
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 100))
