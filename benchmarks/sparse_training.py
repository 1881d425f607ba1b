"""Products, attention and epochs of graph networks beside torch, SciPy, PyG, DGL and torchsparsegradutils.

Every measurement is a process of its own; the table prints times, times over gradproof's, and the peak of resident
memory beyond the operands. With one thread the times are those of the processor, which others on the machine disturb
less. Peers that are not installed are left out, with a line. "copy" moves as many bytes as the product reads of the
dense operand, each row as often as it is used: a roof for any product that keeps no row in a cache.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.memory import SELF, status

HEADS, FEATURES, CLASSES = 8, 16, 10
WIDTH = 4096  # of a linear layer, in and out; its batch has --k rows
NEEDS = {
    "PyG scatter": "torch_geometric",
    "PyG EdgeIndex": "torch_geometric",
    "PyG": "torch_geometric",
    "DGL": "dgl",
    "SciPy": "scipy",
    "torchsparsegradutils": "torchsparsegradutils",
}
PRODUCT = (
    "gradproof",
    "torch CSR",
    "torch COO",
    "SciPy",
    "PyG scatter",
    "PyG EdgeIndex",
    "DGL",
    "torchsparsegradutils",
    "copy",
)
CASES = {
    "forward": PRODUCT,
    "training": tuple(peer for peer in PRODUCT if peer not in ("SciPy", "copy")),
    "attention, additive": ("gradproof", "PyG", "DGL"),
    "attention, dot": ("gradproof", "PyG", "DGL"),
    "softmax": ("gradproof", "PyG", "DGL"),
    "GCN epoch": ("gradproof", "torch CSR", "PyG scatter", "PyG EdgeIndex", "DGL"),
    "GAT epoch": ("gradproof", "PyG", "DGL"),
    **{f"linear, {zeros} % zeros": ("gradproof", "torch dense") for zeros in (50, 70, 90, 99)},
}
os.environ.setdefault("DGLBACKEND", "pytorch")
LIMIT = 12 << 30  # bytes of address space
PIECE = 1 << 22  # numbers copied at a time: more than a core's own cache holds


def graph(nodes: int, edges: int, degrees: str) -> Tensor:
    """Edges sorted by target, sources above targets, each once: uniform, or with targets of a power-law degree."""
    generator = torch.Generator().manual_seed(0)
    number = int(1.2 * edges)
    sources = torch.randint(nodes, (number,), generator=generator)
    if degrees == "uniform":
        targets = torch.randint(nodes, (number,), generator=generator)
    else:  # the k-th node in proportion to k^-0.8
        targets = (torch.rand(number, generator=generator, dtype=torch.float64) ** 5 * nodes).long()
    keys = torch.unique(targets * nodes + sources)
    keys = keys[torch.randperm(len(keys), generator=generator)[:edges]].sort().values
    return torch.stack([keys % nodes, keys // nodes])


def product(peer: str, options: argparse.Namespace, *, training: bool) -> Callable[[], Any]:
    edges = graph(options.nodes, options.edges, options.degrees)
    generator = torch.Generator().manual_seed(1)
    dtype = getattr(torch, options.dtype)
    weights = torch.randn(edges.shape[1], generator=generator).to(dtype).requires_grad_(training)
    x = torch.randn(options.nodes, options.k, generator=generator).to(dtype).requires_grad_(training)
    run = multiplication(peer, edges, weights, x, options)
    if not training:
        return run
    incoming = torch.randn(options.nodes, options.k, generator=generator).to(dtype)

    def step() -> None:
        weights.grad = x.grad = None
        run().backward(incoming)

    return step


def multiplication(
    peer: str, edges: Tensor, weights: Tensor, x: Tensor, options: argparse.Namespace
) -> Callable[[], Any]:
    (sources, targets), nodes = edges, options.nodes
    if peer == "gradproof":
        from gradproof.sparse import Pattern, matmul

        crow_indices = torch.zeros(nodes + 1, dtype=torch.int64)
        crow_indices[1:] = torch.bincount(targets, minlength=nodes).cumsum(0)
        pattern = Pattern(torch.sparse_csr, (nodes, nodes), (crow_indices, sources))
        return lambda: matmul((pattern, weights), x)
    if peer == "PyG scatter":
        from torch_geometric.utils import scatter

        return lambda: scatter(x.index_select(0, sources) * weights.unsqueeze(1), targets, 0, nodes, "sum")
    if peer == "PyG EdgeIndex":
        from torch_geometric import EdgeIndex

        index = EdgeIndex(edges.flip(0), sparse_size=(nodes, nodes), sort_order="row")
        index.fill_cache_()
        return lambda: index.matmul(x, weights)
    if peer == "DGL":
        import dgl.ops

        network = dgl.graph((sources, targets), num_nodes=nodes)
        return lambda: dgl.ops.u_mul_e_sum(network, x, weights.unsqueeze(1))
    if peer == "copy":
        source, out = torch.ones(PIECE), torch.ones(PIECE)
        pieces = max(1, round(edges.shape[1] * options.k * x.element_size() / (4 * PIECE)))
        return lambda: [out.copy_(source) for _ in range(pieces)]
    coo = torch.sparse_coo_tensor(edges.flip(0), weights, (nodes, nodes), is_coalesced=True, check_invariants=False)
    if peer == "SciPy":
        from scipy.sparse import csr_array

        matrix, dense = (
            csr_array((weights.numpy(), (targets.numpy(), sources.numpy())), shape=(nodes, nodes)),
            x.numpy(),
        )
        return lambda: matrix @ dense
    if peer == "torch COO":
        return lambda: torch.sparse.mm(torch.sparse_coo_tensor(coo.indices(), weights, coo.shape, is_coalesced=True), x)
    csr = coo.detach().to_sparse_csr().requires_grad_(weights.requires_grad)
    if peer == "torch CSR":
        return lambda: torch.sparse.mm(csr, x)  # `csr @ x` has a dense gradient
    from torchsparsegradutils import sparse_mm

    return lambda: sparse_mm(csr, x)


def softmax(peer: str, options: argparse.Namespace) -> Callable[[], Any]:
    edges = graph(options.nodes, options.edges, options.degrees)
    scores = torch.randn(edges.shape[1], HEADS).requires_grad_()
    incoming = torch.randn(edges.shape[1], HEADS)
    if peer == "gradproof":
        from gradproof.sparse import Pattern, row_softmax

        pattern = Pattern.from_edge_index(edges, nodes=options.nodes)

        def run() -> Tensor:
            return row_softmax((pattern, scores))

    elif peer == "DGL":
        import dgl.ops

        network = dgl.graph((edges[0], edges[1]), num_nodes=options.nodes)

        def run() -> Tensor:
            found: Tensor = dgl.ops.edge_softmax(network, scores)
            return found

    else:
        from torch_geometric.utils import softmax as theirs

        def run() -> Tensor:
            found: Tensor = theirs(scores, edges[1], num_nodes=options.nodes)
            return found

    def step() -> None:
        scores.grad = None
        run().backward(incoming)

    return step


def linear(peer: str, zeros: int, options: argparse.Namespace) -> Callable[[], Any]:
    """Forward and backward of a linear layer, sparse or dense."""
    if peer == "gradproof":
        from gradproof.sparse import SparseLinear

        layer: nn.Module = SparseLinear(WIDTH, WIDTH, density=1 - zeros / 100)
    else:
        layer = nn.Linear(WIDTH, WIDTH)
    x = torch.randn(options.k, WIDTH, requires_grad=True)
    incoming = torch.randn(options.k, WIDTH)

    def step() -> None:
        layer.zero_grad()
        x.grad = None
        layer(x).backward(incoming)

    return step


class Convolution(nn.Module):
    """A x W with a fixed A."""

    def __init__(self, aggregate: Callable[[Tensor], Tensor], width: int, out: int) -> None:
        super().__init__()
        self.linear, self.aggregate = nn.Linear(width, out), aggregate

    def forward(self, x: Tensor) -> Tensor:
        """Aggregate what is shorter."""
        return self.aggregate(self.linear(x))


def aggregation(peer: str, edges: Tensor, nodes: int) -> Callable[[Tensor], Any]:
    """The product with a fixed adjacency matrix."""
    weights = torch.full((edges.shape[1],), nodes / edges.shape[1])
    if peer == "gradproof":
        from gradproof.sparse import Pattern, matmul

        pattern = Pattern.from_edge_index(edges, nodes=nodes)
        return lambda x: matmul((pattern, weights), x)
    if peer == "PyG scatter":
        from torch_geometric.nn import SimpleConv

        layer = SimpleConv(aggr="sum")
        return lambda x: layer(x, edges, weights)
    if peer == "PyG EdgeIndex":
        from torch_geometric import EdgeIndex

        index = EdgeIndex(edges.flip(0), sparse_size=(nodes, nodes), sort_order="row")
        index.fill_cache_()
        return lambda x: index.matmul(x, weights)
    if peer == "DGL":
        import dgl.ops

        network = dgl.graph((edges[0], edges[1]), num_nodes=nodes)
        return lambda x: dgl.ops.u_mul_e_sum(network, x, weights.unsqueeze(1))
    csr = torch.sparse_coo_tensor(edges.flip(0), weights, (nodes, nodes), is_coalesced=True).to_sparse_csr()
    return lambda x: csr @ x


class Attention(nn.Module):
    """One attention layer, or two with a nonlinearity between them."""

    def __init__(self, peer: str, score: str, edges: Tensor, nodes: int, width: int, layers: int) -> None:
        super().__init__()
        sizes = [(width, FEATURES, HEADS), (HEADS * FEATURES, CLASSES, 1)][:layers]
        self.graph: Any = edges
        if peer == "gradproof":
            from gradproof.sparse import GraphAttention

            made = [GraphAttention(i, o, heads=h, score=score) for i, o, h in sizes]
        elif peer == "DGL":
            import dgl
            from dgl.nn.pytorch import DotGatConv, GATConv

            self.graph = dgl.graph((edges[0], edges[1]), num_nodes=nodes)
            kind = GATConv if score == "additive" else DotGatConv
            made = [FeaturesFirst(kind(i, o, h, allow_zero_in_degree=True)) for i, o, h in sizes]
        elif score == "additive":
            from torch_geometric.nn import GATConv

            made = [GATConv(i, o, heads=h, add_self_loops=False) for i, o, h in sizes]
        else:
            from torch_geometric.nn import TransformerConv

            made = [TransformerConv(i, o, heads=h, root_weight=False) for i, o, h in sizes]
        self.layers = nn.ModuleList(made)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layers."""
        for number, layer in enumerate(self.layers):
            x = layer(nn.functional.elu(x) if number else x, self.graph)
        return x


class FeaturesFirst(nn.Module):
    """A layer of DGL's that is called like those of the others."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, graph: Any) -> Tensor:
        """Put the heads side by side."""
        found: Tensor = self.layer(graph, x)
        return found.flatten(1)


def case(name: str, peer: str, options: argparse.Namespace) -> Callable[[], Any]:
    """What is measured."""
    if name in ("forward", "training"):
        return product(peer, options, training=name == "training")
    if name == "softmax":
        return softmax(peer, options)
    if name.startswith("linear"):
        return linear(peer, int(name.split()[1]), options)
    edges = graph(options.nodes, options.edges, options.degrees)
    x = torch.randn(options.nodes, 64)
    if name == "GCN epoch":
        product_of = aggregation(peer, edges, options.nodes)
        net: nn.Module = nn.Sequential(Convolution(product_of, 64, 64), nn.ReLU(), Convolution(product_of, 64, CLASSES))
    else:
        score = "dot" if name.endswith("dot") else "additive"
        net = Attention(peer, score, edges, options.nodes, 64, layers=2 if name == "GAT epoch" else 1)
    adam = torch.optim.Adam(net.parameters(), lr=0.01)

    def epoch() -> None:
        adam.zero_grad()
        net(x).square().mean().backward()
        adam.step()

    return epoch


def measure(name: str, peer: str, options: argparse.Namespace) -> dict[str, float]:
    """Seconds of the fastest and of the median of a few runs, and the peak of memory that they add."""
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT))  # a dense gradient of the matrix would take 40 GB
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    run = case(name, peer, options)
    run()
    (SELF / "clear_refs").write_text("5")  # the peak starts anew
    before, times = status("VmRSS"), []
    began = time.perf_counter()
    now = time.process_time if options.threads == 1 else time.perf_counter
    while len(times) < 3 or (time.perf_counter() - began < options.budget and len(times) < 50):
        start = now()
        run()
        times.append(now() - start)
    return {"seconds": min(times), "median": statistics.median(times), "bytes": status("VmHWM") - before}


def in_a_process(name: str, peer: str, options: argparse.Namespace) -> dict[str, float] | str:
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.sparse_training", "--one", name, peer]
    for option in ("nodes", "edges", "k", "degrees", "dtype", "threads", "budget"):
        command += [f"--{option}", str(getattr(options, option))]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["ended"])[-1][:80]
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def table(name: str, options: argparse.Namespace) -> None:
    sizes = f", k={options.k}, {options.dtype}" if name in ("forward", "training") else ""
    about = f"{WIDTH} × {WIDTH}, {options.k} rows" if name.startswith("linear") else f"{options.degrees} degrees{sizes}"
    print(f"\n{name}: {about}")
    ours = None
    for peer in CASES[name]:
        if peer in NEEDS and importlib.util.find_spec(NEEDS[peer]) is None:
            print(f"  {peer:<22} not installed")
            continue
        found = in_a_process(name, peer, options)
        if isinstance(found, str):
            print(f"  {peer:<22} {found}")
            continue
        ours = ours or found
        print(
            f"  {peer:<22}{1e3 * found['seconds']:>9.1f} ms{found['seconds'] / ours['seconds']:>7.2f}x"
            f"{1e3 * found['median']:>9.1f} ms{found['median'] / ours['median']:>7.2f}x"
            f"{found['bytes'] / 2**20:>8.0f} MB{found['bytes'] / max(1.0, ours['bytes']):>7.1f}x",
            flush=True,
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one", nargs=2, metavar=("CASE", "PEER"), help="measure one in this process")
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--edges", type=int, default=1_000_000)
    parser.add_argument("--widths", nargs="+", type=int, default=[8, 32, 128])
    parser.add_argument("--k", type=int, default=32, help="columns, or rows of a batch")
    parser.add_argument("--degrees", default="uniform", choices=["uniform", "power"])
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--budget", type=float, default=1.0, help="seconds of repetitions a measurement")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(*options.one, options)))
        return 0
    print(f"torch {torch.__version__}, {options.threads} threads, {options.nodes:,} nodes, {options.edges:,} edges")
    print("fastest, over gradproof's, median, over gradproof's, peak memory, over gradproof's", flush=True)
    for name in options.cases:
        for k in options.widths if name in ("forward", "training") else [options.k]:
            table(name, argparse.Namespace(**{**vars(options), "k": k}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
