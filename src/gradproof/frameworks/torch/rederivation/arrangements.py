"""Mistakes of arrangement at one step: conjugated, reversed, shifted, transposed, summed, left out, not transposed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations

import torch
from torch import Tensor

from gradproof.engine.thresholds import FEW
from gradproof.frameworks.torch.rederivation.mistakes import Change, Mistake
from gradproof.frameworks.torch.rederivation.tape import Site

REARRANGING = {  # operations that move entries, and what a backward is called that does not move them back
    "t": "transposed",
    "transpose": "transposed",
    "permute": "transposed",
    "flip": "flipped",
    "roll": "shifted",
    "cumsum": "flipped",
    "index": "misplaced",
    "gather": "misplaced",
    "index_select": "misplaced",
    "sort": "misplaced",
    "cummax": "misplaced",
    "cummin": "misplaced",
}
IN_ORDER = ("sort", "cummax", "cummin", "index", "gather", "index_select")


def of_conjugates(site: Site) -> Iterator[Mistake]:
    """Yield gradients that are conjugated or turned, and those with an argument that is."""
    if site.right.is_complex():
        yield Mistake("conjugate", "conjugate", "it is conjugated", lambda s: s.right.conj().resolve_conj())
        for text, part in (("real", _real), ("imaginary", _imaginary)):
            yield Mistake("missing-term", "missing-term", f"it has its {text} part alone", part, ("block",))
        for text, unit in (("i", 1j), ("−i", -1j)):
            turned = partial(_turned, unit)
            yield Mistake("factor", "wrong-term", f"it has a factor {text} too many", turned, ("conjugate",))
    for place, number in site.operation.tensors:
        if site.tape.recording.values[number].is_complex():
            yield Mistake("conjugate", "conjugate", "an argument is conjugated", partial(_with_conjugate, place))


def of_places(site: Site) -> Iterator[Mistake]:
    """Yield gradients that are reversed, shifted or transposed."""
    shape = site.right.shape
    for dim, length in enumerate(shape):
        if length < 2:
            continue
        yield _moved("flipped", f"is reversed along dimension {dim}", partial(_reversed, (dim,)))
        for by in (1, -1) if length >= FEW else ():
            yield _moved("shifted", f"is shifted by {by} along dimension {dim}", partial(_rolled, by, dim))
            yield _moved("shifted", f"is shifted by {by} along dimension {dim}", partial(_shifted, by, dim))
    for one, other in combinations(range(len(shape)), 2):
        if min(shape[one], shape[other]) > 1:
            also = () if shape[one] == shape[other] else ("misplaced",)
            exchanged = partial(_exchanged, one, other)
            yield _moved("transposed", f"has its dimensions {one} and {other} exchanged", exchanged, *also)
    yield from _of_the_operation(site)


def of_what_it_receives(site: Site) -> Iterator[Mistake]:
    """Yield gradients for an incoming one that is transposed, reversed or shifted."""
    incoming = site.incoming[0]
    if incoming is None or site.is_pointwise or len(site.incoming) > 1:
        return
    for one, other in combinations(range(incoming.dim()), 2):
        if incoming.shape[one] == incoming.shape[other] > 1:
            turned = partial(_pulled, partial(torch.transpose, dim0=one, dim1=other))
            text = f"what it receives has its dimensions {one} and {other} exchanged"
            yield Mistake("transposed", "transposed", text, turned, ("wrong-term",))
    for dim, length in enumerate(incoming.shape):
        if length > 1:
            reverse = partial(_pulled, partial(torch.flip, dims=(dim,)))
            text = f"what it receives is reversed along dimension {dim}"
            yield Mistake("flipped", "flipped", text, reverse, ("wrong-term",))
        for by in (1, -1) if length >= FEW else ():
            moved = partial(_pulled, partial(torch.roll, shifts=by, dims=dim))
            text = f"what it receives is shifted by {by} along dimension {dim}"
            yield Mistake("shifted", "shifted", text, moved, ("wrong-term",))


def of_slices(site: Site) -> Iterator[Mistake]:
    """Yield sums over copies that have one of them alone, or that are over another dimension."""
    incoming, argument, name = site.incoming[0], site.argument, site.operation.name
    if incoming is None or name not in ("expand", "sum", "mean"):
        return
    if name == "expand":
        shape = (*[1] * (incoming.dim() - argument.dim()), *argument.shape)
        grown = [dim for dim, length in enumerate(shape) if incoming.shape[dim] != length]
        for dims in [*([dim] for dim in grown if len(grown) > 1), grown]:
            for index, which in ((0, "first"), (-1, "last")):
                also = () if which == "first" else ("overwritten",)
                yield _moved("missing-sum", f"has the {which} copy alone", partial(_slice, dims, index), *also)
        for dim in grown:
            for other in range(incoming.dim()):
                if other != dim and incoming.shape[other] == incoming.shape[dim]:
                    summed = partial(_summed_along, dim, other)
                    yield _moved("wrong-dimension", f"is summed over dimension {other}, and not {dim}", summed)
        return
    for one, other in combinations(range(argument.dim()), 2):
        if argument.shape[one] == argument.shape[other] > 1:
            spread = partial(_exchanged, one, other)
            yield _moved(
                "wrong-dimension", f"is spread along dimension {one} for {other}, or {other} for {one}", spread
            )


def of_sums(site: Site) -> Iterator[Mistake]:
    """Yield gradients that are summed or averaged over a dimension that they should keep."""
    for dim, length in enumerate(site.right.shape):
        if length > 1:
            yield _moved("doubled-sum", f"is summed over dimension {dim}", partial(_summed, dim))
            yield _moved("doubled-sum", f"is averaged over dimension {dim}", partial(_averaged, dim))


def _of_the_operation(site: Site) -> Iterator[Mistake]:
    """Yield a linear operation that is left out, or applied itself in the place of its transpose."""
    incoming, name = site.incoming[0], site.operation.name
    alike = incoming is not None and incoming.numel() == site.argument.numel()
    if not alike or site.is_pointwise or site.result.dtype != site.argument.dtype:
        return
    known = REARRANGING.get(name)
    if known and name != "cumsum":
        also = ("pass-through",) if name in IN_ORDER else ()
        yield Mistake(known, known, "it is not undone", lambda s: _like(s, s.incoming[0]), also)
    if name not in ("sort", "cummax", "cummin"):
        forwards = "it is applied itself, where its transpose should be"
        yield Mistake(known or "transposed", known or "transposed", forwards, _forwards, ("transposed", "wrong-term"))


def _moved(name: str, text: str, change: Change, *also: str) -> Mistake:
    return Mistake(name, name, f"its gradient {text}", change, (*also, "wrong-term"))


def _like(site: Site, gradient: Tensor | None) -> Tensor | None:
    return None if gradient is None else gradient.reshape(site.right.shape)


def _forwards(site: Site) -> Tensor | None:
    return _like(site, site.applied(site.incoming[0])) if site.incoming[0] is not None else None


def _real(site: Site) -> Tensor:
    return site.right.real.to(site.right.dtype)


def _imaginary(site: Site) -> Tensor:
    return 1j * site.right.imag


def _pulled(change: Callable[[Tensor], Tensor], site: Site) -> Tensor | None:
    return site.local.pulled([change(site.gradient)]).get(site.place)


def _turned(unit: complex, site: Site) -> Tensor:
    return site.right * unit


def _with_conjugate(place: int, site: Site) -> Tensor | None:
    return site.computed_with(place, site.given(place).conj().resolve_conj())


def _reversed(dims: Sequence[int], site: Site) -> Tensor:
    return site.right.flip(tuple(dims))


def _rolled(by: int, dim: int, site: Site) -> Tensor:
    return site.right.roll(by, dim)


def _shifted(by: int, dim: int, site: Site) -> Tensor:
    moved, length = torch.zeros_like(site.right), site.right.shape[dim] - 1
    target, source = (1, 0) if by > 0 else (0, 1)
    moved.narrow(dim, target, length).copy_(site.right.narrow(dim, source, length))
    return moved


def _exchanged(one: int, other: int, site: Site) -> Tensor:
    return site.right.transpose(one, other).reshape(site.right.shape)


def _summed(dim: int, site: Site) -> Tensor:
    return site.right.sum(dim, keepdim=True).expand(site.right.shape)


def _averaged(dim: int, site: Site) -> Tensor:
    return site.right.mean(dim, keepdim=True).expand(site.right.shape)


def _slice(dims: Sequence[int], index: int, site: Site) -> Tensor:
    gradient = site.gradient
    for dim in dims:
        gradient = gradient.narrow(dim, index % gradient.shape[dim], 1)
    lead = gradient.dim() - site.argument.dim()
    return gradient.sum_to_size((*[1] * lead, *site.right.shape)).reshape(site.right.shape)


def _summed_along(dim: int, other: int, site: Site) -> Tensor:
    lead = site.gradient.dim() - site.argument.dim()
    turned = site.gradient.transpose(dim, other)
    return turned.sum_to_size((*[1] * lead, *site.right.shape)).reshape(site.right.shape)
