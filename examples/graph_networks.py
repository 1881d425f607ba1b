"""A graph convolutional network and a graph attention network that learn the classes of a graph's nodes.

Run with `python examples/graph_networks.py`, or with the argument 100000 for a graph of that many nodes and ten times
as many edges.
"""

import sys

import torch
from torch import Tensor, nn

from gradproof.sparse import GraphAttention, Pattern, aggregate

CLASSES, DEGREE, FEATURES = 8, 10, 16


def communities(nodes: int) -> tuple[Tensor, Tensor, Tensor]:
    """A graph most of whose edges join nodes of one class, its classes, and features that hardly separate them."""
    label = torch.arange(nodes) % CLASSES
    target = torch.arange(nodes).repeat_interleave(DEGREE)
    same = torch.rand(nodes * DEGREE) < 0.7
    source = torch.randint(nodes, (nodes * DEGREE,))
    in_class = (source - source % CLASSES + label[target]) % nodes
    source = torch.where(same, in_class, source)
    centres = torch.randn(CLASSES, FEATURES)
    return torch.stack([source, target]), label, 0.5 * centres[label] + torch.randn(nodes, FEATURES)


class Convolution(nn.Module):
    """The mean of the neighbours' features and a node's own, each through a linear map."""

    def __init__(self, width: int, out: int, pattern: Pattern) -> None:
        super().__init__()
        self.own, self.neighbours, self.pattern = nn.Linear(width, out), nn.Linear(width, out), pattern

    def forward(self, x: Tensor) -> Tensor:
        """Map the features of all nodes."""
        return self.own(x) + aggregate(self.pattern, self.neighbours(x), reduce="mean")


class Attention(nn.Module):
    """Attention over the neighbours with several heads, and a node's own features."""

    def __init__(self, width: int, out: int, pattern: Pattern, heads: int) -> None:
        super().__init__()
        self.own, self.pattern = nn.Linear(width, heads * out), pattern
        self.neighbours = GraphAttention(width, out, heads=heads)

    def forward(self, x: Tensor) -> Tensor:
        """Map the features of all nodes."""
        return self.own(x) + self.neighbours(x, self.pattern)


def networks(edges: Tensor, nodes: int) -> dict[str, nn.Module]:
    """Two layers each, on one pattern, whose order of entries is computed once."""
    pattern = Pattern.from_edge_index(edges, nodes=nodes, parallel=True)
    return {
        "GCN": nn.Sequential(Convolution(FEATURES, 32, pattern), nn.ReLU(), Convolution(32, CLASSES, pattern)),
        "GAT": nn.Sequential(Attention(FEATURES, 8, pattern, 4), nn.ELU(), Attention(32, CLASSES, pattern, 1)),
    }


def train(net: nn.Module, x: Tensor, label: Tensor, epochs: int) -> tuple[list[float], float]:
    """Train on one half of the nodes, and return the losses and the accuracy on the other half."""
    known = torch.rand(len(x)) < 0.5
    adam = torch.optim.Adam(net.parameters(), lr=0.02)
    losses = []
    for _ in range(epochs):
        adam.zero_grad()
        loss = nn.functional.cross_entropy(net(x)[known], label[known])
        loss.backward()
        adam.step()
        losses.append(float(loss.detach()))
    with torch.no_grad():
        accuracy = float((net(x).argmax(1) == label)[~known].float().mean())
    return losses, accuracy


def main(nodes: int = 800, epochs: int = 60) -> list[float]:
    """Train both networks, and return the losses of the second."""
    torch.manual_seed(0)
    edges, label, x = communities(nodes)
    losses = [0.0]
    for name, net in networks(edges, nodes).items():
        losses, accuracy = train(net, x, label, epochs)
        print(f"{name}: loss {losses[0]:.3f} -> {losses[-1]:.3f}, {accuracy:.1%} of the other nodes are right")
    return losses


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
