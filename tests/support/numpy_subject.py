"""A NumPy function as a subject: the engine is tested without any framework.

Coordinates are double precision; the function itself is evaluated in a precision of choice.
"""

import itertools
import math

import numpy as np

from gradproof.engine.results import Place
from gradproof.engine.subject import Numbers, Scale

WILD = 30.0  # root mean square over geometric mean, beyond which every entry has a scale of its own


class NumpyFrame:
    """Named vectors, one after the other."""

    gathered = False

    def __init__(self, sizes, dtype):
        self.names, self.dtype = list(sizes), dtype
        self.stops = list(itertools.accumulate(sizes.values()))
        self.starts = [0, *self.stops[:-1]]
        self.size = self.stops[-1] if self.stops else 0

    @property
    def spans(self):
        return list(zip(self.starts, self.stops, strict=True))

    def rounded(self, vector):
        return vector.astype(self.dtype).astype(np.float64)

    def locate(self, coordinate):
        number = next(k for k, stop in enumerate(self.stops) if coordinate < stop)
        return Place(path=self.names[number], index=(coordinate - self.starts[number],))


class NumpySubject:
    """`function(x)` at `point`, evaluated in `dtype`, with the claim `gradient(x, cotangent)`.

    `parts` names the pieces of the input vector, by default one piece `x`. With `exact` the arguments are not rounded
    to `dtype`, in which then the values alone are given.
    """

    arrays = np
    mode = "reverse"

    def __init__(self, function, gradient, point, *, dtype=np.float64, parts=None, exact=False, tangent=None):
        self.tangent, self.pushforwards = tangent, 0
        self.function, self.gradient, self.dtype, self.exact = function, gradient, dtype, exact
        self.point = np.asarray(point, dtype).astype(np.float64).reshape(-1)
        self.evaluations = self.pullbacks = 0
        self.trouble = ""
        self.inputs = NumpyFrame(parts or {"x": self.point.size}, dtype)
        self.centre = self._value(self.point)
        self.outputs = NumpyFrame({"output": self.centre.size}, dtype)
        self.scale = Scale(finite=bool(np.isfinite(self.centre).all()))
        info = np.finfo(dtype)
        self.numbers = Numbers(precision=float(info.eps), largest=float(info.max), tiny=float(info.smallest_subnormal))

    def direction(self, seed, step):
        vector = _signed(2 * seed, self.point.size) * (step.length * (1.0 if step.absolute else self._scale()))
        near = (self.point + vector).astype(self.dtype).astype(np.float64)
        return near - self.point

    def cotangent(self, seed):
        return np.where(np.isfinite(self.centre), _signed(2 * seed + 1, self.centre.size), 0.0)

    def evaluate(self, direction, t):
        self.evaluations += 1
        point = self.point.astype(np.longdouble) if self.exact else self.point
        return self._value(point + t * direction)

    def evaluate_along(self, direction, steps):
        return [self.evaluate(direction, t) for t in steps]

    def pullback(self, cotangent, at=None):
        return self._claim(self.point if at is None else self.point + at, cotangent)

    def pushforward(self, direction, at=None):
        self.pushforwards += 1
        claimed = self.tangent(self.point if at is None else self.point + at, direction)
        return np.asarray(claimed).astype(self.dtype).astype(np.float64).reshape(-1)

    def evaluate_many(self, directions, t):
        return np.stack([self.evaluate(direction, t) for direction in directions])

    def pullback_many(self, cotangents):
        return np.stack([self.pullback(cotangent) for cotangent in cotangents])

    def pushforward_many(self, directions):
        return np.stack([self.pushforward(direction) for direction in directions])

    def _value(self, x):
        return np.asarray(self.function(x if self.exact else x.astype(self.dtype)), np.float64).reshape(-1)

    def _claim(self, x, cotangent):
        self.pullbacks += 1
        return np.asarray(self.gradient(x, cotangent)).astype(self.dtype).astype(np.float64)

    def _scale(self):
        sizes = abs(self.point[self.point != 0])
        if not sizes.size:
            return 1.0
        root, middle = math.sqrt(float((sizes**2).mean())), math.exp(float(np.log(sizes).mean()))
        return root if root <= WILD * middle else np.where(self.point != 0, abs(self.point), middle)


def _signed(seed, size):
    draw = np.random.default_rng(seed)
    return draw.choice([-1.0, 1.0], size) * draw.uniform(0.5, 1.0, size)


def elementwise(value, slope, point, *, dtype=np.float64, **options):
    """A subject whose every output depends on its own input alone: value(x), with the claim slope(x) in both modes."""
    options = {"tangent": lambda x, v: slope(x) * v} | options
    return NumpySubject(value, lambda x, u: slope(x) * u, point, dtype=dtype, **options)


def ideally(value, dtype):
    """The function computed in extended precision and rounded once, so that its rounding is as small as can be."""

    def rounded(x):
        return value(x.astype(np.longdouble)).astype(dtype)

    return rounded


def hashed(x):
    """Deterministic pseudo-noise, uniform in [-1, 1], from the bits of x (SplitMix64's finaliser)."""
    bits = np.asarray(x, np.float64).view(np.uint64).copy()
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits ^= bits >> np.uint64(shift)
        bits *= np.uint64(factor)
    bits ^= bits >> np.uint64(31)
    return bits.astype(np.float64) / 2.0**63 - 1.0
