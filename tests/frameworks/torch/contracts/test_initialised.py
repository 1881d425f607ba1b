"""Results do not depend on what fresh memory held."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from gradproof import check
from support.kernels import doubled_in_place_of_empty, saving
from support.points import point


def half_written(allocate):
    """2x, of which the last three entries are never written."""

    def forward(x):
        result = allocate(x)
        result[: x.numel() - 3] = 2 * x[: x.numel() - 3]
        return result

    return forward


ALLOCATORS = {
    "empty": lambda x: torch.empty(x.shape, dtype=x.dtype),
    "empty_like": torch.empty_like,
    "new_empty": lambda x: x.new_empty(x.shape),
    "empty_strided": lambda x: torch.empty_strided(x.shape, x.stride(), dtype=x.dtype),
    "new_empty_strided": lambda x: x.new_empty_strided(x.shape, x.stride()),
}


def test_right_functions_keep_it(asked, right):
    assert asked("initialised", *right) == []


@pytest.mark.parametrize("allocate", ALLOCATORS.values(), ids=ALLOCATORS)
def test_a_forward_that_leaves_the_tail_breaks_it(asked, allocate):
    (finding,) = asked("initialised", saving(half_written(allocate), lambda g, x: 2 * g), point(10))

    assert "what fresh memory held" in finding.message
    assert "value of output" in finding.message
    assert "torch.zeros" in finding.hint


@pytest.mark.parametrize("allocate", ALLOCATORS.values(), ids=ALLOCATORS)
def test_a_backward_that_leaves_the_tail_breaks_it(asked, allocate):
    left = half_written(allocate)

    (finding,) = asked("initialised", saving(lambda x: 2 * x, lambda g, x: left(g)), point(10))

    assert "gradient with respect to x" in finding.message
    assert finding.argument == "x"


def test_a_sum_that_begins_in_fresh_memory_breaks_it(asked):
    def forward(x):
        return torch.empty_like(x).nan_to_num(1.0).add_(x)  # so that NaN does not show it

    (finding,) = asked("initialised", saving(forward, lambda g, x: g), point(4))

    assert "a large number" in finding.message


def test_uninitialised_indices_break_it(asked):
    def forward(x):
        index = torch.empty(x.shape, dtype=torch.int64)
        return x[index.clamp(0, x.numel() - 1)]

    assert asked("initialised", saving(forward, lambda g, x: g), point(4))


def test_memory_that_is_written_in_full_keeps_it(asked):
    both = saving(doubled_in_place_of_empty, lambda g, x: doubled_in_place_of_empty(g))

    assert asked("initialised", both, point(3, 4)) == []


def test_scratch_memory_that_reaches_no_result_keeps_it(asked):
    def forward(x):
        scratch = torch.empty(2 * x.numel(), dtype=x.dtype)
        scratch[: x.numel()] = x
        return 2 * scratch[: x.numel()]

    assert asked("initialised", saving(forward, lambda g, x: 2 * g), point(4)) == []


def test_modes_and_flags_are_as_before():
    flags = (torch.are_deterministic_algorithms_enabled(), torch.utils.deterministic.fill_uninitialized_memory)

    check(saving(half_written(torch.empty_like), lambda g, x: 2 * g), point(10), contracts="kernel", seed=0)

    assert _get_current_dispatch_mode_stack() == []
    assert flags == (torch.are_deterministic_algorithms_enabled(), torch.utils.deterministic.fill_uninitialized_memory)


def test_it_is_not_tested_by_default():
    report = check(saving(half_written(torch.empty_like), lambda g, x: 2 * g), point(10), seed=0)

    assert "initialised" not in [finding.kind for finding in report.findings]


def test_a_backward_that_leaves_the_tail_breaks_it_where_loss_backward_gives_another_gradient():
    def backward(g, x):
        result = torch.empty_like(g)
        result[:-1] = (3 if torch.autograd._is_checkpoint_valid() else 5) * g[:-1]
        return result

    report = check(saving(lambda x: 2 * x, backward), point(10), contracts="kernel", seed=0)

    assert {finding.kind for finding in report.findings} >= {"wrong-gradient", "initialised"}
