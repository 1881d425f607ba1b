"""One thread, since the matrices are small, and the same random numbers for every test."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def the_same_numbers_every_time():
    torch.manual_seed(0)
