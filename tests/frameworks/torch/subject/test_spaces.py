"""Spaces draw random vectors: signs times magnitudes between one half and one."""

import pytest
import torch

from gradproof.frameworks.torch.charts import Strided
from gradproof.frameworks.torch.subject.spaces import BLOCK, PYTHON_ENTRIES, Space


def space_of(size):
    tensor = torch.zeros(size, dtype=torch.float64)
    return Space(["x"], [tensor], [Strided(tensor)])


@pytest.mark.parametrize("size", [1, PYTHON_ENTRIES, PYTHON_ENTRIES + 1, BLOCK, BLOCK + 1, 2 * BLOCK + 9])
def test_a_random_vector_has_magnitudes_between_one_half_and_one_times_its_size(size):
    vector = space_of(size).random(3, 0.5)

    assert vector.shape == (size,)
    assert vector.abs().min() >= 0.25 - 1e-12
    assert vector.abs().max() <= 0.5 + 1e-12


@pytest.mark.parametrize("size", [PYTHON_ENTRIES, BLOCK, 2 * BLOCK + 9])
def test_a_random_vector_has_both_signs_and_is_the_same_for_the_same_seed(size):
    space = space_of(size)
    vector = space.random(3)

    assert bool((vector > 0).any())
    assert bool((vector < 0).any())
    assert torch.equal(vector, space.random(3))
    assert not torch.equal(vector, space.random(4))
