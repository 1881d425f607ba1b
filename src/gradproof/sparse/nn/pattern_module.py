"""A module with a pattern in its buffers, which is moved, saved and loaded with the module."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

import torch
from torch import Tensor, nn

from gradproof.errors import InputError
from gradproof.sparse.pattern import Pattern


class PatternModule(nn.Module):
    """A module with index tensors among its buffers. Subclasses name them, and build a pattern from them."""

    def __init__(self) -> None:
        super().__init__()
        self._versions: tuple[Any, ...] = ()
        self._cached: Pattern | None = None
        self._for_compiler: Pattern | None = None
        self.register_load_state_dict_post_hook(_prepare_after_loading)  # type: ignore[no-untyped-call]  # torch's own

    @abstractmethod
    def _indices(self) -> tuple[Tensor, ...]:
        """Return the buffers that hold indices."""

    @abstractmethod
    def _build_pattern(self) -> Pattern:
        """Build the pattern from the buffers."""

    @property
    def pattern(self) -> Pattern:
        """The pattern, built again whenever the buffers were moved, loaded or written to.

        `torch.compile` cannot compare versions of memory. It takes the pattern as it was when the buffers were last
        moved or loaded.
        """
        if torch.compiler.is_compiling() and self._for_compiler is not None:
            return self._for_compiler
        now = tuple((buffer.data_ptr(), buffer._version, buffer.device) for buffer in self._indices())
        if self._cached is None or now != self._versions:
            self._cached = None  # building may raise
            self._cached = self._build_pattern()
            self._versions = now
        return self._cached

    def prepare(self) -> None:
        """Compute what a compiled product reads. Wrong indices raise later, when the pattern is first used."""
        self._cached = self._for_compiler = None
        if not any(buffer.is_meta for buffer in self._indices()):
            with suppress(InputError):
                _ = self.pattern.by_rows, self.pattern.by_columns
                self._for_compiler = self.pattern

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]  # torch's own
        self.prepare()
        return self


def _prepare_after_loading(module: nn.Module, _keys: Any) -> None:
    assert isinstance(module, PatternModule)
    module.prepare()


def require_differentiable(dtype: torch.dtype | None) -> None:
    """Raise unless parameters of this dtype can be trained; None is torch's default."""
    if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
        raise InputError(f"dtype={dtype}: parameters have gradients, so pass a floating-point or complex dtype.")
