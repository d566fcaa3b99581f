"""The Kubernetes driver against a real kube-apiserver with etcd: the suite of the fake."""

import asyncio
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kubernetes_suite.cluster import Cluster, ours, reads, until, wanted
from kubernetes_suite.random_events import play
from kubernetes_suite.scenarios import SCENARIOS, Scenario
from real.kubernetes.control_plane import may_be_built, running_control_plane

_UNREACHABLE = "node.kubernetes.io/unreachable"

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


def test_a_node_that_the_clusters_own_controller_finds_silent(tmp_path: Path) -> None:
    with running_control_plane(tmp_path) as plane:
        made = plane.cluster()
        plane.start_controllers(grace_s=6)
        asyncio.run(_lose_and_find(made))
        made.human.client.close()


async def _lose_and_find(cluster: Cluster) -> None:
    human, (heard, silent) = cluster.human, cluster.make(2)
    renewed = {heard, silent}

    async def renew() -> None:
        while True:
            at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            for name in sorted(renewed):
                await asyncio.to_thread(human.renew, name, at)
            await asyncio.sleep(1)

    renewing = asyncio.create_task(renew())
    async with cluster.driver([heard, silent]) as driver:
        assert (await driver.read()).down == {}
        renewed.remove(silent)
        view = await reads(driver, lambda view: bool(view.down))
        assert view.down.keys() == {silent}
        seconds = int(re.search(r"last heard (\d+) s ago", view.down[silent])[1])  # type: ignore[index]
        assert 6 <= seconds < 60
        await until(lambda: _UNREACHABLE in human.taints(silent))
        # It is evidence, and nobody's hold; ours comes beside it, and stays when it is heard again.
        assert (await driver.read()).holds == {}
        assert (await driver.apply([wanted(silent)])).now == {silent: ours()}
        assert human.taints(silent).keys() == {_UNREACHABLE, "everstep.io/isolated"}
        renewed.add(silent)
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        await asyncio.to_thread(human.report, silent, "True", now)
        await reads(driver, lambda view: not view.down)
        await until(lambda: human.taints(silent).keys() == {"everstep.io/isolated"})
        assert (await driver.read()).holds == {silent: ours()}
    renewing.cancel()
