"""Training that changes the pattern of a sparse layer: pruning by magnitude, and dropping and growing weights.

Weights that stay keep their values and their optimizer state; new ones start at zero, with fresh state. The layer's
parameter stays the same object, so that optimizers keep their references to it; compiled layers do, as long as the
number of weights stays the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import LBFGS, Optimizer

from gradproof.errors import InputError
from gradproof.sparse.nn.linear import SparseLinear
from gradproof.sparse.pattern import Pattern
from gradproof.sparse.pattern.arguments import require_strided
from gradproof.sparse.pattern.compressed_rows import compress
from gradproof.sparse.pattern.grid import ravel
from gradproof.sparse.pattern.membership import look_up
from gradproof.sparse.pattern.pattern import require_pattern

DENSE = 0.5  # the share of the free positions from which new ones are drawn from a list of all


@torch.no_grad()
def change_pattern_(layer: SparseLinear, pattern: Pattern, *, optimizers: Optimizer | Iterable[Optimizer] = ()) -> None:
    """Give a layer another pattern, in place; what optimizers have learnt for the weights that stay is kept.

    A backward through values from before raises, as it does after a step. LBFGS learns for all parameters together, so
    that its state cannot be carried over.

    >>> import torch
    >>> layer = SparseLinear(3, 3, pattern=Pattern.from_mask(torch.eye(3) > 0))
    >>> change_pattern_(layer, Pattern.from_mask(torch.ones(3, 3).triu() > 0))
    >>> layer
    SparseLinear(in_features=3, out_features=3, bias=True, entries=6, density=0.667)

    Args:
        layer: the layer, whose `weight_values` is a parameter of its own.
        pattern: out_features × in_features, of any layout.
        optimizers: those that train the layer.
    """
    old, parameter = _require_layer(layer).pattern, _parameter_of(layer)
    if require_pattern(pattern).shape != old.shape:
        raise InputError(f"{pattern!r} does not fit the layer, whose weight has shape {list(old.shape)}.")
    learning: list[Any] = (
        [*optimizers] if isinstance(optimizers, Iterable) and not isinstance(optimizers, Tensor) else [optimizers]
    )
    if not all(isinstance(one, Optimizer) for one in learning):
        raise InputError("optimizers= holds something else. Pass the optimizers that train the layer.")
    if any(isinstance(one, LBFGS) and one.state for one in learning):
        raise InputError("What LBFGS has learnt cannot be carried over to another pattern. Build a new one after it.")
    csr, _ = pattern.to(old.device).as_csr()
    slot, found = look_up(_keys(csr), _keys(old))
    before = parameter.shape

    def carried(tensor: Tensor) -> Tensor:
        moved = tensor.new_zeros(csr.entries)
        moved[found] = tensor[slot[found]]
        return moved

    for one in learning:
        for name, learnt in one.state.get(parameter, {}).items():
            if isinstance(learnt, Tensor) and learnt.shape == before and learnt.ndim:
                one.state[parameter][name] = carried(learnt)
    gradient, parameter.grad = parameter.grad, None
    parameter.data = carried(parameter.data)
    torch.autograd.graph.increment_version(parameter)
    parameter.grad = None if gradient is None else carried(gradient)
    layer.crow_indices.copy_(csr.indices[0])
    if csr.entries == old.entries:
        layer.col_indices.copy_(csr.indices[1])
    else:
        layer.col_indices = csr.indices[1].to(layer.col_indices)


@torch.no_grad()
def drop_and_grow_(
    layer: SparseLinear,
    fraction: float,
    *,
    scores: Tensor | None = None,
    optimizers: Optimizer | Iterable[Optimizer] = (),
    generator: torch.Generator | None = None,
) -> None:
    """Drop the smallest weights of a layer, and grow as many at positions that were not stored.

    Without scores the new positions are random, as in SET (Mocanu et al., 2018). With the gradient of the full weight
    as scores they are where it is largest, as in RigL (Evci et al., 2020); `full_gradient` computes it.

    >>> import torch
    >>> layer = SparseLinear(100, 20, density=0.1)
    >>> drop_and_grow_(layer, 0.3)
    >>> int((layer.weight_values == 0).sum())
    60

    Args:
        layer: the layer.
        fraction: of the weights to drop, from 0 to 1.
        scores: one number for each position, out_features × in_features; the largest magnitudes grow.
        optimizers: those that train the layer, whose state is carried over.
        generator: what random positions are drawn from.
    """
    old, parameter = _require_layer(layer).pattern, _parameter_of(layer)
    count = round(_require_fraction(fraction) * old.entries)
    cells = old.shape[0] * old.shape[1]
    if count > cells - old.entries:
        raise InputError(f"{count} weights cannot grow: only {cells - old.entries} positions are not stored.")
    keys = _keys(old)
    if scores is None:
        grown = _random_free(keys, cells, count, generator)
    else:
        if require_strided(scores, "scores").shape != old.shape or scores.device != keys.device:
            raise InputError(
                f"scores has shape {list(scores.shape)} on {scores.device}: pass {list(old.shape)} on {keys.device}."
            )
        if scores.dtype is torch.bool:
            raise InputError("scores is boolean: pass numbers, of which the largest magnitudes grow.")
        free = scores.abs().reshape(-1).clone()
        free[keys] = -1
        grown = free.topk(count).indices
    kept = parameter.abs().topk(old.entries - count).indices
    change_pattern_(layer, _at(torch.cat([keys[kept], grown]), old), optimizers=optimizers)


@torch.no_grad()
def prune_(layer: SparseLinear, density: float, *, optimizers: Optimizer | Iterable[Optimizer] = ()) -> None:
    """Keep the largest weights of a layer, up to a fraction of all positions.

    >>> layer = SparseLinear(100, 20, density=0.1)
    >>> prune_(layer, 0.05)
    >>> layer.weight_values.numel()
    100
    """
    old, parameter = _require_layer(layer).pattern, _parameter_of(layer)
    count = round(_require_fraction(density) * old.shape[0] * old.shape[1])
    if count > old.entries:
        raise InputError(f"density={density} is more than the {old.density:.3g} that the layer has: pruning removes.")
    kept = parameter.abs().topk(count).indices
    change_pattern_(layer, _at(_keys(old)[kept], old), optimizers=optimizers)


def full_gradient(layer: SparseLinear, backward: Callable[[], object]) -> Tensor:
    """Return the gradient of a layer's weight at all positions, stored or not, which one call of `backward` brings.

    `backward` runs the model and a backward, whose gradients are accumulated as usual. The result has
    out_features × in_features entries.

    >>> import torch
    >>> layer = SparseLinear(3, 2, density=0.5, bias=False)
    >>> full_gradient(layer, lambda: layer(torch.ones(4, 3)).sum().backward())
    tensor([[4., 4., 4.],
            [4., 4., 4.]])
    """
    if not callable(backward):
        raise InputError(
            f"backward is a {type(backward).__name__}: pass a function that runs the model and a backward."
        )
    total = torch.zeros(
        _require_layer(layer).pattern.shape, dtype=layer.weight_values.dtype, device=layer.pattern.device
    )

    def watch(_layer: object, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        rows = inputs[0].detach().reshape(-1, total.shape[1]).to(total.dtype)

        def add(gradient: Tensor) -> None:
            with torch.no_grad():
                total.addmm_(gradient.detach().reshape(-1, total.shape[0]).to(total.dtype).mT, rows.conj())

        output.register_hook(add)  # type: ignore[no-untyped-call]  # torch's own

    handle = layer.register_forward_hook(watch)
    try:
        backward()
    finally:
        handle.remove()
    return total


def _require_layer(layer: object) -> SparseLinear:
    if not isinstance(layer, SparseLinear):
        raise InputError(f"A {type(layer).__name__} is not a SparseLinear. Pass one.")
    return layer


def _parameter_of(layer: SparseLinear) -> Parameter:
    parameter = layer._parameters.get("weight_values")
    if parameter is None:
        raise InputError("The layer's weight_values is parametrized: its number cannot change. Remove that first.")
    return parameter


def _require_fraction(fraction: float) -> float:
    if not isinstance(fraction, (int, float)) or not 0 <= fraction <= 1:
        raise InputError(f"A fraction of {fraction!r} does not exist: pass a number from 0 to 1.")
    return fraction


def _keys(pattern: Pattern) -> Tensor:
    """Return the row-major linear index of every entry of a CSR pattern, increasing."""
    return ravel(pattern.coordinates, pattern.shape)


def _at(keys: Tensor, like: Pattern) -> Pattern:
    """Return the CSR pattern of some linear indices."""
    rows, columns = torch.unravel_index(keys.sort().values, like.shape)
    return Pattern(torch.sparse_csr, like.shape, (compress(rows, like.shape[0]), columns))


def _random_free(keys: Tensor, cells: int, count: int, generator: torch.Generator | None) -> Tensor:
    """Draw positions that are not stored, each once."""
    device = "cpu" if generator is None else generator.device
    stored = keys.to(device)
    if count > DENSE * (cells - len(keys)):
        free = torch.arange(cells, device=device)
        free = free[~torch.isin(free, stored, assume_unique=True)]
        return free[torch.randperm(len(free), generator=generator, device=device)[:count]].to(keys.device)
    drawn = stored[:0]
    while len(drawn) < count:
        more = torch.randint(cells, (2 * (count - len(drawn)) + 16,), generator=generator, device=device)
        drawn = torch.unique(torch.cat([drawn, more[~look_up(more, stored)[1]]]))
    return drawn[torch.randperm(len(drawn), generator=generator, device=device)[:count]].to(keys.device)
