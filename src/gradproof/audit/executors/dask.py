"""Cases on a Dask cluster, or on a local one."""

from __future__ import annotations

import time
from typing import Any

from gradproof.audit.case import Outcome, Result
from gradproof.audit.executors.remote import UnreachableError, run_remotely
from gradproof.audit.worker import Limits
from gradproof.errors import InputError

REACHED = 20.0  # seconds in which a scheduler has to answer
WORKERLESS = 60.0  # seconds that a cluster may be without any worker
TICK = 0.5  # seconds after which `finished` returns, even if no case has ended
DEPTH = 8  # cases handed over for each thread: the time to hand over one hides behind the others


class DaskCluster:
    """Hands cases to the workers of a scheduler at `address`, or of a local cluster if that is empty."""

    def __init__(self, address: str, *, workers: int = 1, limits: Limits | None = None, lifetime: int = 200) -> None:
        distributed = _distributed()
        self._limits, self._lifetime = limits or Limits(), lifetime
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
        self._futures: dict[Any, str] = {}
        self._alone_since: float | None = None

    @property
    def capacity(self) -> int:
        """Several cases for every thread of the cluster as it is now, since workers come and go."""
        return DEPTH * max(1, int(sum(self._client.nthreads().values())))

    def submit(self, name: str, pickled: bytes) -> None:
        """Send a case; Dask runs it again elsewhere if its worker is lost."""
        future = self._client.submit(
            run_remotely,
            name,
            pickled,
            self._limits,
            self._lifetime,
            pure=False,
            retries=0,
            key=f"{name}-{time.time_ns()}",
        )
        self._futures[future] = name

    def running(self) -> list[str]:
        """Return the names of the cases that the cluster holds, the longest first."""
        return list(self._futures.values())

    def finished(self) -> list[Result]:
        """Wait until a case ends, for half a second at the most, and return the results."""
        try:
            done = self._wait(list(self._futures), timeout=TICK, return_when="FIRST_COMPLETED").done
        except self._timeout:
            self._check_workers()
            return []
        return [self._result(future, self._futures.pop(future)) for future in done]

    def close(self) -> None:
        """Cancel what runs, and leave the cluster; a local one is ended."""
        for future in self._futures:
            future.cancel()
        self._client.close()
        if self._cluster is not None:
            self._cluster.close()

    def _result(self, future: Any, name: str) -> Result:
        try:
            result: Result = future.result()
        except self._killed:
            message = "The workers of the cluster that ran the case were lost, one after the other."
            return Result(name=name, outcome=Outcome.CRASH, reason="lost workers", message=message)
        return result

    def _check_workers(self) -> None:
        if self._client.nthreads():
            self._alone_since = None
            return
        self._alone_since = self._alone_since or time.monotonic()
        if time.monotonic() - self._alone_since > WORKERLESS:
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
