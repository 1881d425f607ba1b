"""A custom update from the sparse gradient's own indices and values: the largest entries of the gradient move alone.

Run with `python examples/custom_update.py`.
"""

import torch

from gradproof.sparse import Pattern, apply_gradient_, matmul, repack


def main() -> list[float]:
    """Fit a sparse matrix by moving a tenth of its entries at a time, and return the losses."""
    torch.manual_seed(0)
    pattern = Pattern.random((30, 40), 0.2)
    matrix = repack(torch.randn(pattern.entries), pattern).to_sparse_coo().coalesce().requires_grad_()
    truth = repack(torch.randn(pattern.entries), pattern)
    x = torch.randn(40, 100)
    y = matmul(truth, x)
    losses = []
    for _ in range(200):
        matrix.grad = None
        loss = (matmul(matrix, x) - y).square().mean()
        loss.backward()
        indices, values = matrix.grad.indices(), matrix.grad.values()
        chosen = values.abs().topk(values.numel() // 10).indices
        update = torch.sparse_coo_tensor(indices[:, chosen], values[chosen], matrix.shape, check_invariants=True)
        apply_gradient_(matrix, update, lr=5.0, on_mismatch="project")  # entries that the update does not store stay
        losses.append(float(loss.detach()))
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}, {chosen.numel()} of {values.numel()} entries a step")
    return losses


if __name__ == "__main__":
    main()
