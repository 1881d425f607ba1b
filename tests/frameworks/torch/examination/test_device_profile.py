"""What a passing check asks of a GPU, as torch's profiler sees it."""

from functools import partial

import pytest
import torch
from benchmarks.gpu import Setting, counted, elementwise, once, softmax

import gradproof

ON = Setting("cuda", 1.0)

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize("make", [elementwise(1 << 24), softmax], ids=["gelu", "softmax"])
def test_a_passing_check_launches_under_400_kernels_and_waits_under_20_times(make):
    function, inputs = make(ON)
    gradproof.check(function, inputs, contracts=())
    reports = []
    own, _ = counted(partial(once, function, inputs), ON)
    launches, waits = counted(lambda: reports.append(gradproof.check(function, inputs, contracts=())), ON)

    assert reports[-1].passed
    assert launches - own < 400
    assert waits < 20
