"""The protocol of displays that show how far an examination is."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """A display of how far the examination is."""

    def __call__(self, done: int, of: int, /) -> None:
        """Show how much of a stage is done."""

    def enter(self, stage: str) -> None:
        """Show that a stage begins."""


class Silent:
    """Shows nothing."""

    def __call__(self, done: int, of: int, /) -> None:
        """Show nothing."""

    def enter(self, stage: str) -> None:
        """Show nothing."""
