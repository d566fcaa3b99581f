"""The Kubernetes driver against the fake API server: the suite that a real one passes as well."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.kubernetes.site import fake_cluster
from kubernetes_suite.cluster import Cluster
from kubernetes_suite.random_events import play
from kubernetes_suite.scenarios import SCENARIOS, Scenario


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made, fake = fake_cluster(tmp_path)
    yield made
    made.human.client.close()
    fake.stop()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.__name__)
def test_suite(cluster: Cluster, scenario: Scenario) -> None:
    asyncio.run(scenario(cluster))


@pytest.mark.parametrize("seed", [1, 2])
def test_random_events(cluster: Cluster, seed: int) -> None:
    asyncio.run(play(cluster, seed, events=80))


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(10, 15))
def test_many_random_events(cluster: Cluster, seed: int) -> None:
    asyncio.run(play(cluster, seed, events=400))
