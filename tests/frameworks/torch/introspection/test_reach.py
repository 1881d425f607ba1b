"""The modules, tensors and generators that a function can use beside its arguments are found, by whatever way."""

import functools
import random
import types

import numpy as np
import pytest
import torch
from torch import nn

from gradproof.frameworks.torch.introspection.reach import reach_of

LAYER = nn.Linear(2, 1)
SHARED = types.SimpleNamespace(layer=LAYER)


def helper(x):
    return LAYER(x)


class Owner:
    def __init__(self, held):
        self.held = held

    def run(self, x):
        return self.held(x)

    def __call__(self, x):
        return self.held(x)


class Slotted:
    __slots__ = ("held", "later")

    def __init__(self, held):
        self.held = held

    def __call__(self, x):
        return self.held(x)


class Keeping(nn.Module):
    def __init__(self, held):
        super().__init__()
        self.kept = [{"one": (held,)}]

    def forward(self, x):
        return self.kept[0]["one"][0](x)


class OfAClass:
    held = LAYER

    def __call__(self, x):
        return self.held(x)


WAYS = {
    "a global": lambda: lambda x: LAYER(x),
    "a global of a helper": lambda: lambda x: helper(x),
    "a global of an inner function": lambda: lambda x: (lambda y: LAYER(y))(x),
    "an attribute of a global": lambda: lambda x: SHARED.layer(x),
    "a default": lambda: lambda x, layer=LAYER: layer(x),
    "a keyword default": lambda: lambda x, *, layer=LAYER: layer(x),
    "an argument of a partial": lambda: functools.partial(lambda layer, x: layer(x), LAYER),
    "the function of a partial": lambda: functools.partial(LAYER),
    "a bound method": lambda: Owner(LAYER).run,
    "an attribute of a callable object": lambda: Owner(LAYER),
    "a slot of a callable object": lambda: Slotted(LAYER),
    "an attribute of a class": OfAClass,
    "containers in containers of a module": lambda: Keeping(LAYER),
    "a submodule": lambda: nn.Sequential(nn.ReLU(), nn.Sequential(LAYER)),
    "a data-parallel module": lambda: nn.DataParallel(LAYER),
    "a wrapped function": lambda: functools.wraps(helper)(lambda x: x),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_module_is_found_behind(way):
    assert any(module is LAYER for module in reach_of(WAYS[way]()).modules.values())


def test_paths_are_those_that_the_function_uses():
    layers, scale = [nn.Linear(1, 1), {"act": nn.ReLU()}], torch.ones(2)

    reach = reach_of(lambda x: layers[1]["act"](layers[0](x)) * scale)

    assert list(reach.modules) == ["layers[0]", "layers[1]['act']"]
    assert list(reach.tensors) == ["scale"]


@pytest.mark.parametrize(
    "generator", [torch.Generator(), random.Random(1), np.random.default_rng(1), np.random.RandomState(1)]
)
def test_a_function_s_own_generators_are_found(generator):
    assert reach_of(lambda x: (x, [generator])).generators == {"generator": generator}


def test_objects_that_hold_themselves_are_entered_once():
    circle = [LAYER]
    circle.append(circle)

    assert list(reach_of(lambda x: circle[0](x)).modules) == ["circle[0]"]


def test_a_variable_without_a_value_yet_is_left_out():
    def function(x):
        return x * later

    assert not reach_of(function).tensors
    later = torch.ones(1)
    assert list(reach_of(function).tensors) == ["later"]
