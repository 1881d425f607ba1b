"""Cases on real clusters of this machine, where Dask or Ray is installed, and what is said where they are not."""

from __future__ import annotations

import pickle
import sys

import pytest

from gradproof.audit import Outcome, Result
from gradproof.audit.executors.dask import DaskCluster
from gradproof.audit.executors.ray import RayCluster
from gradproof.audit.executors.remote import Cluster, UnreachableError, run_remotely
from gradproof.audit.worker import Limits
from gradproof.errors import InputError
from support import audit_cases
from support.audit_cases import case

CLUSTERS = {"distributed": DaskCluster, "ray": RayCluster}


@pytest.fixture(params=list(CLUSTERS))
def cluster(request):
    pytest.importorskip(request.param, reason=f"{request.param} is an optional extra, which is not installed")
    made = CLUSTERS[request.param]("", workers=2, limits=Limits(seconds=60))
    yield made
    made.close()


@pytest.mark.filterwarnings("default")  # of the engine's own
def test_a_cluster_runs_cases_that_may_die(cluster):
    cases = [case(audit_cases.crash), *(case(audit_cases.right, name=str(number)) for number in range(5))]
    for each in cases:
        cluster.submit(each.name, pickle.dumps(each))
    found = {}
    while len(found) < len(cases):
        found |= {result.name: result.outcome for result in cluster.finished()}

    assert found.pop("crash") is Outcome.CRASH
    assert set(found.values()) == {Outcome.PASS}
    assert cluster.capacity == 128


class TwoThreads(Cluster):
    """A cluster in name, whose workers are lost whenever they meet one of some cases, and which begins `at_most`."""

    def __init__(self, *fatal, at_most=100):
        super().__init__(None, 1)
        self.fatal, self.at_most, self.batches = fatal, at_most, []

    def _threads(self):
        return 2

    def _start(self, batch):
        self.batches.append([name for name, _ in batch])
        return len(self.batches) - 1

    def _ended(self):
        return list(self._handed)

    def _outcome(self, handle):
        names = self.batches[handle]
        if set(names) & set(self.fatal):
            return None
        return [Result(name=name, outcome=Outcome.PASS) for name in names[: self.at_most]]

    def close(self):
        self._handed.clear()


def outcomes(cluster, count):
    for number in range(count):
        cluster.submit(str(number), b"")
    found = []
    while len(found) < count:
        found += cluster.finished()
    assert cluster.finished() == []
    assert len({result.name for result in found}) == count
    return {result.name: result.outcome for result in found}


def test_many_cases_go_to_a_cluster_in_batches_and_few_to_every_thread():
    many, few = TwoThreads(), TwoThreads()
    outcomes(many, many.capacity)
    outcomes(few, 4)

    assert max(map(len, many.batches)) == 32
    assert len(many.batches) <= many.capacity / 4
    assert max(map(len, few.batches)) == 1


def test_a_case_that_a_batch_had_no_time_for_is_handed_over_again():
    assert set(outcomes(TwoThreads(at_most=1), 20).values()) == {Outcome.PASS}


def test_a_batch_ends_early_where_its_cases_are_slow():
    slow = [case(audit_cases.slow, 0.5, name=f"{number}") for number in range(4)]
    results = run_remotely([(each.name, pickle.dumps(each)) for each in slow], Limits(seconds=60), 200)

    assert [(result.name, result.outcome) for result in results] == [("0", Outcome.PASS)]


def test_a_case_that_takes_workers_with_it_is_found_among_its_batch():
    found = outcomes(TwoThreads("7", "11"), 20)

    assert {name for name, outcome in found.items() if outcome is Outcome.CRASH} == {"7", "11"}
    assert set(found.values()) == {Outcome.CRASH, Outcome.PASS}


@pytest.mark.parametrize(("package", "kind"), CLUSTERS.items())
def test_an_engine_that_is_not_installed_is_named(package, kind, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)

    with pytest.raises(InputError, match="pip install 'gradproof"):
        kind("")


def test_a_ray_head_that_is_not_there_is_reported():
    pytest.importorskip("ray", reason="ray is an optional extra, which is not installed")

    with pytest.raises(UnreachableError, match=r"Nothing listens at 127.0.0.1:1 "):
        RayCluster("127.0.0.1:1")


def test_a_dask_scheduler_that_is_not_there_is_reported(monkeypatch):
    pytest.importorskip("distributed", reason="distributed is an optional extra, which is not installed")
    monkeypatch.setattr("gradproof.audit.executors.dask.REACHED", 0.5)

    with pytest.raises(UnreachableError, match=r"tcp://127.0.0.1:1 cannot be reached"):
        DaskCluster("tcp://127.0.0.1:1")
