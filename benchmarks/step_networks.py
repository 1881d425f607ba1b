"""Small networks of many kinds, from twenty numbers to three: some with kinks, some recurrent, sparse or random."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from gradproof.sparse import GraphConvolution, SparseLinear


class Recurrent(nn.Module):
    """A GRU over a few time steps, read at the last."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.GRU(4, 12, batch_first=True), nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Twenty numbers as five time steps of four."""
        states, _ = self.cell(x.reshape(-1, 5, 4))
        result: Tensor = self.head(states[:, -1])
        return result


class Attentive(nn.Module):
    """One encoder layer with attention, relu and layer norms."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(4, 2, 16, dropout=dropout, batch_first=True)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Twenty numbers as five tokens of four."""
        result: Tensor = self.head(self.layer(x.reshape(-1, 5, 4)).mean(1))
        return result


def perceptron(*widths: int, between: Callable[[], nn.Module] = nn.ReLU) -> nn.Module:
    layers: list[nn.Module] = []
    for before, after in zip((20, *widths), (*widths, 3), strict=True):
        layers += [nn.Linear(before, after), between()]
    return nn.Sequential(*layers[:-1])


def convolutional(kind: Callable[[int], nn.Module]) -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 4, 5)), nn.Conv2d(1, 6, 3, padding=1), nn.ReLU(), kind(2), nn.Flatten(), nn.Linear(24, 3)
    )


def sparse(between: Callable[[], nn.Module]) -> nn.Module:
    return nn.Sequential(
        SparseLinear(20, 64, density=0.2), between(), SparseLinear(64, 32, density=0.1), between(), nn.Linear(32, 3)
    )


def graph() -> nn.Module:
    ring = torch.stack([torch.arange(5), torch.arange(5).roll(1)])
    edges = torch.cat([ring, ring.flip(0)], 1)
    first = GraphConvolution(4, 8, edge_index=edges, nodes=5, normalization="softmax")
    second = GraphConvolution(8, 3, edge_index=edges, nodes=5)
    return nn.Sequential(nn.Unflatten(1, (5, 4)), first, nn.ReLU(), second, nn.Flatten(), nn.Linear(15, 3))


def dropping() -> nn.Module:
    return nn.Sequential(nn.Linear(20, 40), nn.ReLU(), nn.Dropout(0.3), nn.BatchNorm1d(40), nn.Linear(40, 3))


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "relu, narrow": lambda: perceptron(5),
    "relu, wide": lambda: perceptron(300),
    "relu, deep": lambda: perceptron(16, 16, 16, 16, 16),
    "leaky relu": lambda: perceptron(70, 30, between=nn.LeakyReLU),
    "hardswish": lambda: perceptron(40, 40, between=nn.Hardswish),
    "tanh": lambda: perceptron(30, 30, between=nn.Tanh),
    "convolution, largest": lambda: convolutional(nn.MaxPool2d),
    "convolution, mean": lambda: convolutional(nn.AvgPool2d),
    "GRU": Recurrent,
    "attention, dropout": lambda: Attentive(0.1),
    "attention, at rest": lambda: Attentive(0.1).eval(),
    "sparse, relu": lambda: sparse(nn.ReLU),
    "sparse, tanh": lambda: sparse(nn.Tanh),
    "graph": graph,
    "dropout, statistics": dropping,
    "dropout, at rest": lambda: dropping().eval(),
}
