"""A graph convolution that learns the weight of every edge."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gradproof.errors import InputError
from gradproof.sparse.holding import Holding
from gradproof.sparse.layouts import require_differentiable
from gradproof.sparse.pattern import Pattern
from gradproof.sparse.products import matmul
from gradproof.sparse.reductions import row_softmax

WEIGHINGS = ("free", "softmax")


class GraphConvolution(Holding):
    """y = A x W + b, where A carries messages along the edges of a graph, and its values are learnt.

    `edge_index` has sources above targets. With `weighing="softmax"` the weights of the edges that arrive at a node are
    positive and sum to one; with "free" they are what they are, and start as one over the number of edges that arrive.

    >>> import torch
    >>> ring = torch.tensor([[0, 1, 2], [1, 2, 0]])
    >>> layer = GraphConvolution(4, 2, edge_index=ring, nodes=3)
    >>> layer
    GraphConvolution(
      4 -> 2, nodes=3, edges=3, weighing=free
      (linear): Linear(in_features=4, out_features=2, bias=True)
    )
    >>> layer(torch.randn(3, 4)).shape
    torch.Size([3, 2])
    """

    edge_index: Tensor

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        edge_index: Tensor,
        nodes: int,
        bias: bool = True,
        weighing: str = "free",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if weighing not in WEIGHINGS:
            raise InputError(f"weighing={weighing!r} is not known. Choose one of {', '.join(WEIGHINGS)}.")
        require_differentiable(dtype)
        super().__init__()
        self.in_features, self.out_features, self.nodes, self.weighing = in_features, out_features, nodes, weighing
        pattern = Pattern.from_edge_index(edge_index, nodes=nodes)
        self.register_buffer("edge_index", edge_index.clone().to(device) if device else edge_index.clone())
        self.edge_weight = nn.Parameter(torch.empty(pattern.entries, device=device, dtype=dtype))
        self.linear = nn.Linear(in_features, out_features, bias=bias, device=device, dtype=dtype)
        self._look_ahead()
        self.reset_parameters()

    def _indices(self) -> tuple[Tensor, ...]:
        return (self.edge_index,)

    def _made(self) -> Pattern:
        """The matrix of messages: row = target, column = source, entries in the order of the edges."""
        return Pattern.from_edge_index(self.edge_index, nodes=self.nodes)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Every node starts with the mean of its messages."""
        if self.weighing == "softmax":
            self.edge_weight.zero_()
        else:
            arrivals = self.pattern.by_rows.starts.diff().clamp(min=1).to(self.edge_weight.dtype)
            self.edge_weight.copy_(1 / arrivals.index_select(0, self.pattern.row_of_entry))
        self.linear.reset_parameters()

    def forward(self, x: Tensor) -> Tensor:
        """One row of features a node in, one out; batches of graphs' features in leading dimensions."""
        if x.ndim < 2 or x.shape[-2:] != (self.nodes, self.in_features):
            raise InputError(
                f"The features have shape {list(x.shape)}: the last two dimensions have to be {self.nodes} nodes × "
                f"{self.in_features} features."
            )
        weights: Tensor = self.edge_weight
        if self.weighing == "softmax":
            weights = row_softmax((self.pattern, weights))
        if self.out_features < self.in_features:  # the shorter messages travel
            messages = matmul((self.pattern, weights), nn.functional.linear(x, self.linear.weight))
            return messages if self.linear.bias is None else messages + self.linear.bias
        result: Tensor = self.linear(matmul((self.pattern, weights), x))
        return result

    def extra_repr(self) -> str:
        """The layer in a few words."""
        edges = self.edge_weight.numel()
        return f"{self.in_features} -> {self.out_features}, nodes={self.nodes}, edges={edges}, weighing={self.weighing}"
