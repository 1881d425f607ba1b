"""A sparse linear layer trained with Adam on a sparse input towards a sparse target, each step verified.

Run with `python examples/sparse_linear.py`.
"""

import torch

from gradproof import check_step
from gradproof.sparse import Pattern, SparseLinear, repack


def main() -> list[float]:
    """Learn the weights behind a sparse target from a sparse input, and return the losses."""
    torch.manual_seed(0)
    samples, features, outputs = 200, 50, 10
    inputs = Pattern.random((samples, features), 0.1)
    x = repack(torch.randn(inputs.entries), inputs)
    truth = SparseLinear(features, outputs, density=0.2, bias=False)
    observed = Pattern.random((samples, outputs), 0.3)
    with torch.no_grad():
        target = truth(x)[tuple(observed.coordinates)]

    layer = SparseLinear(features, outputs, pattern=truth.pattern, bias=False)
    adam = torch.optim.Adam(layer.parameters(), lr=0.05)

    def loss() -> torch.Tensor:
        return (layer(x)[tuple(observed.coordinates)] - target).square().mean()

    losses = []
    for step in range(60):
        losses.append(float(loss().detach()))
        if step % 20 == 0:
            report = check_step(adam, loss, layer)
            assert report.passed, report
            continue
        adam.zero_grad()
        loss().backward()
        adam.step()
    stored, all_weights = layer.weight_values.numel(), features * outputs
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.6f} with {stored} of {all_weights} weights")
    return losses


if __name__ == "__main__":
    main()
