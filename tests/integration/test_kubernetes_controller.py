"""A real controller with the Kubernetes driver: claims in both directions, and over a restart."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from everstep_controller import main
from everstep_controller.drivers.drivers import DriversConfig
from everstep_controller.drivers.kubernetes.config import KubernetesDriverConfig
from everstep_proto.generated import admin_pb2, admin_pb2_grpc
from fakes.agent_stream import agent_stream
from fakes.controllers import controller, start_controller
from fakes.kubernetes.server import FakeApiServer
from fakes.kubernetes.site import fake_cluster
from fakes.local_secret import admin_channel
from fakes.waits import wait_until
from kubernetes_suite.cluster import Cluster, until

TAINT = "everstep.io/isolated"


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[Cluster, FakeApiServer]]:
    made, fake = fake_cluster(tmp_path)
    yield made, fake
    made.human.client.close()
    fake.stop()


def changes(fake: FakeApiServer) -> int:
    """Return how often the driver has changed a node itself."""
    return sum(one.verb == "patch" and one.right == "nodes" for one in fake.requests)


async def until_it(holds: Callable[[], bool]) -> None:
    """Wait until something holds of a controller on this loop."""
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.05)


def test_claims_reach_the_cluster_and_what_people_keep_out_there_is_a_claim(
    both: tuple[Cluster, FakeApiServer], tmp_path: Path
) -> None:
    cluster, fake = both
    human, (one,) = cluster.human, cluster.make(1)
    part = KubernetesDriverConfig(access=str(cluster.kubeconfig))
    drivers = DriversConfig(read_interval_s=0.2, kubernetes=part)
    cluster.allow(part)

    async def scenario() -> None:
        async with controller(tmp_path, drivers=drivers) as running:
            channel = admin_channel(running.port)
            admin = admin_pb2_grpc.AdminStub(channel)

            def owners() -> list[str]:
                claims = running.runtime.state.nodes[one].isolation.claims
                return [f"{claim.owner}: {claim.reason}" for claim in claims]

            async with agent_stream(running.port, one) as agent:
                await agent.healthy()
                await until(lambda: (human.condition(one) or {}).get("status") == "False")
                request = admin_pb2.IsolateRequest(node=one, reason="fan", operator="ann")
                await admin.Isolate(request)
                await until(lambda: human.taints(one).get(TAINT) == "operator:NoSchedule")
                await until(lambda: (human.condition(one) or {}).get("status") == "True")
                condition = human.condition(one)
                assert condition is not None
                assert condition["message"] == f"operator: ann: fan; everstep why {one}"
                await admin.Release(admin_pb2.ReleaseRequest(node=one, operator="ann"))
                await until(lambda: TAINT not in human.taints(one))

                human.cordon(one)
                await until_it(lambda: owners() == ["scheduler: kubernetes: cordoned"])
                human.cordon(one, on=False)
                await until_it(lambda: owners() == [])
                await admin.Isolate(request)
                await until(lambda: TAINT in human.taints(one))
                record = running.runtime.state.drivers["kubernetes"]
                await until_it(lambda: record.nodes[one].applied is not None)
            await channel.close()

        count = changes(fake)
        async with controller(tmp_path, drivers=drivers) as running:
            record = running.runtime.state.drivers["kubernetes"]
            await until_it(lambda: record.read)
            assert record.nodes[one].hold is not None
        assert changes(fake) == count
        asked = len(fake.requests)
        human.cordon(one)
        assert [call.verb for call in fake.requests[asked:]] == ["patch"]

    asyncio.run(scenario())


def test_a_request_is_no_line_of_the_log(
    both: tuple[Cluster, FakeApiServer], tmp_path: Path
) -> None:
    cluster, fake = both
    part = KubernetesDriverConfig(access=str(cluster.kubeconfig))
    cluster.allow(part)
    tables = f'[drivers.kubernetes]\naccess = "{cluster.kubeconfig}"\n'
    with start_controller(tmp_path, tables=tables) as running:
        wait_until(lambda: any(one.verb == "watch" for one in fake.requests), 60.0)
        running.process.terminate()
        assert running.process.stderr is not None
        assert "HTTP Request" not in running.process.stderr.read()


def test_the_roles_are_printed_for_what_is_configured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "controller.toml"
    file.write_text('[drivers.kubernetes]\naccess = "in-cluster"\npods = "evict"\n')
    assert main.main(["kubernetes", "rbac", "--namespace", "ops", "--config", str(file)]) == 0
    documents = list(yaml.safe_load_all(capsys.readouterr().out))
    assert [one["kind"] for one in documents] == [
        *("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
    ]
    assert documents[0]["metadata"]["namespace"] == "ops"
    rules = {tuple(rule["resources"]): rule["verbs"] for rule in documents[1]["rules"]}
    assert rules == {
        ("nodes",): ["get", "list", "watch", "patch"],
        ("nodes/status",): ["patch"],
        ("pods",): ["list"],
        ("pods/eviction",): ["create"],
    }
    file.write_text('[drivers.kubernetes]\naccess = "kubeconfig"\npods = "none"\n')
    assert main.main(["kubernetes", "rbac", "--config", str(file)]) == 78
    said = capsys.readouterr().err
    assert "access: expected" in said
    assert "pods: expected" in said
