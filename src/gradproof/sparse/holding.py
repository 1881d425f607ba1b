"""Modules that hold a pattern in buffers: it moves with the module, and is saved and loaded with it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor, nn

from gradproof.errors import InputError
from gradproof.sparse.pattern import Pattern


class Holding(nn.Module):
    """A module whose buffers say where entries are. Subclasses say which buffers, and what pattern they make."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: tuple[Any, ...] = ()
        self._known: Pattern | None = None
        self._for_the_compiler: Pattern | None = None
        self.register_load_state_dict_post_hook(_look_after_loading)  # type: ignore[no-untyped-call]  # torch's own

    @abstractmethod
    def _indices(self) -> tuple[Tensor, ...]:
        """The buffers."""

    @abstractmethod
    def _made(self) -> Pattern:
        """The pattern that they make."""

    @property
    def pattern(self) -> Pattern:
        """Where the entries are; looked at again when the buffers were moved, loaded or written to.

        The compiler, which cannot ask where memory is, takes the pattern as it was after the buffers were last moved or
        loaded.
        """
        if torch.compiler.is_compiling() and self._for_the_compiler is not None:
            return self._for_the_compiler
        self._look()
        assert self._known is not None
        return self._known

    def _look(self) -> None:
        now = tuple((buffer.data_ptr(), buffer._version, buffer.device) for buffer in self._indices())
        if self._known is None or now != self._seen:
            self._known = None
            self._known = self._made()
            self._seen = now

    def _look_ahead(self) -> None:
        """Make what a compiled product reads, since the compiler cannot; what is wrong is told at the first use."""
        self._for_the_compiler = None
        if any(buffer.is_meta for buffer in self._indices()):
            self._known = None
            return
        try:
            self._look()
        except InputError:
            return
        assert self._known is not None
        _ = self._known.by_rows, self._known.by_columns
        self._for_the_compiler = self._known

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]  # torch's own
        self._look_ahead()
        return self


def _look_after_loading(module: nn.Module, keys: Any) -> None:
    assert isinstance(module, Holding)
    module._look_ahead()
