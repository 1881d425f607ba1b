"""Numbers that are products of powers of known tensors, such as a·b²/c, found by linear regression of logarithms."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

from gradproof.engine.subject import Array
from gradproof.engine.thresholds import FEW, TRACE

Form = tuple[str, Array]  # a tensor, or a function of it, in words, and its values

POWERS = {0.5: "√{}", 1.0: "{}", 1.5: "{}^1.5", 2.0: "{}²"}


def monomial(xp: Any, numbers: Array, forms: Sequence[Form], spread: float) -> tuple[str, float] | None:
    """Return the simplest product of powers of tensors that some numbers are a multiple of, and the multiple.

    The powers are whole or half. There have to be more distinct numbers than powers and one constant can fit.
    """
    if not bool((xp.isfinite(numbers) & (numbers != 0)).all()):
        return None
    usable = [form for form in forms if bool((form[1] != 0).all()) and _varies(form[1])][: 2 * FEW]
    wanted, distinct = xp.log(abs(numbers)), _distinct(numbers, spread)
    for count in range(1, FEW + 1):
        if distinct < count + 2 or (count > 1 and spread > TRACE):
            return None
        for chosen in combinations(usable, count):
            logarithms = xp.stack([xp.log(abs(values)) for _, values in chosen]).T
            fitted = xp.linalg.pinv(logarithms - logarithms.mean(0)) @ (wanted - wanted.mean())
            powers = [round(2 * float(power)) / 2 for power in fitted]
            if any(abs(power) not in POWERS for power in powers):
                continue
            ratio = numbers
            for (_, values), power in zip(chosen, powers, strict=True):
                ratio = ratio / (values**power if power == int(power) else abs(values) ** power)
            multiple = float(ratio.sum()) / len(ratio)
            if multiple and float(abs(ratio - multiple).max()) <= count * spread * abs(multiple):
                return in_words([name for name, _ in chosen], powers), multiple
    return None


def _varies(values: Array) -> bool:
    return float(abs(abs(values) - abs(values[0])).max()) > TRACE * float(abs(values).max())


def _distinct(numbers: Array, spread: float) -> int:
    found: list[float] = sorted(numbers.tolist())
    return 1 + sum(abs(one - other) > spread * abs(one) for one, other in zip(found[1:], found, strict=False))


def in_words(names: Sequence[str], powers: Sequence[float]) -> str:
    """Return a product in words.

    >>> in_words(["x", "y", "z"], [1.0, -2.0, 0.5]), in_words(["x"], [-1.0])
    ('x·√z/y²', '1/x')
    """
    terms = [(POWERS[abs(power)].format(name), power) for name, power in zip(names, powers, strict=True)]
    above = "·".join(text for text, power in terms if power > 0) or "1"
    below = "·".join(text for text, power in terms if power < 0)
    if not below:
        return above
    return f"{above}/({below})" if "·" in below else f"{above}/{below}"
