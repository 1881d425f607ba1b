"""A Triton kernel in the interpreter, where Triton is installed: its verdicts are those of the same rule in torch."""

from __future__ import annotations

import os
import subprocess
import sys

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
