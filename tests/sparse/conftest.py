"""Matrices of every layout, for all tests of sparse tensors; one thread, since they are small."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode puts no folder of tests on the path by itself


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def the_same_numbers_every_time():
    torch.manual_seed(0)
