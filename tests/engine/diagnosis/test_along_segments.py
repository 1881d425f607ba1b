"""What a mistake looks like in kernels of which only segments show that they are wrong."""

import pytest
import torch
from torch.nn import functional

import gradproof
from gradproof.engine.diagnosis.along_segments import diagnoses
from gradproof.engine.estimators.segment import SegmentOutcome, problem_of, segment_test
from gradproof.engine.localisation.segment_blocks import in_parts
from gradproof.engine.localisation.segment_region import region_of
from gradproof.engine.options import Probing
from gradproof.frameworks.torch.subject.torch_subject import TorchSubject
from support.kernels import refusing_double

ROWS, COLUMNS = 8, 24
HALF = [torch.bfloat16, torch.float16]


def softmax(x):
    return x.softmax(-1)


def layer_norm(x):
    return functional.layer_norm(x, x.shape[-1:])


def edited(change):
    def spoil(gradient):
        spoiled = gradient.clone()
        change(spoiled)
        return spoiled

    return spoil


def named(function, spoil, dtype, seed=0):
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(ROWS, COLUMNS, generator=draw).to(dtype).requires_grad_()
    problem = problem_of(TorchSubject.of(refusing_double(function, spoil), x, None), seed, 0.0, 0.0)
    result = segment_test(problem.subject, seed=seed)
    if result.outcome is not SegmentOutcome.DISAGREES:
        result = in_parts(problem, result, seed, Probing())
    assert result.outcome is SegmentOutcome.DISAGREES
    found = diagnoses(problem, result, region_of(problem, result, seed), seed)
    return [(each.name, each.message) for each in found]


WHOLE = {
    "zero": (torch.zeros_like, "detached", "is zero throughout"),
    "doubled": (lambda g: 2 * g, "factor", "about 2 times"),
    "+ 10 %": (lambda g: 1.1 * g, "factor", "about 1.1 times"),
    "sign": (lambda g: -g, "sign", "the wrong sign."),
    "shift": (lambda g: g.roll(1, -1), "shifted", "by one along dimension 1"),
    "shift back": (lambda g: functional.pad(g[:, 1:], (0, 1)), "shifted", "by one back along dimension 1"),
}


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("bug", WHOLE)
def test_a_mistake_in_all_entries_is_named(bug, dtype):
    spoil, name, words = WHOLE[bug]

    ((found, message),) = named(layer_norm, spoil, dtype)

    assert found == name
    assert words in message


BLOCKS = {
    "last column": (lambda g: g[:, -1].zero_(), "is zero in the last 1 of 24 along dimension 1"),
    "last rows": (lambda g: g[-2:].zero_(), "is zero in the last 2 of 8 along dimension 0"),
    "a tile": (
        lambda g: g[:4, :8].zero_(),
        "is zero in the first 4 of 8 along dimension 0 and in the first 8 of 24 along dimension 1",
    ),
    "doubled tail": (lambda g: g[:, -6:].mul_(2), "about 2 times the right one in the last 6 of 24 along dimension 1"),
    "mixed up tail": (lambda g: g[:, -6:].copy_(g[:, -6:].flip(0)), "lies in the last 6 of 24 along dimension 1"),
}


@pytest.mark.parametrize("bug", BLOCKS)
def test_a_mistake_in_a_block_is_named_with_the_block(bug):
    change, words = BLOCKS[bug]

    ((_, message),) = named(softmax, edited(change), torch.bfloat16)

    assert words in message


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("seed", range(2))
def test_a_mistake_of_another_kind_is_not_taken_for_a_factor_or_a_shift(dtype, seed):
    near_misses = {
        "a term too many": lambda g: g + 0.5 * g.abs().mean(-1, keepdim=True),
        "a factor in every second column": edited(lambda g: g[:, ::2].mul_(2)),
        "shifted by two": lambda g: g.roll(2, -1),
        "reversed": lambda g: g.flip(-1),
    }
    for bug, spoil in near_misses.items():
        assert named(layer_norm, spoil, dtype, seed) == [], bug


@pytest.mark.parametrize("dtype", HALF)
def test_a_factor_in_most_rows_is_not_taken_for_one_in_all(dtype):
    ((name, message),) = named(layer_norm, edited(lambda g: g[:-1].mul_(2)), dtype)

    assert name == "factor"
    assert "about 2 times the right one in the first 7 of 8 along dimension 0" in message


def test_a_check_says_what_a_mistake_looks_like_that_segments_found():
    x = torch.randn(ROWS, COLUMNS, generator=torch.Generator().manual_seed(0)).bfloat16().requires_grad_()

    (finding,) = gradproof.check(refusing_double(softmax, edited(lambda g: g[:, -1].zero_())), x, seed=0).findings

    assert "lies within x[0, 23] to x[7, 23]" in finding.message
    assert [each.name for each in finding.diagnoses] == ["block"]
