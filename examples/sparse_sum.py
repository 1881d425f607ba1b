"""A loss on the sum of a sparse tensor, and a step along its gradient: stored entries move, the pattern stays.

Run with `python examples/sparse_sum.py`.
"""

import torch

from gradproof.sparse import apply_gradient_, unpack


def main() -> list[float]:
    """Bring the sum of a sparse matrix to one, and return the losses."""
    torch.manual_seed(0)
    matrix = torch.randn(5, 5).relu().to_sparse_csc().requires_grad_()
    before = matrix.detach().row_indices().clone()
    losses = []
    for _ in range(20):
        loss = (unpack(matrix)[0].sum() - 1).square()
        matrix.grad = None
        loss.backward()
        apply_gradient_(matrix, matrix.grad, lr=0.02)
        losses.append(float(loss.detach()))
    assert matrix.detach().row_indices().equal(before)
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}, still {matrix.layout} with {before.numel()} entries")
    return losses


if __name__ == "__main__":
    main()
