"""The Kubernetes driver against a real kube-apiserver with etcd: the suite of the fake."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubernetes_suite.cluster import Cluster
from kubernetes_suite.random_events import play
from kubernetes_suite.scenarios import SCENARIOS, Scenario
from real.kubernetes.control_plane import may_be_built, running_control_plane

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(3600),
    pytest.mark.xdist_group("kubernetes"),
    pytest.mark.skipif(bool(may_be_built()), reason=may_be_built()),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_control_plane(tmp_path_factory.mktemp("plane")) as plane:
        made = plane.cluster()
        yield made
        made.human.client.close()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.__name__)
def test_suite(cluster: Cluster, scenario: Scenario, tmp_path: Path) -> None:
    cluster.prefix = f"n{SCENARIOS.index(scenario)}"
    asyncio.run(scenario(cluster))


def test_random_events(cluster: Cluster) -> None:
    cluster.prefix = "r"
    asyncio.run(play(cluster, seed=7, events=400))
