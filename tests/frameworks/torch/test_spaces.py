"""Spaces draw random vectors, whole or a slice at a time."""

import pytest
import torch

from gradproof.frameworks.torch.charts import Strided
from gradproof.frameworks.torch.spaces import BLOCK, Space


@pytest.mark.parametrize(
    "where", [slice(0, 7), slice(5, BLOCK), slice(BLOCK - 3, BLOCK + 3), slice(BLOCK, 2 * BLOCK + 9)]
)
def test_a_slice_of_a_long_random_vector_is_drawn_by_itself(where):
    tensor = torch.zeros(2 * BLOCK + 9, dtype=torch.float64)
    space = Space(["x"], [tensor], [Strided(tensor)])

    assert torch.equal(space.drawn(3, 0.5)[where], space.random(3, 0.5)[where])
