"""Cases on a Ray cluster, or on a local one."""

from __future__ import annotations

import os
import sys
from typing import Any

from gradproof.audit.case import Outcome, Result
from gradproof.audit.executors.remote import UnreachableError, run_remotely
from gradproof.audit.worker import Limits
from gradproof.errors import InputError

TICK = 0.5  # seconds after which `finished` returns, even if no case has ended
DEPTH = 8  # cases handed over for each processor: the time to hand over one hides behind the others
ATTEMPTS = 3  # of a case whose worker is lost


class RayCluster:
    """Hands cases to the cluster at `address`, or to a local one if that is empty."""

    def __init__(self, address: str, *, workers: int = 1, limits: Limits | None = None, lifetime: int = 200) -> None:
        self._ray = _ray()
        self._limits, self._lifetime = limits or Limits(), lifetime
        try:
            local: dict[str, Any] = {"num_cpus": workers, "include_dashboard": False} if not address else {}
            if not address:
                local["runtime_env"] = {"env_vars": {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}}
            self._ray.init(address=address or "local", log_to_driver=False, logging_level="error", **local)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise UnreachableError(
                f"The Ray cluster at {address} cannot be reached ({type(error).__name__}). Is it running, and does its "
                "address end with its port?"
            ) from None
        self._run = self._ray.remote(max_retries=ATTEMPTS - 1)(run_remotely)
        self._names: dict[Any, str] = {}

    @property
    def capacity(self) -> int:
        """Several cases for every processor of the cluster as it is now."""
        return DEPTH * max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def submit(self, name: str, pickled: bytes) -> None:
        """Send a case; Ray runs it again elsewhere if its worker is lost."""
        self._names[self._run.remote(name, pickled, self._limits, self._lifetime)] = name

    def running(self) -> list[str]:
        """Return the names of the cases that the cluster holds, the longest first."""
        return list(self._names.values())

    def finished(self) -> list[Result]:
        """Wait until a case ends, for half a second at the most, and return the results."""
        done, _ = self._ray.wait(list(self._names), timeout=TICK)
        if done:  # those that have ended as well meanwhile
            done, _ = self._ray.wait(list(self._names), num_returns=len(self._names), timeout=0)
        return [self._result(reference, self._names.pop(reference)) for reference in done]

    def close(self) -> None:
        """Cancel what runs, and leave the cluster; a local one is ended."""
        for reference in self._names:
            self._ray.cancel(reference, force=True)
        self._ray.shutdown()

    def _result(self, reference: Any, name: str) -> Result:
        try:
            result: Result = self._ray.get(reference)
        except (self._ray.exceptions.WorkerCrashedError, self._ray.exceptions.NodeDiedError):
            message = "The workers of the cluster that ran the case were lost, one after the other."
            return Result(name=name, outcome=Outcome.CRASH, reason="lost workers", message=message)
        return result


def _ray() -> Any:
    try:
        import ray
    except ModuleNotFoundError:
        raise InputError("Ray is not installed. Install it: pip install 'gradproof[ray]'") from None
    return ray
