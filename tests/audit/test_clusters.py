"""Cases on real clusters of this machine, where Dask or Ray is installed, and what is said where they are not."""

from __future__ import annotations

import pickle
import sys

import pytest

from gradproof.audit import Outcome
from gradproof.audit.executors.dask import DaskCluster
from gradproof.audit.executors.ray import RayCluster
from gradproof.audit.executors.remote import UnreachableError
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
    assert cluster.capacity == 16


@pytest.mark.parametrize(("package", "kind"), CLUSTERS.items())
def test_an_engine_that_is_not_installed_is_named(package, kind, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)

    with pytest.raises(InputError, match="pip install 'gradproof"):
        kind("")


def test_a_dask_scheduler_that_is_not_there_is_reported(monkeypatch):
    pytest.importorskip("distributed", reason="distributed is an optional extra, which is not installed")
    monkeypatch.setattr("gradproof.audit.executors.dask.REACHED", 0.5)

    with pytest.raises(UnreachableError, match=r"tcp://127.0.0.1:1 cannot be reached"):
        DaskCluster("tcp://127.0.0.1:1")
