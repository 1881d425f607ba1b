"""Import torch's test databases, with an error message that names a package they need and that is not installed."""

from __future__ import annotations

import importlib
import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from unittest import mock

from gradproof.errors import InputError

SEED = 0  # of the samples: the same in every process, since a case names its sample by a number


def database(name: str) -> ModuleType:
    """Import a module of `torch.testing._internal`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of deprecated names that the databases import
            return importlib.import_module(f"torch.testing._internal.{name}")
    except ModuleNotFoundError as error:
        raise InputError(f"torch's test database needs the package {error.name!r}: pip install {error.name}") from None


@contextmanager
def sampling() -> Iterator[None]:
    """Seed what draws samples, and skip the stack traces that torch records for each, which take most of the time."""
    import torch

    torch.manual_seed(SEED)
    random.seed(SEED)
    with (
        mock.patch("inspect.stack", return_value=[]),
        mock.patch("traceback.format_stack", return_value=[]),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # of samples that use deprecated calls
        yield
