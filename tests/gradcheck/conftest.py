"""What tests of the drop-ins need of a process."""

import warnings

import pytest
import torch

from support.points import positive


@pytest.fixture(scope="session")
def forward_mode_is_loaded():
    """Torch warns of itself when forward mode is first used."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.autograd.gradcheck(torch.sin, positive(1), check_forward_ad=True)
