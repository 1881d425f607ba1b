"""The elements of pictures: marks, labels, and axes that map numbers to pixels, with round ticks."""

from __future__ import annotations

import math
from dataclasses import dataclass

LABEL = 20  # characters of a label
SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark on an axis."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Dot:
    """A point, with its tooltip."""

    x: float
    y: float
    title: str
    faint: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """A straight line."""

    x1: float
    y1: float
    x2: float
    y2: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """A name beside blocks; labels that would overlap lie in different lanes."""

    at: float
    text: str
    lane: int


@dataclass(frozen=True, slots=True)
class Axis:
    """A map from a range of numbers to a range of pixels."""

    low: float
    high: float
    start: float
    stop: float

    def __call__(self, number: float) -> float:
        """Return the pixel of a number, to a tenth.

        >>> Axis(0.0, 10.0, 100.0, 200.0)(2.5)
        125.0
        """
        share = (number - self.low) / (self.high - self.low)
        return round(self.start + share * (self.stop - self.start), 1)

    def ticks(self, most: int) -> list[Tick]:
        """Return ticks at round numbers.

        >>> [tick.label for tick in Axis(-0.3, 1.2, 0.0, 100.0).ticks(4)]
        ['0', '0.5', '1']
        """
        rough = (self.high - self.low) / most
        power = 10.0 ** math.floor(math.log10(rough))
        pace = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
        first, last = math.ceil(self.low / pace), math.floor(self.high / pace)
        return [Tick(self(number * pace), f"{number * pace:.6g}") for number in range(first, last + 1)]

    def decades(self, most: int) -> list[Tick]:
        """Return ticks at powers of ten, for an axis of logarithms.

        >>> [tick.label for tick in Axis(-7.2, 0.4, 0.0, 100.0).decades(4)]
        ['10⁻⁶', '10⁻⁴', '10⁻²', '1']
        """
        first, last = math.ceil(self.low), math.floor(self.high)
        pace = max(1, math.ceil((last - first + 1) / most))
        return [Tick(self(power), power_of_ten(power)) for power in range(first, last + 1) if power % pace == 0]


def power_of_ten(power: int) -> str:
    """Format a power of ten.

    >>> power_of_ten(-12), power_of_ten(0), power_of_ten(1)
    ('10⁻¹²', '1', '10')
    """
    return {0: "1", 1: "10"}.get(power, f"10{str(power).translate(SUPERSCRIPT)}")


def axis_around(numbers: list[float], start: float, stop: float, *, margin: float, least: float) -> Axis:
    """Return an axis that holds some numbers with a margin on both sides, and has a least length.

    >>> axis_around([1.0, 3.0], 0.0, 100.0, margin=0.5, least=1.0)
    Axis(low=0.0, high=4.0, start=0.0, stop=100.0)
    """
    low, high = min(numbers), max(numbers)
    spare = max(margin * (high - low), (least - (high - low)) / 2, 1e-300)
    return Axis(low - spare, high + spare, start, stop)


def short(label: str, most: int = LABEL) -> str:
    """Shorten a long label by leaving out its middle.

    >>> short("layers.encoder.0.attention.weight[1, 2]")
    'layers.en…ight[1, 2]'
    """
    return label if len(label) <= most else f"{label[: most // 2 - 1]}…{label[-(most - most // 2) :]}"
