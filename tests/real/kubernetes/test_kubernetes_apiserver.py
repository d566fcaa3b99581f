"""The Kubernetes driver against a real kube-apiserver with etcd: the suite of the fake."""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from kubernetes_suite.cluster import Cluster
from kubernetes_suite.pods import POD_SCENARIOS, PodScenario, pods_world
from kubernetes_suite.random_events import play
from kubernetes_suite.scenarios import SCENARIOS, Scenario
from real.kubernetes.control_plane import may_be_built, running_control_plane
from real.kubernetes.rendering import rendered

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


@pytest.mark.parametrize("scenario", POD_SCENARIOS, ids=lambda one: one.__name__)
def test_pods_enrol(cluster: Cluster, scenario: PodScenario, tmp_path: Path) -> None:
    cluster.prefix = f"p{POD_SCENARIOS.index(scenario)}"

    async def enrol() -> None:
        async with pods_world(cluster, tmp_path) as made:
            await scenario(made)

    asyncio.run(enrol())


# Kubernetes 1.20 does not serve them: the first came with 1.21, the others are the operator's.
_NOT_SERVED = {"policy/v1", "monitoring.coreos.com/v1"}
_APPLY = "application/apply-patch+yaml"


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="not installed: kubectl")
def test_what_is_rendered_is_applied_by_the_server(cluster: Cluster, tmp_path: Path) -> None:
    """The server knows each field: a server-side apply refuses one that is not in its schema."""
    left_out: set[str] = set()
    paths = _paths(cluster)
    # Namespaces first, as kubectl does.
    objects = [one for one in yaml.safe_load_all(rendered("example", tmp_path)) if one]
    for one in sorted(objects, key=lambda one: one["kind"] != "Namespace"):
        place = paths.get((one["apiVersion"], one["kind"]))
        if place is None:
            left_out.add(one["apiVersion"])
            continue
        path = place.format(namespace=one["metadata"].get("namespace", ""))
        path += f"/{one['metadata']['name']}?fieldManager=kubectl&force=true"
        applied = cluster.human.call("PATCH", path, one, _APPLY)
        assert applied["metadata"]["uid"]
    assert left_out == _NOT_SERVED


def _paths(cluster: Cluster) -> dict[tuple[str, str], str]:
    """Return where objects of each kind are, as the server tells."""
    groups = cluster.human.call("GET", "/apis")["groups"]
    versions = ["v1", *(one["groupVersion"] for group in groups for one in group["versions"])]
    found: dict[tuple[str, str], str] = {}
    for version in versions:
        top = "/api/v1" if version == "v1" else f"/apis/{version}"
        for one in cluster.human.call("GET", top)["resources"]:
            if "/" not in one["name"]:
                inside = "/namespaces/{namespace}" if one["namespaced"] else ""
                found[version, one["kind"]] = f"{top}{inside}/{one['name']}"
    return found
