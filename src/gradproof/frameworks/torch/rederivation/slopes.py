"""Mistakes in the slope of a pointwise operation: left out, applied twice, inverted, another one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from gradproof.engine.thresholds import SAMPLE
from gradproof.frameworks.torch.rederivation.mistakes import Mistake
from gradproof.frameworks.torch.rederivation.tape import Site

Form = Callable[[Tensor], Tensor]
POWERS = {1.0: "{}", -1.0: "1/{}", 2.0: "{}²", -2.0: "1/{}²", 0.5: "√{}", -0.5: "1/√{}"}
FORMS: dict[str, Form] = {
    "1 − {}": lambda t: 1 - t,
    "1 + {}": lambda t: 1 + t,
    "1 − {}²": lambda t: 1 - t * t,
    "1 + {}²": lambda t: 1 + t * t,
}


def of_slopes(site: Site) -> Iterator[Mistake]:
    """Yield mistakes in the slope itself."""
    slope = site.slope if site.is_pointwise else None
    levels = _levels(slope)
    if slope is None or len(levels) == 1:
        return
    if levels == [-1.0, 1.0]:
        yield Mistake("wrong-factor", "wrong-term", "its sign is left out", lambda s: s.gradient, ("sign", "mask"))
    elif len(levels) == 2:
        low, high = levels
        left_out, exchanged = "its mask is left out", partial(_with, lambda d: low + high - d)
        if 0.0 in levels:
            yield Mistake("mask", "mask", left_out, lambda s: s.gradient, ("wrong-factor", "wrong-term"))
        else:
            yield _factor("its slope, which has two values, is left out", lambda s: s.gradient, "mask")
        yield Mistake("mask", "mask", "its branches are exchanged", exchanged, ("wrong-factor",))
    else:
        also = ("pass-through",) if site.operation.name in ("mul", "div") else ()
        yield _factor("its slope is left out", lambda s: s.gradient, *also)
        yield _factor("one minus its slope is taken for its slope", partial(_with, lambda d: 1 - d))
    yield _factor("its slope is applied twice", partial(_with, lambda d: d * d))
    if site.operation.name != "exp":  # whose slope is inverted where the argument is negated
        yield _factor("its slope is inverted", partial(_with, lambda d: 1 / d))
    if len(levels) > 2:
        yield _factor("its slope has lost its sign", partial(_with, abs), "sign")


def of_factors(site: Site) -> Iterator[Mistake]:
    """Yield gradients with a factor too many or too few, and slopes with another tensor in their place."""
    slope = site.slope if site.is_pointwise else None
    if slope is not None and _levels(slope) == [-1.0, 1.0]:
        return
    for text, read in (("the result", _result), ("the argument", _argument)) if slope is not None else ():
        for pattern, form in FORMS.items():
            what = pattern.format(text)
            for power in (1.0, -1.0):
                yield _factor(_too_many(power, what), partial(_times, read, form, power))
            yield _factor(f"{what} stands in the place of its slope", partial(_instead, read, form))
    for number, value in site.values:
        if value.is_floating_point() and value.numel() > 1 and _spreads(value, site.right):
            what, read = f"a tensor of shape {tuple(value.shape)}", partial(_value, number)
            for power in POWERS:
                yield _factor(_too_many(power, what), partial(_times, read, _itself, power))
            if slope is not None:
                yield _factor(f"{what} stands in the place of its slope", partial(_instead, read, _itself))


def _factor(text: str, change: Callable[[Site], Tensor | None], *also: str) -> Mistake:
    return Mistake("wrong-factor", "wrong-term", text, change, also)


def _too_many(power: float, what: str) -> str:
    """Return what is wrong with a derivative that is multiplied by a power of something.

    >>> _too_many(2.0, "x"), _too_many(-0.5, "x")
    ('its derivative has a factor x² too many', 'its derivative lacks the factor √x')
    """
    if power < 0:
        return f"its derivative lacks the factor {POWERS[-power].format(what)}"
    return f"its derivative has a factor {POWERS[power].format(what)} too many"


def _levels(slope: Tensor | None) -> list[float]:
    """Return the two values of a slope that has two, one value of any other, and three of one that varies."""
    few = [] if slope is None else torch.unique(slope.reshape(-1)[:SAMPLE])[:3].tolist()
    return [float(each) for each in few]


def _spreads(value: Tensor, slope: Tensor) -> bool:
    pairs = zip(reversed(value.shape), reversed(slope.shape), strict=False)
    return value.dim() <= slope.dim() and all(one in (1, other) for one, other in pairs)


def _with(form: Form, site: Site) -> Tensor | None:
    return None if site.slope is None else site.gradient * form(site.slope)


def _times(read: Callable[[Site], Tensor], form: Form, power: float, site: Site) -> Tensor:
    return site.right * form(read(site)) ** power


def _instead(read: Callable[[Site], Tensor], form: Form, site: Site) -> Tensor | None:
    return None if site.slope is None else site.gradient * form(read(site))


def _result(site: Site) -> Tensor:
    return site.result


def _argument(site: Site) -> Tensor:
    return site.argument


def _value(number: int, site: Site) -> Tensor:
    return site.tape.recording.values[number]


def _itself(tensor: Tensor) -> Tensor:
    return tensor
