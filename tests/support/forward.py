"""Subjects that have a pushforward and no pullback, judged in forward mode."""

import numpy as np

from support.engine import judged
from support.numpy_subject import NumpySubject


def judged_forward(subject, seed=0, **options):
    """Judge the pushforward of a subject."""
    return judged(subject, seed, mode="forward", **options)


def never(*_):
    raise AssertionError("a pullback was asked for")


def pushed(function, tangent, point, **options):
    """A subject that has a pushforward and no pullback."""
    return NumpySubject(function, never, point, tangent=tangent, **options)


def elementwise(value, slope, point, **options):
    return pushed(value, lambda x, v: slope(x) * v, point, **options)


def mixing(matrix, point, error=0.0):
    """tanh(Ax), with an error in its Jacobian."""

    def tangent(x, v):
        return ((1 - np.tanh(matrix @ x) ** 2)[:, None] * matrix + error) @ v

    return pushed(lambda x: np.tanh(matrix @ x), tangent, point)
