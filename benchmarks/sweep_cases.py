"""The sweep's cases over PyTorch's operator database: right gradients, unusual points, and planted errors.

Nothing is differentiated while cases are listed, since processes are forked afterwards: a case makes its function and
its inputs when its turn comes.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map

from benchmarks.detection import LEAST_EFFECT
from benchmarks.float32 import LARGEST_INPUT, LEAST_ENTRY
from benchmarks.independent import KNOWN, SEED, size_of
from benchmarks.operators import Scenario, scenarios
from benchmarks.planted import KINDS, Kind, Planted, effect

SAMPLES = {"float64": 5, "complex128": 5, "float32": 3, "bfloat16": 1, "float16": 1}  # of each operator, at the most
LARGEST_JACOBIAN = 300_000  # entries, inputs × outputs, in full coverage
FULL: Mapping[str, Any] = {"coverage": "full"}


class Subject(NamedTuple):
    """What is checked."""

    function: Callable[..., Any]
    inputs: tuple[Any, ...]


class Skipped(Exception):  # noqa: N818  # no error
    """There is nothing to check, for the reason given."""


@dataclass(frozen=True)
class Case:
    """One check: who it is, how its subject is made, the options, and whether the gradient is right."""

    table: str
    name: str
    make: Callable[[], Subject]
    options: Mapping[str, Any] = field(default_factory=dict)
    planted: bool = False
    wrong: bool = False

    @property
    def seed(self) -> int:
        """The same in every run, whichever other cases there are."""
        return zlib.crc32(f"{self.table} {self.name}".encode())


@cache
def samples(dtype: str) -> Sequence[Scenario]:
    """The operators' samples, which are the same whichever tables ask for them."""
    random.seed(SEED)
    np.random.seed(SEED)
    return tuple(scenarios(getattr(torch, dtype), SAMPLES[dtype]))


def of_operators(
    table: str, dtype: str, count: int, make: Callable[[Scenario], Subject], options: Mapping[str, Any], note: str = ""
) -> Iterator[Case]:
    """A case for each of the first samples of every operator; those of PyTorch's known errors are expected to fail."""
    for scenario in samples(dtype):
        if scenario.number < count:
            name = " ".join(filter(None, (scenario.name, dtype, str(scenario.number), note)))
            yield Case(table, name, partial(make, scenario), options, wrong=scenario.name in KNOWN)


def as_it_is(scenario: Scenario) -> Subject:
    """The sample itself."""
    return Subject(scenario.function, scenario.inputs)


def of_bearable_size(subject: Subject) -> Subject:
    """The same, unless its Jacobian is very large."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        results, _ = tree_flatten(subject.function(*subject.inputs))
    outputs = sum(each.numel() for each in results if isinstance(each, Tensor))
    if size_of(subject.inputs) * outputs > LARGEST_JACOBIAN:
        raise Skipped("the Jacobian is very large")
    return subject


def alarms64() -> Iterator[Case]:
    """Right gradients in double precision."""
    for dtype in ("float64", "complex128"):
        yield from of_operators("alarms64", dtype, 5, as_it_is, {})


def alarms32() -> Iterator[Case]:
    """Right gradients in single and half precision."""
    for dtype in ("float32", "bfloat16", "float16"):
        yield from of_operators("alarms32", dtype, 3, as_it_is, {})


def full() -> Iterator[Case]:
    """Right gradients, every entry."""
    yield from of_operators("full", "float64", 2, lambda scenario: of_bearable_size(as_it_is(scenario)), FULL)


def forward() -> Iterator[Case]:
    """Forward mode, where the database says that there is one."""

    def make(scenario: Scenario) -> Subject:
        if not scenario.supports.forward:
            raise Skipped("no forward mode")
        return as_it_is(scenario)

    yield from of_operators("forward", "float64", 2, make, {"modes": ("forward",)})


def order2() -> Iterator[Case]:
    """Reverse over reverse, where the database says that it works."""

    def make(scenario: Scenario) -> Subject:
        if not scenario.supports.reverse_over_reverse:
            raise Skipped("no double backward")
        return as_it_is(scenario)

    yield from of_operators("order2", "float64", 1, make, {"modes": ("reverse",), "order": 2})


PLACES: Mapping[str, Callable[[Tensor], Tensor]] = {
    "ones": torch.ones_like,
    "zeros": torch.zeros_like,
    "integers": lambda x: (3 * x).round(),
    "halves": lambda x: (2 * x).round() / 2,
    "equal": lambda x: torch.full_like(x, float(x.mean())),
    "× 1e3": lambda x: 1e3 * x,
    "× 1e6": lambda x: 1e6 * x,
}


def moved(place: Callable[[Tensor], Tensor], scenario: Scenario) -> Subject:
    """The sample at another point, unless the function raises there."""

    def at_place(leaf: Any) -> Any:
        if isinstance(leaf, Tensor) and leaf.requires_grad and leaf.is_floating_point() and leaf.numel():
            return place(leaf.detach()).requires_grad_()
        return leaf

    subject = Subject(scenario.function, tree_map(at_place, scenario.inputs))
    try:
        return of_bearable_size(subject)
    except Skipped:
        raise
    except Exception as error:
        raise Skipped(f"the function raises {type(error).__name__} at this place") from error


def odd() -> Iterator[Case]:
    """Right gradients at points where functions have kinks, ties and poles, or large values."""
    for name, place in PLACES.items():
        make = partial(moved, place)
        yield from of_operators("odd", "float64", 1, make, {}, name)
        yield from of_operators("odd", "float64", 1, make, FULL, f"{name} full")


def with_error(kind: Kind, least: float, scenario: Scenario) -> Subject:
    """The sample with an error planted, where that changes the gradient."""
    planted = Planted.around(scenario.function, scenario.inputs)
    if planted is None:
        raise Skipped("no output depends on the inputs")
    right = planted.gradients(scenario.number)
    victim = planted.victim_at(right, scenario.number, least=least)
    if victim is None:
        raise Skipped("the gradient is zero or not finite")
    wrong = planted.corrupted(kind, victim)
    if not effect(right, wrong.gradients(scenario.number)) > LEAST_EFFECT:
        raise Skipped("the error changes nothing")
    return Subject(wrong, wrong.inputs)


def errors(
    table: str, dtype: str, kinds: Sequence[Kind], options: Mapping[str, Any], least: float = 0.0
) -> Iterator[Case]:
    """Planted errors in every operator's first sample."""
    largest = LARGEST_INPUT if dtype == "float32" else torch.inf

    def make(kind: Kind, scenario: Scenario) -> Subject:
        if size_of(scenario.inputs) > largest:
            raise Skipped("too many inputs for an error of this size")
        subject = with_error(kind, least, scenario)
        return of_bearable_size(subject) if options is FULL else subject

    for kind in kinds:
        for case in of_operators(table, dtype, 1, partial(make, kind), options, kind.name):
            yield Case(case.table, case.name, case.make, case.options, planted=True, wrong=True)


def kinds_named(*names: str) -> list[Kind]:
    """Some of the ten kinds of errors."""
    found = [kind for kind in KINDS if kind.name in names]
    if len(found) != len(names):
        raise ValueError(f"{names}: of these only {[kind.name for kind in found]} are kinds of planted errors")
    return found


def planted() -> Iterator[Case]:
    """Errors of ten kinds; those that need complex numbers get them."""
    for kind in KINDS:
        yield from errors("planted", "complex128" if kind.needs_complex else "float64", [kind], {})


def planted_full() -> Iterator[Case]:
    """Errors of three kinds, in full coverage."""
    kinds = kinds_named("one entry × 1.0001", "two entries swapped", "one argument detached")
    yield from errors("planted_full", "float64", kinds, FULL)


def planted32() -> Iterator[Case]:
    """Errors of three kinds, in single precision."""
    kinds = kinds_named("one entry × 1.01", "one entry's sign flipped", "one argument detached")
    yield from errors("planted32", "float32", kinds, {}, LEAST_ENTRY)
