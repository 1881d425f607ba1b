"""An executor that runs cases in this process, one after the other: the driver and the journal without processes."""

from __future__ import annotations

import pickle

from gradproof.audit.case import Result
from gradproof.audit.running import run_case


class InThisProcess:
    """Holds `capacity` cases, and counts how many it has held at most."""

    def __init__(self, capacity: int = 2) -> None:
        self.capacity, self.waiting, self.most, self.ran = capacity, [], 0, []

    def submit(self, name: str, pickled: bytes) -> None:
        self.waiting.append(pickled)
        self.most = max(self.most, len(self.waiting))

    def finished(self) -> list[Result]:
        case = pickle.loads(self.waiting.pop(0))
        self.ran.append(case.name)
        return [run_case(case)]

    def running(self) -> list[str]:
        return []

    def close(self) -> None:
        self.waiting.clear()
