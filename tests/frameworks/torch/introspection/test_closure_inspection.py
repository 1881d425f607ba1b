"""The objects that a function can use beside its arguments are found, under the names that it uses for them."""

import functools

import torch
from torch import nn

from gradproof.frameworks.torch.introspection.closure_inspection import visible_modules, visible_objects

LAYER = nn.Linear(2, 1)


class Owner:
    def __init__(self):
        self.net = nn.Linear(3, 2)

    def loss(self, x):
        return self.net(x).sum()


def test_globals_defaults_and_free_variables_are_visible():
    free = torch.ones(2)

    def function(x, scale=3.0):
        return LAYER(x * free) * scale

    seen = visible_objects(function)

    assert seen["LAYER"] is LAYER
    assert seen["free"] is free
    assert seen["scale"] == 3.0


def test_what_is_bound_by_a_partial_is_visible():
    bound = nn.Linear(2, 2)

    assert visible_objects(functools.partial(torch.add, 1, alpha=2)) == {"args[0]": 1, "alpha": 2}
    assert visible_modules(functools.partial(lambda net, x: net(x), bound)) == {"args[0]": bound}


def test_modules_in_containers_and_of_a_method_s_object_are_visible():
    layers, owner = [nn.Linear(1, 1), nn.ReLU()], Owner()

    assert visible_modules(lambda x: layers[0](x)) == {"layers[0]": layers[0], "layers[1]": layers[1]}
    assert visible_modules(owner.loss)["self.net"] is owner.net


def test_a_variable_without_a_value_yet_is_left_out():
    def function(x):
        return x * later

    assert "later" not in visible_objects(function)
    later = 2.0
    assert visible_objects(function)["later"] == later
