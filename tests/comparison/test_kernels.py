"""Kernels and their references: the cases of `python -m benchmarks.compare`, a few seeds of each."""

from __future__ import annotations

import pytest
import torch
from benchmarks.compare import DTYPES, Row, wrong
from benchmarks.compare_kernels import PAIRS, drawing

import gradproof

NAMES = [pair.name for pair in PAIRS]


@pytest.mark.parametrize("pair", PAIRS, ids=NAMES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_another_algorithm_for_the_same_function_is_equivalent(pair, dtype):
    for seed in range(2):
        torch.manual_seed(seed)
        report = gradproof.compare(pair.kernel, pair.reference, pair.inputs(drawing(dtype)), seed=seed)

        assert report.passed, report


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_nearly_every_entry_that_is_16_units_in_the_last_place_off_is_found(dtype):
    row = Row()
    for number, pair in enumerate(PAIRS[::2]):
        wrong(pair, dtype, 100 + number, row)

    assert row.cases > len(PAIRS) / 4
    assert row.said["gradproof"] >= row.cases - 1
