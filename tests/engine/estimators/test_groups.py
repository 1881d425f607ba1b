"""Groups of coordinates that a function treats one by one, and the segment test of all of them at once."""

import pytest
import torch
from benchmarks.kernels import BUGS, FUNCTIONS, KINDS, RIGHT

from gradproof.engine.estimators.groups import groups_of
from gradproof.engine.estimators.groupwise import residuals_along
from gradproof.engine.estimators.problem import Alignment
from gradproof.engine.estimators.segment import problem_of
from gradproof.frameworks.torch.subject.torch_subject import TorchSubject

ROWS, COLUMNS, WIDTH = 32, 48, 0.3


def problem(function, dtype=torch.bfloat16, rows=ROWS):
    point = torch.randn(rows, COLUMNS, generator=torch.Generator().manual_seed(0)).to(dtype)
    return problem_of(TorchSubject.of(function, point.requires_grad_(), None), 0, 0.0, 0.0)


def kernel(name, bug=RIGHT):
    return KINDS["refuses float64"](FUNCTIONS[name], bug)


def groups(function):
    found = groups_of(problem(function), 0, WIDTH)
    return found and (found.inputs.count, int(found.separate.sum()), set(found.covered))


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (torch.tanh, (ROWS * COLUMNS // 16, ROWS * COLUMNS // 16, {0, -1})),
        (lambda x: x.softmax(-1), (ROWS, ROWS, {0})),
        (lambda x: x.norm(dim=-1), (ROWS, ROWS, {0})),
        (lambda x: x.softmax(0), (COLUMNS, COLUMNS, {-1})),
        (lambda x: torch.cat([x[:8].softmax(0), x[8:].softmax(-1)]), (ROWS, ROWS - 8, {0})),
        (lambda x: x.flatten().softmax(0), None),
        (torch.sum, None),
    ],
    ids=["elementwise", "rows", "one output a row", "columns", "some rows together", "all together", "one output"],
)
def test_groups_are_the_smallest_that_the_function_treats_one_by_one(function, expected):
    assert groups(function) == expected


def test_a_claim_that_depends_on_everything_does_not_hide_the_groups():
    assert groups(kernel("softmax", "missing term")) == (ROWS, ROWS, {0})


def largest_excess(name, bug, dtype):
    asked = problem(kernel(name, bug), dtype, rows=128)
    found = residuals_along(asked, groups_of(asked, 0, WIDTH), 0, WIDTH, Alignment.RANDOM)
    return float(found.excess.max())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("name", ["gelu", "softmax", "layer norm", "cumulative sum", "linear", "squared relu"])
def test_a_wrong_tile_stands_out_of_its_groups_and_a_right_rule_lies_within(name, dtype):
    assert largest_excess(name, RIGHT, dtype) < 1
    assert largest_excess(name, "a tile", dtype) > 2


def test_the_groups_outside_their_bars_are_named_worst_first():
    asked = problem(kernel("tanh", "last rows"))
    found = residuals_along(asked, groups_of(asked, 0, WIDTH), 0, WIDTH, Alignment.RANDOM)
    worst = [mask.nonzero().flatten() for mask in found.worst(3)]

    assert all(mask.min() >= (ROWS - ROWS // 8) * COLUMNS for mask in worst)
    assert BUGS["last rows"](torch.ones(ROWS, COLUMNS)).eq(0).sum() == ROWS // 8 * COLUMNS
