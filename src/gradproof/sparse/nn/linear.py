"""A linear layer with a sparse weight, whose values are a strided parameter."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.sparse import SparseSemiStructuredTensor

from gradproof.errors import InputError
from gradproof.sparse.autograd import sparse_products
from gradproof.sparse.autograd.products import matmul, parts
from gradproof.sparse.nn.initialization import fan_in, scaled_by_fan_in_
from gradproof.sparse.nn.pattern_module import PatternModule, require_differentiable
from gradproof.sparse.pattern import Pattern
from gradproof.sparse.pattern.arguments import require_flag, require_number, require_size
from gradproof.sparse.pattern.layouts import is_sparse, require_tensor
from gradproof.sparse.pattern.pattern import require_pattern


class SparseLinear(PatternModule):
    """y = x Wᵀ + b with a sparse W, of which only the stored entries are held, trained and saved.

    The values are an ordinary strided parameter: any optimizer, data parallelism, mixed precision, averaging and
    `torch.compile` treat them as any other.

    >>> import torch
    >>> layer = SparseLinear(100, 20, density=0.1)
    >>> layer
    SparseLinear(in_features=100, out_features=20, bias=True, entries=200, density=0.1)
    >>> layer(torch.randn(5, 100)).shape
    torch.Size([5, 20])

    Args:
        in_features: the length of an input.
        out_features: the length of an output.
        pattern: where W has entries, out_features × in_features, in any layout.
        density: the fraction of W's positions to draw at random, where no pattern is given.
        bias: whether there is a b.
        generator: what a random pattern is drawn from.
        device: of the parameters.
        dtype: of the parameters.
    """

    crow_indices: Tensor
    col_indices: Tensor

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        pattern: Pattern | None = None,
        density: float | None = None,
        bias: bool = True,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if (pattern is None) == (density is None):
            raise InputError("Give SparseLinear a pattern, or a density to draw one at: one of the two.")
        require_size(in_features, "in_features")
        require_size(out_features, "out_features")
        require_flag(bias, "bias")
        require_differentiable(dtype)
        shape = (out_features, in_features)
        if pattern is None:
            assert density is not None
            pattern = Pattern.random(shape, density, generator=generator)
        if require_pattern(pattern).shape != shape:
            raise InputError(
                f"{pattern!r} does not fit a layer from {in_features} to {out_features} features: W has shape "
                f"{list(shape)}, out_features × in_features."
            )
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        options: dict[str, Any] = {"device": device, "dtype": dtype}
        self.weight_values = nn.Parameter(torch.empty(pattern.entries, **options))
        csr, _ = pattern.as_csr()
        self.register_buffer("crow_indices", csr.indices[0].to(self.weight_values.device))
        self.register_buffer("col_indices", csr.indices[1].to(self.weight_values.device))
        self.bias = nn.Parameter(torch.empty(out_features, **options)) if bias else None
        self.reset_parameters()

    @property
    def pattern(self) -> Pattern:
        """The pattern of the weight, a CSR matrix."""
        shape = (self.out_features, self.in_features)
        return Pattern.at(torch.sparse_csr, shape, (self.crow_indices, self.col_indices))

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw new values; those of a full pattern are drawn as `nn.Linear` draws them."""
        scaled_by_fan_in_(self.pattern, self.weight_values)
        if self.bias is not None and not self.bias.is_meta:
            plain = torch.view_as_real(self.bias) if self.bias.is_complex() else self.bias
            plain.uniform_(-1, 1)
            bound = 1 / fan_in(self.pattern).clamp(min=1).to(plain.dtype).sqrt()
            self.bias.mul_(bound)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer along the last dimension; the result is strided, for a sparse matrix too."""
        if require_tensor(x, "The input").shape[-1:] != (self.in_features,):
            raise InputError(f"The input has shape {list(x.shape)}: its last dimension has to be {self.in_features}.")
        if is_sparse(x):
            found, products = sparse_products.multiply(parts(x), (self.pattern.transposed, self.weight_values))
            result = products.new_zeros(found.shape).index_put(tuple(found.coordinates), products)
            return result if self.bias is None else result + self.bias
        rows = x.reshape(math.prod(x.shape[:-1]), self.in_features)
        result = matmul((self.pattern, self.weight_values), rows.mT).mT
        if self.bias is not None:
            result = result + self.bias
        return result.reshape(*x.shape[:-1], self.out_features)

    def extra_repr(self) -> str:
        """Describe the layer."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, "
            f"entries={self.weight_values.numel()}, density={self.pattern.density:.3g}"
        )

    @classmethod
    def from_linear(
        cls, linear: nn.Linear, *, density: float | None = None, pattern: Pattern | None = None
    ) -> SparseLinear:
        """Build a layer with the weights of an `nn.Linear` at a pattern, or with the largest ones, up to a density.

        Without either it is what `torch.nn.utils.prune` has kept, or a semi-structured (2:4) weight stores.

        >>> import torch
        >>> layer = SparseLinear.from_linear(torch.nn.Linear(8, 4), density=0.25)
        >>> layer.weight_values.numel()
        8
        """
        if not isinstance(linear, nn.Linear):
            raise InputError(f"A {type(linear).__name__} is not an nn.Linear, whose weights are one matrix. Pass one.")
        weight = linear.weight.detach()
        kept = getattr(linear, "weight_mask", None)  # the buffer of torch.nn.utils.prune
        if isinstance(weight, SparseSemiStructuredTensor):
            weight = weight.to_dense()  # type: ignore[no-untyped-call]  # torch's own
            kept = weight if kept is None else kept
        if (pattern is not None and density is not None) or (pattern is None and density is None and kept is None):
            raise InputError("Give from_linear a pattern, or a density to prune to: one of the two.")
        if density is not None:
            pattern = largest(weight, density)
        elif pattern is None:
            assert kept is not None
            pattern = Pattern.from_mask(kept != 0)
        layer = cls(
            linear.in_features,
            linear.out_features,
            pattern=pattern,
            bias=linear.bias is not None,
            device=weight.device,
            dtype=weight.dtype,
        )
        with torch.no_grad():
            layer.weight_values.copy_(weight[tuple(layer.pattern.coordinates)])
            if layer.bias is not None:
                layer.bias.copy_(linear.bias)
        return layer

    @torch.no_grad()
    def to_linear(self) -> nn.Linear:
        """Build an `nn.Linear` that computes the same, with zeros where nothing is stored."""
        options: dict[str, Any] = {"device": self.weight_values.device, "dtype": self.weight_values.dtype}
        linear = nn.Linear(self.in_features, self.out_features, bias=self.bias is not None, **options)
        linear.weight.zero_()
        linear.weight[tuple(self.pattern.coordinates)] = self.weight_values
        if self.bias is not None:
            linear.bias.copy_(self.bias)
        return linear


def largest(weight: Tensor, density: float) -> Pattern:
    """Return the positions of the entries of largest magnitude, up to a fraction of all."""
    require_number(density, "density")
    density = float(density)
    if not 0 <= density <= 1:
        raise InputError(f"The density is {density}: it is the fraction of entries to keep, from 0 to 1.")
    mask = torch.zeros(weight.numel(), dtype=torch.bool, device=weight.device)
    mask[weight.abs().reshape(-1).topk(round(density * weight.numel())).indices] = True
    return Pattern.from_mask(mask.reshape(weight.shape))
