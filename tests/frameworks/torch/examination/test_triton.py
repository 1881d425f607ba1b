"""A Triton kernel in the interpreter, where Triton is installed: its verdicts are those of the same rule in torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SOFTMAX = """
import torch
from benchmarks import triton_kernels as kernels
kernels.ROWS = 2
for bug in ("right", "a masked tail"):
    name, kernel, shapes = next(kernels.kernels(*kernels.BUGS[bug]))
    print(name, bug, kernels.checked(kernel, shapes, torch.float32).verdict.value)
"""


def test_a_right_triton_kernel_passes_and_one_with_a_masked_tail_fails():
    pytest.importorskip("triton")

    run = subprocess.run(
        [sys.executable, "-c", SOFTMAX],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert run.stdout.splitlines() == ["softmax right pass", "softmax a masked tail fail"]


def test_the_example_of_a_triton_softmax_finds_its_tail():
    pytest.importorskip("triton")
    example = Path(__file__).parents[4] / "examples" / "kernels" / "triton_softmax.py"

    run = subprocess.run(
        [sys.executable, str(example)],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=True,
    )

    verdicts = [line.split()[0] for line in run.stdout.splitlines() if not line.startswith(" ")]
    assert verdicts == ["PASS", "FAIL", "FAIL", "PASS"]
    assert "right in the first 32 of" in run.stdout
