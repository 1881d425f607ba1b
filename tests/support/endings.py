"""Functions whose checks end in every way there is."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from gradproof import check
from support.functions import doubled


def right(x, y=1.0):
    return x.sin() * y


def wrong(x, y=1.0):
    return doubled(x).sin() * y


def raising(x, y=1.0):
    raise KeyError("from the function")


def raising_beside(x, y=1.0):
    if not x.requires_grad:
        raise KeyError("from the function")
    return x.sin() * y


def writing(x, y=1.0):
    with torch.no_grad():
        x.mul_(2.0)
        if isinstance(y, torch.Tensor):
            y.add_(1.0)
    return x.sin() * y


def drawing(x, y=1.0):
    noise = torch.rand(x.shape, dtype=x.dtype) + random.random() + float(np.random.rand())
    return x.sin() * noise * y


def drawing_and_wrong(x, y=1.0):
    return drawing(doubled(x), y)


def drawing_and_raising(x, y=1.0):
    drawing(x)
    raise KeyError("from the function")


FUNCTIONS = [
    right,
    wrong,
    raising,
    raising_beside,
    writing,
    drawing,
    drawing_and_wrong,
    drawing_and_raising,
    torch.relu,
]

every_ending = pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
every_precision = pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.complex64])


def run(function, *inputs, **options):
    """Check, and come back however it ends."""
    try:
        return check(function, inputs, seed=0, **options)
    except KeyError:
        return None


def states():
    """Return the state of every global generator."""
    return torch.get_rng_state().tolist(), random.getstate(), repr(np.random.get_state())
