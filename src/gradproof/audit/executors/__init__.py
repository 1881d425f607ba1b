"""Where cases run: a protocol that the local processes and the engines of clusters share."""

from __future__ import annotations

from typing import Protocol

from gradproof.audit.case import Result


class Executor(Protocol):
    """Runs pickled cases elsewhere. The driver hands over at most `capacity` at a time, however many there are."""

    @property
    def capacity(self) -> int:
        """How many cases it holds at a time, those that wait for a worker included."""

    def submit(self, name: str, pickled: bytes) -> None:
        """Take a case."""

    def finished(self) -> list[Result]:
        """Wait until a case ends, and return the results of those that have; an empty list now and then."""

    def running(self) -> list[str]:
        """Return the names of the cases that run now, the longest first."""

    def close(self) -> None:
        """End all workers, with whatever they are at."""
