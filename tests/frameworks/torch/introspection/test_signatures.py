"""What functions and their arguments are called."""

from functools import partial

import pytest
import torch

from gradproof import check
from gradproof.frameworks.torch.introspection.signatures import argument_names, name_of
from gradproof.gallery.specimen import planted


def weighted(weight, x, power):
    return weight * x**power


@pytest.mark.parametrize(
    ("function", "name", "arguments"),
    [
        (partial(weighted, 2.0), "weighted", ["x", "power"]),
        (partial(weighted, power=2), "weighted", ["weight", "x"]),
        (partial(partial(weighted, 2.0), power=2), "weighted", ["x"]),
        (partial(weighted, x=1.0), "weighted", ["weight"]),  # what follows x can be given by name alone
        (partial(torch.softmax, dim=-1), "softmax", ["input"]),
    ],
)
def test_a_partial_has_the_name_of_its_function_and_the_arguments_that_are_left(function, name, arguments):
    assert (name_of(function), argument_names(function)) == (name, arguments)


def test_a_report_on_a_partial_names_its_function():
    doubled = planted(
        "Doubled", lambda x, power: x**power, lambda g, x, power: (2 * g * power * x ** (power - 1), None)
    )
    x = torch.ones(3, dtype=torch.float64, requires_grad=True)
    report = check(partial(lambda x, power: doubled(x, power), power=2.0), x, seed=0)
    assert (report.subject.name, report.findings[0].argument) == ("Doubled", "x")
