"""The NumPy subject for all tests of the engine; NumPy's warnings about infinities are kept quiet, as in torch."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode puts no folder of tests on the path by itself


@pytest.fixture(autouse=True, scope="module")
def silent_infinities():
    with np.errstate(all="ignore"):
        yield
