"""Graph attention: each node takes a weighted mean of its neighbours, with weights computed from the features."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from gradproof.errors import InputError
from gradproof.sparse.autograd import lines
from gradproof.sparse.autograd.attention import attention, weighted_mean
from gradproof.sparse.nn.pattern_module import require_differentiable
from gradproof.sparse.pattern import Pattern
from gradproof.sparse.pattern.arguments import (
    require_choice,
    require_dtype_of,
    require_flag,
    require_number,
    require_size,
    require_strided,
)

SCORES = ("additive", "dot")


class GraphAttention(nn.Module):
    """Graph attention with several heads, additive as in GAT or by dot products as in a transformer.

    The graph is an argument of the call: a `Pattern` with row = target and column = source, or an edge index, sources
    above targets, whose pattern is cached as long as it lives. Parallel edges count each. No tensor has a line of
    features for each edge.

    >>> import torch
    >>> ring = torch.tensor([[0, 1, 2], [1, 2, 0]])
    >>> layer = GraphAttention(4, 2, heads=3)
    >>> layer(torch.randn(3, 4), ring).shape
    torch.Size([3, 6])

    Args:
        in_features: the number of features of a node.
        out_features: the number of features of a head.
        heads: the number of heads.
        score: "additive" (Veličković et al., 2018) or "dot" (scaled dot products of queries and keys).
        concatenate: whether the heads' results are concatenated, or averaged.
        edge_features: the number of features of an edge, which add a number to the score of each head; 0 for none.
        negative_slope: of the leaky ReLU in additive scores.
        bias: whether there is a bias.
        device: of the parameters.
        dtype: of the parameters.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        heads: int = 1,
        score: str = "additive",
        concatenate: bool = True,
        edge_features: int = 0,
        negative_slope: float = 0.2,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        require_choice(score, "score", SCORES)
        sizes = {
            "in_features": in_features,
            "out_features": out_features,
            "heads": heads,
            "edge_features": edge_features,
        }
        for name, size in sizes.items():
            require_size(size, name, least=int(name == "heads"))
        require_number(negative_slope, "negative_slope")
        require_flag(concatenate, "concatenate")
        require_flag(bias, "bias")
        require_differentiable(dtype)
        if dtype is not None and dtype.is_complex:
            raise InputError(f"dtype={dtype}: a softmax of complex scores is not defined. Pass a real dtype.")
        super().__init__()
        self.in_features, self.out_features, self.heads, self.score = in_features, out_features, heads, score
        self.concatenate, self.negative_slope = concatenate, negative_slope
        wide = heads * out_features

        def linear(features: int, width: int) -> nn.Linear:
            return nn.Linear(features, width, bias=False, device=device, dtype=dtype)

        def vector(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(*shape, device=device, dtype=dtype))

        self.value = linear(in_features, wide)
        self.key = linear(in_features, wide) if score == "dot" else None
        self.query = linear(in_features, wide) if score == "dot" else None
        self.source_score = vector(heads, out_features) if score == "additive" else None
        self.target_score = vector(heads, out_features) if score == "additive" else None
        self.edge_score = linear(edge_features, heads) if edge_features else None
        self.bias = vector(wide if concatenate else out_features) if bias else None
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw new weights, of the variance that Glorot and Bengio derive; biases are zero."""
        for layer in (self.value, self.key, self.query, self.edge_score):
            if layer is not None:
                nn.init.xavier_uniform_(layer.weight)
        for vector in (self.source_score, self.target_score):
            if vector is not None:
                nn.init.xavier_uniform_(vector)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(
        self, x: Tensor | tuple[Tensor, Tensor], graph: Pattern | Tensor, edge_features: Tensor | None = None
    ) -> Tensor:
        """Map the features of the nodes to new ones; `x` is a pair, of sources and targets, in a bipartite graph."""
        sources, targets = x if isinstance(x, tuple) and len(x) == 2 else (x, x)
        for nodes in (sources, targets):
            if require_strided(nodes, "x").ndim != 2 or nodes.shape[1] != self.in_features:
                raise InputError(f"x has shape {list(nodes.shape)}: pass [nodes, {self.in_features}].")
            if not nodes.is_floating_point() or nodes.device != self.value.weight.device:
                raise InputError(
                    f"x has dtype {nodes.dtype} on {nodes.device}: pass floating-point features on "
                    f"{self.value.weight.device}, where the layer is."
                )
            require_dtype_of(nodes, self.value.weight, "x")
        pattern = graph if isinstance(graph, Pattern) else Pattern.of_graph(graph, nodes=(len(targets), len(sources)))
        if pattern.shape != (len(targets), len(sources)):
            raise InputError(
                f"The graph is {pattern!r}, and there are {len(targets)} targets and {len(sources)} sources: its rows "
                "are targets, and its columns sources."
            )
        edges = self._edge_scores(pattern, edge_features)
        value = self._by_head(self.value(sources))
        if self.query is not None and self.key is not None:
            query, key = self._by_head(self.query(targets)), self._by_head(self.key(sources))
            result = attention(pattern, query, key, value, bias=edges)
        else:
            assert self.source_score is not None
            assert self.target_score is not None
            at_targets = value if targets is sources else self._by_head(self.value(targets))
            scores = lines.spread((value * self.source_score).sum(-1), pattern, -1)
            scores = scores + lines.spread((at_targets * self.target_score).sum(-1), pattern, -2)
            scores = functional.leaky_relu(scores if edges is None else scores + edges, self.negative_slope)
            result = weighted_mean(pattern, scores, value)
        result = result.flatten(1) if self.concatenate else result.mean(1)
        return result if self.bias is None else result + self.bias

    def _by_head(self, features: Tensor) -> Tensor:
        return features.reshape(len(features), self.heads, self.out_features)

    def _edge_scores(self, pattern: Pattern, edge_features: Tensor | None) -> Tensor | None:
        if (self.edge_score is None) != (edge_features is None):
            expected = "none" if self.edge_score is None else f"{self.edge_score.in_features} for each edge"
            raise InputError(
                f"The layer was built for edge features: {expected}. Pass edge_features= to both or neither."
            )
        if self.edge_score is None or edge_features is None:
            return None
        expected_shape = (pattern.entries, self.edge_score.in_features)
        if require_strided(edge_features, "edge_features").shape != expected_shape:
            raise InputError(
                f"edge_features has shape {list(edge_features.shape)}: pass {list(expected_shape)}, in the order of "
                "the edges."
            )
        if not edge_features.is_floating_point():
            raise InputError(f"edge_features has dtype {edge_features.dtype}: pass floating-point numbers.")
        require_dtype_of(edge_features, self.edge_score.weight, "edge_features")
        scores: Tensor = self.edge_score(edge_features)
        return scores

    def extra_repr(self) -> str:
        """Describe the layer."""
        return f"{self.in_features} -> {self.out_features}, heads={self.heads}, score={self.score}"
