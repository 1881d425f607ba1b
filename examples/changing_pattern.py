"""A sparse layer that finds which inputs matter: weak weights are dropped, and others grow where the gradient is large.

Run with `python examples/changing_pattern.py`.
"""

import math

import torch

from gradproof.sparse import SparseLinear, drop_and_grow_, full_gradient

STEPS, EVERY = 300, 10


def main() -> list[float]:
    """Train an eighth of the weights, at changing positions, as RigL does, and return the losses."""
    torch.manual_seed(0)
    truth = torch.zeros(8, 64)
    truth[:, :8] = torch.randn(8, 8)  # the first 8 of 64 inputs matter
    x = torch.randn(256, 64)
    y = x @ truth.T
    layer = SparseLinear(64, 8, density=0.125)
    adam = torch.optim.Adam(layer.parameters(), lr=0.05)
    losses = []
    for step in range(STEPS):
        adam.zero_grad()
        loss = (layer(x) - y).square().mean()
        loss.backward()
        adam.step()
        losses.append(float(loss.detach()))
        if step % EVERY == EVERY - 1 and step < 0.8 * STEPS:
            gradient = full_gradient(layer, lambda: (layer(x) - y).square().mean().backward())
            share = 0.15 * (1 + math.cos(math.pi * step / (0.8 * STEPS)))
            drop_and_grow_(layer, share, scores=gradient, optimizers=adam)
    found = float((layer.pattern.coordinates[1] < 8).float().mean())
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.6f}, {found:.0%} of the weights read an input that matters")
    return losses


if __name__ == "__main__":
    main()
