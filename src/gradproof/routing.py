"""Route `torch.autograd.gradcheck` and `gradgradcheck` to gradproof's, for a suite that exists already.

One line in the conftest.py at the root of the tests does it: `pytest_plugins = ["gradproof.routing"]`. Outside of
pytest, `routed()` does it for a while.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING
from unittest.mock import patch

if TYPE_CHECKING:
    import pytest

NAMES = ("gradcheck", "gradgradcheck")


@contextmanager
def routed() -> Iterator[None]:
    """Within this, torch's checks are gradproof's.

    >>> import torch
    >>> with routed():
    ...     torch.autograd.gradcheck.__module__
    'gradproof.frameworks.torch.gradcheck'
    >>> torch.autograd.gradcheck.__module__
    'torch.autograd.gradcheck'
    """
    import torch

    import gradproof

    module = importlib.import_module("torch.autograd.gradcheck")  # a name that the function of that name hides
    with ExitStack() as stack:
        for name in NAMES:
            for place in (module, torch.autograd):
                stack.enter_context(patch.object(place, name, getattr(gradproof, name)))
        yield


def pytest_configure(config: pytest.Config) -> None:
    """From here on, until the run ends."""
    route = ExitStack()
    route.enter_context(routed())
    config.add_cleanup(route.close)
