"""Parametrizations that several test modules share."""

import pytest
import torch

from support.checks import BOTH

both_modes = pytest.mark.parametrize("mode", ["reverse", "forward"])
coverages = pytest.mark.parametrize("coverage", ["probe", "full"])
asked_both_ways = pytest.mark.parametrize("modes", [("forward",), BOTH], ids="+".join)
both_speeds = pytest.mark.parametrize("fast_mode", [True, False], ids=["fast", "full"])
double_and_single = pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])

# The first dual number of a process makes torch import what uses its own deprecated torch.jit.script.
making_duals = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
