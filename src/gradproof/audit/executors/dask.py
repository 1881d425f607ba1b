"""Cases on a Dask cluster, or on a local one."""

from __future__ import annotations

import math
import time
from typing import Any

from gradproof.audit.case import Result
from gradproof.audit.executors.remote import Cluster, Task, UnreachableError, run_remotely
from gradproof.audit.worker import Limits
from gradproof.errors import InputError

REACHED = 20.0  # seconds in which a scheduler has to answer
WORKERLESS = 60.0  # seconds that a cluster may be without any worker
TICK = 0.5  # seconds after which `finished` returns, even if no case has ended


class DaskCluster(Cluster):
    """Hands cases to the workers of a scheduler at `address`, or of a local cluster if that is empty."""

    def __init__(self, address: str, *, workers: int = 1, limits: Limits | None = None, lifetime: int = 200) -> None:
        distributed = _distributed()
        super().__init__(limits, lifetime)
        self._wait, self._timeout = distributed.wait, (TimeoutError, distributed.TimeoutError)
        self._killed = distributed.KilledWorker
        self._cluster: Any = None
        if not address:
            import dask

            dask.config.set({"distributed.worker.daemon": False})  # a worker starts processes of its own
            self._cluster = distributed.LocalCluster(
                n_workers=workers, threads_per_worker=1, dashboard_address=None, protocol="tcp"
            )
        try:
            self._client = distributed.Client(self._cluster or address, timeout=REACHED)
        except (OSError, ValueError, *self._timeout) as error:
            raise UnreachableError(
                f"The Dask scheduler at {address} cannot be reached in {REACHED:g} seconds ({type(error).__name__}). "
                "Is it running, and does its address begin with tcp:// and end with its port?"
            ) from None
        self._workerless_since: float | None = None
        self._count, self._counted = 0, -math.inf

    def close(self) -> None:
        """Cancel what runs, and leave the cluster; a local one is ended."""
        for future in self._handed:
            future.cancel()
        self._client.close()
        if self._cluster is not None:
            self._cluster.close()

    def _threads(self) -> int:
        now = time.monotonic()
        if now - self._counted > TICK:  # asking the scheduler takes as long as a small case
            self._count, self._counted = sum(self._client.nthreads().values()), now
        return max(1, self._count)

    def _start(self, batch: list[Task]) -> Any:
        key = f"{batch[0][0]}-{time.time_ns()}"
        return self._client.submit(run_remotely, batch, self._limits, self._lifetime, pure=False, retries=0, key=key)

    def _ended(self) -> list[Any]:
        try:
            return list(self._wait(list(self._handed), timeout=TICK, return_when="FIRST_COMPLETED").done)
        except self._timeout:
            self._check_workers()
            return []

    def _outcome(self, handle: Any) -> list[Result] | None:
        try:
            results: list[Result] = handle.result()
        except self._killed:
            return None
        return results

    def _check_workers(self) -> None:
        if self._client.nthreads():
            self._workerless_since = None
            return
        self._workerless_since = self._workerless_since or time.monotonic()
        if time.monotonic() - self._workerless_since > WORKERLESS:
            raise UnreachableError(
                f"The Dask cluster has had no workers for {WORKERLESS:g} seconds. The results up to here are kept; "
                "start workers, and go on with --resume."
            )


def _distributed() -> Any:
    try:
        import distributed
    except ModuleNotFoundError:
        raise InputError("Dask is not installed. Install it: pip install 'gradproof[dask]'") from None
    return distributed
