"""NumPy's warnings about infinities are kept quiet in all tests of the engine, as in torch."""

import numpy as np
import pytest

from support.engine import explained

__all__ = ["explained"]


@pytest.fixture(autouse=True, scope="module")
def silent_infinities():
    with np.errstate(all="ignore"):
        yield
