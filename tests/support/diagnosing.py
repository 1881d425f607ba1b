"""Subjects of shaped tensors, and what is diagnosed of their wrong gradients."""

from __future__ import annotations

import math
from itertools import accumulate

import numpy as np
import pytest

from gradproof.engine.diagnosis import diagnosed
from gradproof.engine.judging import judge
from gradproof.engine.options import Probing
from gradproof.engine.results import Place, Verdict
from support.numpy_subject import NumpySubject

SHAPES = [(7,), (4, 5), (2, 3, 4), (20, 15)]

every_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)


class Shaped:
    """A frame of named tensors with shapes; a complex entry is two coordinates."""

    gathered = False

    def __init__(self, shapes, complex_too=()):
        self.names, self.shapes, self.complex_too = list(shapes), list(shapes.values()), set(complex_too)
        sizes = [math.prod(shape) * (2 if name in self.complex_too else 1) for name, shape in shapes.items()]
        self.stops = list(accumulate(sizes))
        self.starts, self.size = [0, *self.stops[:-1]], self.stops[-1]

    @property
    def spans(self):
        return list(zip(self.starts, self.stops, strict=True))

    def rounded(self, vector):
        return vector

    def locate(self, coordinate):
        number = next(k for k, stop in enumerate(self.stops) if coordinate < stop)
        offset, part = coordinate - self.starts[number], None
        if self.names[number] in self.complex_too:
            part = ("real", "imag")[offset % 2]
            offset //= 2
        index = tuple(map(int, np.unravel_index(offset, self.shapes[number]))) if self.shapes[number] else ()
        return Place(path=self.names[number], index=index, part=part)


def subject_of(value, gradient, inputs, outputs, *, complex_too=(), dtype=np.float64, seed=1):
    """A subject from functions on shaped arrays: `value(*x)`, and `gradient(u, *x)`, a tuple of arrays."""
    frame = Shaped(inputs, complex_too)

    def split(vector):
        pieces = []
        for name, shape, (low, high) in zip(frame.names, frame.shapes, frame.spans, strict=True):
            piece = np.ascontiguousarray(vector[low:high])
            pieces.append((piece.view(complex) if name in frame.complex_too else piece).reshape(shape))
        return pieces

    def flat(array):
        array = np.ascontiguousarray(array)
        return (array.view(float) if np.iscomplexobj(array) else array).reshape(-1)

    def claim(x, u):
        (shape,) = outputs.values()
        u = (np.ascontiguousarray(u).view(complex) if "y" in complex_too else u).reshape(shape)
        pieces = zip(gradient(u, *split(x)), frame.shapes, strict=True)
        return np.concatenate([flat(np.broadcast_to(piece, own)) for piece, own in pieces])

    point = np.random.default_rng(seed).normal(size=frame.size)
    subject = NumpySubject(lambda x: flat(value(*split(x))), claim, point, dtype=dtype)
    subject.inputs, subject.outputs = frame, Shaped(outputs, complex_too)
    return subject


def diagnoses_of(subject, seed=3):
    judgement = judge(subject, probes=1, seed=seed, options=Probing())
    assert judgement.verdict is Verdict.FAIL
    return diagnosed(subject, judgement, seed).findings[0].diagnoses


def first_of(subject):
    found = diagnoses_of(subject)
    return found[0].name if found else None


def elementwise(corrupt, shape, **options):
    """x² + sin x, with a corrupted gradient."""
    return subject_of(
        lambda x: x * x + np.sin(x),
        lambda u, x: (corrupt(u * (2 * x + np.cos(x)), u, x),),
        {"x": shape},
        {"y": shape},
        **options,
    )
