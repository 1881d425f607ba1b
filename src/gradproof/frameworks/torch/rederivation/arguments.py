"""Derivatives of one step that are computed from another tensor than the forward's, and selections that go astray."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from gradproof.engine.thresholds import FEW, SAMPLE, SHARE
from gradproof.frameworks.torch.rederivation.mistakes import Mistake
from gradproof.frameworks.torch.rederivation.tape import Site

ROUNDED = 1e-11  # relative: thousands of roundings of double precision
PRODUCTS = ("convolution", "mm", "bmm", "mv", "dot")
GREATEST = ("amax", "amin", "max", "min")
PICKING = (*GREATEST, "maximum", "minimum")
CHOOSING = (*PICKING, "cummax", "cummin", "sort", "topk")
SELECTIONS = (
    *("index", "gather", "index_select", "embedding", "select", "slice", "unfold", "repeat", "as_strided"),
    *("reflection_pad1d", "reflection_pad2d", "replication_pad1d", "replication_pad2d"),
)


def of_selections(site: Site) -> Iterator[Mistake]:
    """Yield gradients of entries that are read several times, and masks of a maximum or a choice."""
    name = site.operation.name
    if site.incoming[0] is None:
        return
    if name in SELECTIONS:
        assigned = "gradients of entries that are read several times are assigned, and not added up"
        last, first = (partial(_assigned, is_last=is_last) for is_last in (True, False))
        yield Mistake("overwritten", "overwritten", assigned, last, ("missing-term",))
        yield Mistake("missing-term", "missing-term", "the first of several readers counts alone", first)
    if name in GREATEST:
        yield Mistake("mask", "mask", "its gradient goes to all entries", _to_all)
    if name in ("maximum", "minimum", "where"):
        yield Mistake("mask", "mask", "its mask is left out", lambda s: s.gradient)
        yield Mistake("mask", "mask", "its mask is inverted", lambda s: s.gradient - s.right)


def of_operands(site: Site) -> Iterator[Mistake]:
    """Yield derivatives with a matrix that is not transposed, a kernel that is not flipped, other indices."""
    for place, number in site.operation.tensors:
        own = site.tape.recording.values[number]
        if own.is_floating_point() and own.dim() >= 2 and own.shape[-1] == own.shape[-2] > 1:
            name, other = ("wrong-dimension", "transposed")[:: 1 if site.is_pointwise else -1]
            transposed = partial(_with, place, lambda t: t.mT)
            yield Mistake(name, name, "a matrix is not transposed", transposed, (other, "wrong-factor", "wrong-term"))
        if own.is_floating_point() and own.dim() and site.operation.name in PRODUCTS:
            dims = tuple(range(min(2, own.dim() - 1), own.dim()))
            reverse = partial(_with, place, partial(torch.flip, dims=dims))
            yield Mistake("flipped", "flipped", "an argument is reversed", reverse, ("wrong-term",))
        if own.dtype == torch.bool:
            inverted = partial(_with, place, torch.logical_not)
            yield Mistake("mask", "mask", "its mask is inverted", inverted, ("wrong-term",))
        elif not own.is_floating_point() and not own.is_complex() and own.numel() > 1:
            for text, change in (("inverted", torch.argsort), ("reversed", partial(torch.flip, dims=(-1,)))):
                changed = partial(_with, place, change)
                yield Mistake("misplaced", "misplaced", f"its indices are {text}", changed, ("flipped", "wrong-term"))


def of_others(site: Site) -> Iterator[Mistake]:
    """Yield derivatives that are computed from another tensor of the forward, of the same shape."""
    for place, number in site.operation.tensors:
        own = site.tape.recording.values[number]
        if own.is_floating_point() and own.numel() > 1 and (place == site.place or not site.is_pointwise):
            yield _other(site, "the negative of its argument", partial(_with, place, torch.neg))
        for other, value in site.values:
            if other == number or value.shape != own.shape or value.dtype != own.dtype or own.numel() < 2:
                continue
            change = partial(_with_value, place, other)
            if own.dtype == torch.bool or _is_masked(own, value):
                yield Mistake("mask", "mask", "it reads another mask, or none", change, ("wrong-factor", "wrong-term"))
            elif own.is_floating_point() and _is_offset(own, value):
                text = "its derivative reads its argument without a small constant, such as an eps, or with one"
                yield Mistake("approximation", "approximation", text, change, ("stale", "wrong-term"))
            elif own.is_floating_point() or own.is_complex():
                yield _other(site, "another tensor than its argument", change)
            else:
                text = "it reads other indices"
                yield Mistake("misplaced", "misplaced", text, change, ("wrong-dimension", "wrong-term"))


def of_constants(site: Site) -> Iterator[Mistake]:
    """Yield derivatives that read a tensor of the forward that is no input, shifted or reversed."""
    also = ("wrong-factor", "wrong-term")
    for place, number in site.operation.tensors:
        own = site.tape.recording.values[number]
        if number in site.tape.recording.active or not own.is_floating_point() or own.numel() < 2:
            continue
        for dim, length in enumerate(own.shape):
            if length > 1:
                reverse = partial(_with, place, partial(torch.flip, dims=(dim,)))
                yield Mistake(
                    "flipped", "flipped", "it reads a tensor reversed", reverse, ("wrong-factor", "wrong-term")
                )
            for by in (1, -1) if length >= FEW else ():
                moved = partial(_with, place, partial(torch.roll, shifts=by, dims=dim))
                also = ("wrong-factor", "wrong-term")
                yield Mistake("shifted", "shifted", f"it reads a tensor shifted by {by}", moved, also)


def _other(site: Site, what: str, change: partial[Tensor | None]) -> Mistake:
    """Return the mistake of a derivative at another point, for one argument, or of another factor, for several."""
    if site.operation.name in CHOOSING:
        name, other = ("mask", "misplaced")[:: 1 if site.operation.name in PICKING else -1]
        return Mistake(name, name, f"it chooses by {what}", change, (other,))
    name, other = ("stale", "wrong-factor")[:: 1 if len(list(site.operation.tensors)) == 1 else -1]
    return Mistake(name, "wrong-term", f"its derivative reads {what}", change, (other, "stale"), is_another=True)


def _is_masked(own: Tensor, other: Tensor) -> bool:
    """Return True if two tensors differ where one of them is zero, and nowhere else."""
    differ = own != other
    return bool(differ.any()) and any(bool((each[differ] == 0).all()) for each in (own, other))


def _is_offset(own: Tensor, other: Tensor) -> bool:
    """Return True if two tensors differ by a constant that is small beside all their entries."""
    apart = other - own
    spread, least = float((apart - apart.reshape(-1)[0]).abs().max()), float(own.abs().min())
    return spread <= ROUNDED * least and float(apart.abs().max()) <= SHARE * least


def _with(place: int, form: Callable[[Tensor], Tensor], site: Site) -> Tensor | None:
    return site.computed_with(place, form(site.given(place)))


def _with_value(place: int, number: int, site: Site) -> Tensor | None:
    return site.computed_with(place, site.tape.recording.values[number])


def _to_all(site: Site) -> Tensor | None:
    """Return the gradient of a maximum, spread over all entries that it is of."""
    incoming, shape = site.incoming[0], site.argument.shape
    if incoming is None or incoming.dim() in (0, len(shape)):
        return None if incoming is None else incoming.expand(shape)
    for dim in range(len(shape)):
        if shape[:dim] + shape[dim + 1 :] == incoming.shape:
            return incoming.unsqueeze(dim).expand(shape)
    return None


def _assigned(site: Site, *, is_last: bool) -> Tensor | None:
    """Return the gradient of a selection in which every entry has that of its last reader, or its first, alone."""
    argument, incoming = site.argument, site.gradient.reshape(-1)
    given = site.tape.given(site.operation)
    if incoming.numel() > SAMPLE or argument.is_complex():
        return None
    numbers = torch.arange(argument.numel(), dtype=torch.float64, device=argument.device)
    given[site.place] = numbers.reshape(argument.shape)
    (read, *_) = site.operation.run(given)
    places = read.reshape(-1).round().long().tolist()
    readers = list(enumerate(places))
    chosen = {place: k for k, place in (readers if is_last else reversed(readers))}
    gradient = torch.zeros_like(argument).reshape(-1)
    for place, k in chosen.items():
        gradient[place] = incoming[k]
    return gradient.reshape(argument.shape)
