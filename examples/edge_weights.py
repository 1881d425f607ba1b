"""A graph network that learns the weights of its edges: which neighbours matter, from what the nodes should become.

Run with `python examples/edge_weights.py`.
"""

import torch
from torch import nn

from gradproof.sparse import GraphConvolution, clip_grad_norm_


def main() -> list[float]:
    """Learn which of a node's neighbours its label comes from, and return the losses."""
    torch.manual_seed(0)
    nodes, neighbours = 60, 4
    targets = torch.arange(nodes).repeat_interleave(neighbours)
    sources = torch.cat([torch.randperm(nodes)[:neighbours] for _ in range(nodes)])
    layer = GraphConvolution(8, 8, edge_index=torch.stack([sources, targets]), nodes=nodes, normalization="softmax")
    net = nn.Sequential(layer, nn.Tanh(), nn.Linear(8, 8))
    features = torch.randn(20, nodes, 8)
    wanted = features[:, sources[::neighbours]]  # the first neighbour of each node
    adam = torch.optim.AdamW(net.parameters(), lr=0.03)
    losses = []
    for _ in range(150):
        adam.zero_grad()
        loss = (net(features) - wanted).square().mean()
        loss.backward()
        clip_grad_norm_(net.parameters(), 1.0)
        adam.step()
        losses.append(float(loss.detach()))
    strongest = layer.edge_weight.detach().reshape(nodes, neighbours).argmax(1)
    found = float((strongest == 0).float().mean())
    print(
        f"loss {losses[0]:.4f} -> {losses[-1]:.4f}, the edge that matters is the strongest at {found:.0%} of the nodes"
    )
    return losses


if __name__ == "__main__":
    main()
