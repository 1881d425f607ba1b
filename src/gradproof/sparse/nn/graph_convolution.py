"""A graph convolution that learns the weight of every edge."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gradproof.errors import InputError
from gradproof.sparse.autograd import lines
from gradproof.sparse.autograd.products import matmul
from gradproof.sparse.autograd.reductions import row_softmax
from gradproof.sparse.nn.initialization import fan_in
from gradproof.sparse.nn.pattern_module import PatternModule, require_differentiable
from gradproof.sparse.pattern import Pattern
from gradproof.sparse.pattern.arguments import (
    require_choice,
    require_dtype_of,
    require_flag,
    require_size,
    require_strided,
)

NORMALIZATIONS = ("free", "softmax")


class GraphConvolution(PatternModule):
    """y = A x W + b, where A is the weighted adjacency matrix of a graph, and its values are learnt.

    `edge_index` has sources above targets; parallel edges have a weight each. `nodes` is their number, or a pair: of
    targets and of sources. With `normalization="softmax"` the weights of the edges into a node are
    positive and sum to one. With "free" they are unconstrained, and initialized to one over the number of edges into
    the node.

    >>> import torch
    >>> ring = torch.tensor([[0, 1, 2], [1, 2, 0]])
    >>> layer = GraphConvolution(4, 2, edge_index=ring, nodes=3)
    >>> layer
    GraphConvolution(
      4 -> 2, nodes=3, edges=3, normalization=free
      (linear): Linear(in_features=4, out_features=2, bias=True)
    )
    >>> layer(torch.randn(3, 4)).shape
    torch.Size([3, 2])
    """

    indices: Tensor

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        edge_index: Tensor,
        nodes: int | tuple[int, int],
        bias: bool = True,
        normalization: str = "free",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        require_choice(normalization, "normalization", NORMALIZATIONS)
        require_size(in_features, "in_features")
        require_size(out_features, "out_features")
        require_flag(bias, "bias")
        require_differentiable(dtype)
        super().__init__()
        self.in_features, self.out_features, self.normalization = in_features, out_features, normalization
        pattern = Pattern.from_edge_index(edge_index, nodes=nodes, parallel=True)
        self.shape = pattern.shape
        self.edge_weight = nn.Parameter(torch.empty(pattern.entries, device=device, dtype=dtype))
        self.register_buffer("indices", pattern.indices[0].to(self.edge_weight.device))
        self.linear = nn.Linear(in_features, out_features, bias=bias, device=device, dtype=dtype)
        self.reset_parameters()

    @property
    def pattern(self) -> Pattern:
        """The adjacency matrix: row = target, column = source, entries in the order of the edges."""
        return Pattern.at(torch.sparse_coo, self.shape, (self.indices,), parallel=True)

    @property
    def edge_index(self) -> Tensor:
        """The edges, sources above targets."""
        return self.indices.flip(0)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Initialize: every node takes the mean of its messages."""
        if self.normalization == "softmax":
            self.edge_weight.zero_()
        elif not self.edge_weight.is_meta:
            edges = fan_in(self.pattern).clamp(min=1).to(self.edge_weight.dtype)
            self.edge_weight.copy_(1 / lines.spread(edges, self.pattern, -2))
        self.linear.reset_parameters()

    def forward(self, x: Tensor) -> Tensor:
        """Map one row of features for each node to another; leading dimensions are batches."""
        if require_strided(x, "x").ndim < 2 or x.shape[-2:] != (self.shape[1], self.in_features):
            raise InputError(
                f"The features have shape {list(x.shape)}: the last two dimensions have to be {self.shape[1]} nodes × "
                f"{self.in_features} features."
            )
        require_dtype_of(x, self.linear.weight, "x")
        weights: Tensor = self.edge_weight
        if self.normalization == "softmax":
            weights = row_softmax((self.pattern, weights))
        if self.out_features < self.in_features:  # multiply by W first: the messages are shorter
            messages = matmul((self.pattern, weights), nn.functional.linear(x, self.linear.weight))
            return messages if self.linear.bias is None else messages + self.linear.bias
        result: Tensor = self.linear(matmul((self.pattern, weights), x))
        return result

    def extra_repr(self) -> str:
        """Describe the layer."""
        edges = self.edge_weight.numel()
        targets, sources = self.shape
        nodes = targets if targets == sources else (targets, sources)
        shape = f"{self.in_features} -> {self.out_features}, nodes={nodes}, edges={edges}"
        return f"{shape}, normalization={self.normalization}"
