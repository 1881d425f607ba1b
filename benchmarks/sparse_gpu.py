"""Sparse products, attention and layers on a GPU, beside torch's own sparse and dense ones.

Times are medians of ten calls in a row, after a warm-up, and as multiples of gradproof's. "copy" moves as many bytes as
the product reads of the dense operand, each row as often as it is used. `--device cpu` with small sizes tries it
without a GPU.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.sparse_training import FEATURES, HEADS, graph
from gradproof.sparse import GraphAttention, Pattern, SparseLinear, matmul, row_softmax

Run = Callable[[], Any]
SIZES = (8, 32, 128)  # columns of the dense operand
IN_A_ROW = 10  # calls, as a training loop makes them: the device is waited for after the last


def timed(run: Run, device: str, repeats: int) -> float:
    """The median time of a call in milliseconds."""
    for _ in range(3):
        run()
    times = []
    for _ in range(repeats):
        if device == "cuda":
            torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(IN_A_ROW):
            run()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - began) / IN_A_ROW)
    return statistics.median(times)


def with_backward(run: Run, leaves: list[Tensor]) -> Run:
    """Forward and backward; the incoming gradient is made once."""
    incoming = torch.randn_like(run())

    def step() -> None:
        for leaf in leaves:
            leaf.grad = None
        run().backward(incoming)

    return step


def products(options: argparse.Namespace, degrees: str) -> Iterator[tuple[str, str, Run]]:
    """Products of a sparse matrix with a dense one: forward, and forward and backward."""
    device, nodes = options.device, options.nodes
    sources, targets = edges = graph(nodes, options.edges, degrees).to(device)
    crow = torch.zeros(nodes + 1, dtype=torch.int64, device=device)
    crow[1:] = torch.bincount(targets, minlength=nodes).cumsum(0)
    pattern = Pattern(torch.sparse_csr, (nodes, nodes), (crow, sources))
    for k in SIZES:
        weights = torch.randn(edges.shape[1], device=device)
        x = torch.randn(nodes, k, device=device)
        copied = torch.empty(edges.shape[1], k, device=device)
        source = torch.randn_like(copied)
        learned, moved = weights.clone().requires_grad_(), x.clone().requires_grad_()
        csr = torch.sparse_csr_tensor(crow, sources, weights, (nodes, nodes), check_invariants=False)
        leaf = csr.clone().requires_grad_()
        coo = torch.sparse_coo_tensor(edges.flip(0), weights, (nodes, nodes), is_coalesced=True)
        name = f"{degrees}, k = {k}"
        yield f"forward, {name}", "gradproof", lambda w=weights, x=x: matmul((pattern, w), x)
        yield f"forward, {name}", "torch CSR", lambda a=csr, x=x: a @ x
        yield f"forward, {name}", "torch COO", lambda a=coo, x=x: a @ x
        yield f"forward, {name}", "copy", lambda a=copied, b=source: a.copy_(b)
        ours = with_backward(lambda w=learned, x=moved: matmul((pattern, w), x), [learned, moved])
        theirs = with_backward(lambda a=leaf, x=moved: torch.sparse.mm(a, x), [leaf, moved])
        yield f"training, {name}", "gradproof", ours
        yield f"training, {name}", "torch CSR", theirs


def layers(options: argparse.Namespace) -> Iterator[tuple[str, str, Run]]:
    """Linear layers with zeros beside dense ones, by batch; softmax of edges and attention."""
    width, device = options.width, options.device
    for batch in (32, 512, 8192):
        x = torch.randn(batch, width, device=device, requires_grad=True)
        dense = nn.Linear(width, width, device=device)
        for zeros in (90, 99):
            layer = SparseLinear(width, width, density=1 - zeros / 100).to(device)
            name = f"linear {width}², {zeros} % zeros, batch {batch}"
            for peer, run in (("gradproof", layer), ("torch dense", dense)):
                leaves = [x, *run.parameters()]
                yield name, peer, with_backward(lambda run=run, x=x: run(x), leaves)
    edges = graph(options.nodes, options.edges, "uniform").to(device)
    pattern = Pattern.from_edge_index(edges, nodes=options.nodes)
    scores = torch.randn(edges.shape[1], HEADS, device=device, requires_grad=True)
    yield "softmax of edges, 8 heads", "gradproof", with_backward(lambda: row_softmax((pattern, scores)), [scores])
    features = torch.randn(options.nodes, 64, device=device, requires_grad=True)
    for score in ("additive", "dot"):
        attention = GraphAttention(64, FEATURES, heads=HEADS, score=score).to(device)
        yield f"attention, {score}", "gradproof", with_backward(lambda a=attention: a(features, edges), [features])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--edges", type=int, default=1_000_000)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--repeats", type=int, default=20)
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        print("This benchmark needs a GPU; --device cpu tries it without.")
        return
    name = torch.cuda.get_device_name() if options.device == "cuda" else "processor"
    print(f"{name}, torch {torch.__version__}; {options.nodes} nodes, {options.edges} edges, float32")
    ours = 1.0
    for table in (products(options, "uniform"), products(options, "power"), layers(options)):
        for case, peer, run in table:
            try:
                spent = timed(run, options.device, options.repeats)
            except RuntimeError as error:
                print(f"{case:<44}{peer:<14}{str(error).splitlines()[0][:60]}", flush=True)
                continue
            ours = spent if peer == "gradproof" else ours
            print(f"{case:<44}{peer:<14}{spent:>10.3f} ms{spent / ours:>8.2f}", flush=True)


if __name__ == "__main__":
    main()
