"""One of two processes that train a small model together; run with its rank, a file to meet at, and one to write to."""

import sys
from datetime import timedelta

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from gradproof.sparse import GraphConvolution, SparseLinear

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
    torch.save({"state": net.state_dict(), "kept": net[2].pattern.by_rows is known}, results)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
