"""Cases on a Ray cluster, or on a local one."""

from __future__ import annotations

import os
import socket
import sys
from typing import Any

from gradproof.audit.case import Result
from gradproof.audit.executors.remote import Cluster, Task, UnreachableError, run_remotely
from gradproof.audit.worker import Limits
from gradproof.errors import InputError

REACHED = 20.0  # seconds in which a head has to answer
TICK = 0.5  # seconds after which `finished` returns, even if no case has ended
ATTEMPTS = 3  # of a case whose worker is lost


class RayCluster(Cluster):
    """Hands cases to the cluster at `address`, or to a local one if that is empty."""

    def __init__(self, address: str, *, workers: int = 1, limits: Limits | None = None, lifetime: int = 200) -> None:
        self._ray = _ray()
        super().__init__(limits, lifetime)
        _answers(address)
        try:
            local: dict[str, Any] = {"num_cpus": workers, "include_dashboard": False} if not address else {}
            if not address:
                local["runtime_env"] = {"env_vars": {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}}
            self._ray.init(address=address or "local", log_to_driver=False, logging_level="error", **local)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise UnreachableError(
                f"The Ray cluster at {address} cannot be reached ({type(error).__name__}). Is it running, does its "
                "address end with its port, and does this process have its token, if it asks for one?"
            ) from None
        self._run = self._ray.remote(max_retries=ATTEMPTS - 1)(run_remotely)

    def close(self) -> None:
        """Cancel what runs, and leave the cluster; a local one is ended."""
        for reference in self._handed:
            self._ray.cancel(reference, force=True)
        self._ray.shutdown()

    def _threads(self) -> int:
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def _start(self, batch: list[Task]) -> Any:
        return self._run.remote(batch, self._limits, self._lifetime)

    def _ended(self) -> list[Any]:
        done, _ = self._ray.wait(list(self._handed), timeout=TICK)
        if done:  # those that have ended as well meanwhile
            done, _ = self._ray.wait(list(self._handed), num_returns=len(self._handed), timeout=0)
        return list(done)

    def _outcome(self, handle: Any) -> list[Result] | None:
        try:
            results: list[Result] = self._ray.get(handle)
        except (self._ray.exceptions.WorkerCrashedError, self._ray.exceptions.NodeDiedError):
            return None
        return results


def _answers(address: str) -> None:
    """Refuse an address where nothing listens, for which Ray itself waits for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "//" in address:
        return
    try:
        socket.create_connection((host, int(port)), timeout=REACHED).close()
    except (OSError, OverflowError) as error:
        raise UnreachableError(
            f"Nothing listens at {address} ({error}). Is the head of the Ray cluster running there?"
        ) from None


def _ray() -> Any:
    try:
        import ray
    except ModuleNotFoundError:
        raise InputError("Ray is not installed. Install it: pip install 'gradproof[ray]'") from None
    return ray
