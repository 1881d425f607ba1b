"""One of two processes that train a small model together; run with its rank, a file to meet at, and one to write to."""

import sys
from datetime import timedelta

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from gradproof.sparse import GraphConvolution, SparseLinear, drop_and_grow_

RING = torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 0, 2]])
STEPS = 4


def model(seed=0):
    torch.manual_seed(seed)
    convolution = GraphConvolution(3, 8, edge_index=RING, nodes=4, dtype=torch.float64)
    return nn.Sequential(convolution, nn.Tanh(), SparseLinear(8, 2, density=0.5, dtype=torch.float64))


def batch():
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(6, 4, size, dtype=torch.float64, generator=generator) for size in (3, 2)]


def train(net, x, y):
    adam = torch.optim.Adam(net.parameters(), lr=0.05)
    for _ in range(STEPS):
        adam.zero_grad()
        (net(x) - y).square().mean().backward()
        adam.step()


def follows_a_pattern(rank):
    """Return, eager and compiled, whether a product uses the pattern that rank 0 has changed."""
    found = []
    for compiled in (False, True):
        layer = SparseLinear(8, 4, density=0.5, dtype=torch.float64)
        together = DistributedDataParallel(layer)
        run = torch.compile(together, backend="aot_eager") if compiled else together
        x = torch.randn(3, 8, dtype=torch.float64)
        for step in range(3):
            if step == 1 and rank == 0:
                drop_and_grow_(layer, 0.5)
            result = run(x)
            result.square().sum().backward()
        at = torch.repeat_interleave(layer.crow_indices.diff()), layer.col_indices.long()
        weight = torch.zeros(4, 8, dtype=torch.float64).index_put(at, layer.weight_values.detach())
        found.append(torch.allclose(result, x @ weight.T + layer.bias))
    return found


def main(rank, meeting_place, results):
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{meeting_place}", rank=rank, world_size=2, timeout=timedelta(seconds=60)
    )
    net = model(seed=rank)  # other weights and another pattern: those of rank 0 have to arrive
    share = slice(3 * rank, 3 * rank + 3)
    together = DistributedDataParallel(net)
    known = net[2].pattern.by_rows
    train(together, *(part[share] for part in batch()))
    state, kept = {name: tensor.clone() for name, tensor in net.state_dict().items()}, net[2].pattern.by_rows is known
    torch.save({"state": state, "kept": kept, "followed": follows_a_pattern(rank)}, results)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
