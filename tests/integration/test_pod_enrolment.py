"""Pods that enrol, against the fake API server: the suite that a real one passes as well."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.kubernetes.server import FakeApiServer, Fault
from fakes.kubernetes.site import fake_cluster
from kubernetes_suite.cluster import Cluster
from kubernetes_suite.pods import POD_SCENARIOS, PodScenario, PodsWorld, pods_world


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[Cluster, FakeApiServer]]:
    made, fake = fake_cluster(tmp_path)
    yield made, fake
    made.human.client.close()
    fake.stop()


def _play(cluster: Cluster, folder: Path, scenario: PodScenario) -> None:
    async def play() -> None:
        async with pods_world(cluster, folder) as made:
            await scenario(made)

    asyncio.run(play())


@pytest.mark.parametrize("scenario", POD_SCENARIOS, ids=lambda one: one.__name__)
def test_suite(site: tuple[Cluster, FakeApiServer], scenario: PodScenario, tmp_path: Path) -> None:
    _play(site[0], tmp_path, scenario)


def test_before_1_30_the_node_is_that_of_the_pod(
    site: tuple[Cluster, FakeApiServer], tmp_path: Path
) -> None:
    cluster, fake = site
    fake.pod_tokens.tells_nodes = False

    async def scenario(made: PodsWorld) -> None:
        token, _ = made.pod("agent-1", "gpu-1")
        assert await made.enrol(made.agent("gpu-1"), token) == ""
        assert "pods" in [one.resource for one in fake.requests]
        # Gone between the two questions.
        token, _ = made.pod("agent-2", "gpu-2")
        fake.faults.append(
            Fault("get", "pods", first=lambda: made.cluster.human.delete_pod("everstep", "agent-2"))
        )
        said = await made.enrol(made.agent("gpu-2"), token)
        assert "the pod everstep/agent-2 of this token is gone" in said

    _play(cluster, tmp_path, scenario)


def test_an_expired_token_and_a_server_that_is_away_are_told(
    site: tuple[Cluster, FakeApiServer], tmp_path: Path
) -> None:
    cluster, fake = site

    async def scenario(made: PodsWorld) -> None:
        token, _ = made.pod("agent-1", "gpu-1")
        fake.pod_tokens.made[token].expired = True
        said = await made.enrol(made.agent("gpu-1"), token)
        assert "service account token has expired" in said
        fake.faults.append(Fault("create", "tokenreviews", code=500))
        said = await made.enrol(made.agent("gpu-2"), token)
        assert said.startswith("the controller cannot ask Kubernetes: create tokenreviews: ")

    _play(cluster, tmp_path, scenario)
