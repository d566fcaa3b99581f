"""What goes wrong between the Kubernetes driver and its server: it is told, and tried again."""

import asyncio
import json
import ssl
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from everstep_controller.core.model.isolation import WantedIsolation
from everstep_controller.drivers.kubernetes.driver import KubernetesDriver
from everstep_controller.drivers.port import DriverError
from fakes.kubernetes.server import DRIVER_TOKEN, FakeApiServer, Fault
from fakes.kubernetes.site import fake_cluster
from kubernetes_suite.cluster import Cluster, free, ours, reads, until, wanted

TAINT = "everstep.io/isolated"
# What the test gives the driver, and the question whether it has it.
_ASKED = ("rbac.authorization.k8s.io", "authorization.k8s.io")


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[Cluster, FakeApiServer]]:
    made, fake = fake_cluster(tmp_path)
    yield made, fake
    made.human.client.close()
    fake.stop()


async def failure_of(driver: KubernetesDriver) -> str:
    """Return why a reading fails; empty where it does not."""
    try:
        await driver.read()
    except DriverError as error:
        return str(error)
    return ""


def pod(name: str, node: str, **more: object) -> dict[str, object]:
    metadata: dict[str, object] = {"name": name, "namespace": "default", "labels": {"app": name}}
    tolerations = more.pop("tolerations", [])
    metadata |= more
    return {
        "metadata": metadata,
        "spec": {"nodeName": node, "tolerations": tolerations},
        "status": {"phase": "Running"},
    }


def place(fake: FakeApiServer, *pods: dict[str, object]) -> None:
    for one in pods:
        fake.objects.create("pods", ("default", one["metadata"]["name"]), one)  # type: ignore[index]


def names(fake: FakeApiServer) -> set[str]:
    return {one["metadata"]["name"] for one in fake.objects.all("pods")}


def test_somebody_who_comes_between_loses_nothing(both: tuple[Cluster, FakeApiServer]) -> None:
    cluster, fake = both

    async def scenario() -> None:
        (one,) = cluster.make(1)
        async with cluster.driver([one]) as driver:
            await driver.read()

            def first() -> None:
                node = fake.objects.get("nodes", ("", one))
                node["spec"].setdefault("taints", []).append(
                    {"key": "site.example/soft", "effect": "PreferNoSchedule"}
                )
                fake.objects.replace("nodes", ("", one), node)

            fake.faults = [Fault("patch", "nodes", times=1, first=first)]
            assert (await driver.apply([wanted(one)])).now == {one: ours()}
            assert cluster.human.taints(one).keys() == {"site.example/soft", TAINT}

            # A human who withholds it in that very moment has it, and not we.
            await driver.apply([free(one)])
            fake.faults = [
                Fault("patch", "nodes", times=1, first=lambda: cluster.human.cordon(one))
            ]
            hold = (await driver.apply([wanted(one)])).now[one]
            assert hold is not None
            assert not hold.ours
            assert TAINT not in cluster.human.taints(one)

    asyncio.run(scenario())


def test_a_condition_of_before_is_waited_for(both: tuple[Cluster, FakeApiServer]) -> None:
    cluster, fake = both
    (one,) = cluster.make(1)
    come, said = threading.Event(), list[object]()

    def is_told() -> bool:
        condition = cluster.human.condition(one)
        return condition is not None and condition["status"] == "True"

    def first() -> None:
        """Hold the first word of a node that is not isolated, until it would be overtaken."""
        come.set()
        limit_s = time.monotonic() + 2
        while not is_told() and time.monotonic() < limit_s:
            time.sleep(0.02)
        said.append(is_told())

    fake.faults = [Fault("patch", "nodes/status", times=1, first=first)]

    async def scenario() -> None:
        async with cluster.driver([one]) as driver:
            await driver.read()
            await asyncio.to_thread(come.wait, 60)
            assert (await driver.apply([wanted(one)])).now == {one: ours()}
        assert said == [False]
        assert is_told()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        (Fault("patch", "nodes", code=500), "answers 500"),
        (Fault("patch", "nodes", code=429, retry_after_s=3), "answers 429"),
        (Fault("patch", "nodes", body=b"<html>\x1b[2J</html>"), "cannot be used"),
        # It was done, although its answer came by half.
        (Fault("patch", "nodes", times=2, half=True), ""),
        (Fault("get", "nodes", times=2, half=True), "cannot be reached"),
        (Fault("get", "nodes", body=b'{"metadata": {"name": 7}}'), "cannot be used"),
        (Fault("patch", "nodes/status", code=503), "answers 503"),
    ],
)
def test_a_bad_answer_is_a_failure_of_that_node_and_tried_again(
    both: tuple[Cluster, FakeApiServer], fault: Fault, sentence: str
) -> None:
    cluster, fake = both

    async def scenario() -> None:
        one, other = cluster.make(2)
        async with cluster.driver([one, other]) as driver:
            await driver.read()
            fake.faults = [fault]
            applied = await driver.apply([wanted(one)])
            assert sentence in applied.failures.get(one, "")
            assert bool(sentence) == bool(applied.failures)
            held = (await driver.apply([wanted(one), wanted(other)])).now
            # A heartbeat that waited as well may come after it, and is put right by the next one.
            assert {name: hold is not None and hold.ours for name, hold in held.items()} == {
                one: True,
                other: True,
            }

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        (Fault("list", "nodes", times=3, code=500), "answers 500"),
        (Fault("list", "nodes", times=3, body=b'{"items": 7}'), "cannot be used"),
        (Fault("list", "nodes", times=4, half=True), "cannot be reached"),
        (Fault("list", "nodes", times=3, code=410), ""),
        (Fault("watch", "nodes", times=3, body=b"rubbish\n"), ""),
    ],
)
def test_a_list_that_cannot_be_had_is_told_and_asked_for_again(
    both: tuple[Cluster, FakeApiServer], fault: Fault, sentence: str
) -> None:
    cluster, fake = both

    async def scenario() -> None:
        (one,) = cluster.make(1)
        fake.faults = [fault]
        async with cluster.driver([one]) as driver:
            assert sentence in await failure_of(driver)
            async with asyncio.timeout(60):
                while await failure_of(driver) or fault.times:  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.05)
            assert (await driver.read()).nodes.keys() == {one}

    asyncio.run(scenario())


def test_a_server_that_asks_for_patience_gets_it(both: tuple[Cluster, FakeApiServer]) -> None:
    cluster, fake = both

    async def scenario() -> None:
        (one,) = cluster.make(1)
        fake.faults = [Fault("list", "nodes", times=1, code=429, retry_after_s=2)]
        async with cluster.driver([one]) as driver:
            began = asyncio.get_running_loop().time()
            async with asyncio.timeout(60):
                while await failure_of(driver):  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.02)
            assert asyncio.get_running_loop().time() - began > 1.5
            assert [one.verb for one in fake.requests].count("list") == 2

    asyncio.run(scenario())


def test_a_token_that_was_replaced_is_read_again(
    both: tuple[Cluster, FakeApiServer], tmp_path: Path
) -> None:
    cluster, fake = both

    async def scenario() -> None:
        (one,) = cluster.make(1)
        async with cluster.driver([one]) as driver:
            await driver.read()
            user = fake.tokens.pop(DRIVER_TOKEN)
            applied = await driver.apply([wanted(one)])
            assert "does not accept the kubeconfig" in applied.failures[one]
            assert "(401)" in applied.failures[one]
            fake.tokens["another"] = user
            (tmp_path / "token").write_text("another")
            assert (await driver.apply([wanted(one)])).now == {one: ours()}

    asyncio.run(scenario())


def _context(authority: trustme.CA, until: datetime | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    kind = trustme.KeyType.ECDSA
    authority.issue_cert("127.0.0.1", key_type=kind, not_after=until).configure_cert(context)
    return context


def test_another_ca_and_an_expired_certificate_are_told_and_a_new_ca_is_read(
    both: tuple[Cluster, FakeApiServer], tmp_path: Path
) -> None:
    cluster, fake = both
    authority = trustme.CA(key_type=trustme.KeyType.ECDSA)

    async def scenario() -> None:
        (one,) = cluster.make(1)
        async with cluster.driver([one]) as driver:
            await driver.read()
            fake.stop()
            fake.start(_context(authority))
            said = (await driver.apply([wanted(one)])).failures[one]
            assert "is not accepted: unable to get local issuer" in said
            authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
            assert (await driver.apply([wanted(one)])).now == {one: ours()}
            fake.stop()
            fake.start(_context(authority, datetime.now(UTC) - timedelta(hours=1)))
            said = (await driver.apply([free(one)])).failures[one]
            assert "certificate has expired" in said
            assert "clocks" in said

    asyncio.run(scenario())


def test_pods_leave_as_their_budgets_allow_and_those_of_jobs_stay(
    both: tuple[Cluster, FakeApiServer],
) -> None:
    cluster, fake = both

    async def scenario() -> None:
        one, other = cluster.make(2)
        daemon = [{"kind": "DaemonSet", "controller": True}]
        place(
            fake,
            pod("plain", one),
            pod("elsewhere", other),
            pod("job", one, labels={"everstep.io/job": "llama"}),
            pod("daemon", one, ownerReferences=daemon),
            pod("mirror", one, annotations={"kubernetes.io/config.mirror": "x"}),
            pod("tolerant", one, tolerations=[{"key": TAINT, "operator": "Exists"}]),
            pod("budgeted", one),
        )
        budget = {
            "metadata": {"name": "b", "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": "budgeted"}}},
            "status": {"disruptionsAllowed": 0},
        }
        kind = "policy/poddisruptionbudgets"
        fake.objects.create(kind, ("default", "b"), budget)
        async with cluster.driver([one, other], pods="evict", eviction_deadline_s=0.1) as driver:
            await driver.read()
            assert names(fake) >= {"plain", "budgeted"}
            await driver.apply([wanted(one)])
            stay = {"elsewhere", "job", "daemon", "mirror", "tolerant"}
            await until(lambda: names(fake) == {*stay, "budgeted"})
            view = await driver.read()
            assert "default/budgeted" in view.nodes[one].work
            assert "default/elsewhere" not in view.nodes[one].work

            def said() -> str:
                return str((cluster.human.condition(one) or {}).get("message"))

            await until(lambda: "not evicted: default/budgeted" in said())
            budget["status"] = {"disruptionsAllowed": 1}
            had = fake.objects.get(kind, ("default", "b"))
            fake.objects.replace(kind, ("default", "b"), had | {"status": budget["status"]})
            await until(lambda: names(fake) == stay)
            await until(lambda: "not evicted" not in said())

    asyncio.run(scenario())


def test_a_dead_node_is_out_of_service_only_where_all_agree(
    both: tuple[Cluster, FakeApiServer],
) -> None:
    cluster, _ = both
    out = "node.kubernetes.io/out-of-service"

    def wish(node: str) -> WantedIsolation:
        return WantedIsolation(node, ("automation",), "automation: dead", "NodeDead", dead=True)

    async def scenario() -> None:
        dead, alive, late = cluster.make(3)
        cluster.human.report(dead, "Unknown", at="2020-01-01T00:00:00Z")
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        cluster.human.report(late, "Unknown", at=now)
        wishes = [wish(dead), wish(alive), wish(late)]
        async with cluster.driver([dead, alive, late]) as driver:
            await driver.read()
            await driver.apply(wishes)
            assert not any(out in cluster.human.taints(one) for one in (dead, alive, late))
            await driver.apply([free(one.node) for one in wishes])
        async with cluster.driver([dead, alive, late], out_of_service="dead") as driver:
            await driver.read()
            await driver.apply(wishes)
            assert cluster.human.taints(dead)[out] == "nodeshutdown:NoExecute"
            assert out not in {**cluster.human.taints(alive), **cluster.human.taints(late)}
            assert (await driver.read()).holds.keys() == {dead, alive, late}
            # It has waited long enough, and is marked at a reading.
            cluster.human.report(late, "Unknown", at="2020-01-01T00:00:00Z")
            await reads(driver, lambda _: out in cluster.human.taints(late))
            # It is heard again: it is not out of service, and still withheld.
            cluster.human.report(dead, "True")
            await reads(driver, lambda _: out not in cluster.human.taints(dead))
            assert TAINT in cluster.human.taints(dead)
            applied = await driver.apply([free(late)])
            assert applied.now == {late: None}
            assert cluster.human.taints(late) == {}

    asyncio.run(scenario())


def test_an_answer_that_does_not_come_ends_within_the_deadline(
    both: tuple[Cluster, FakeApiServer],
) -> None:
    cluster, fake = both

    async def scenario() -> None:
        one, other = cluster.make(2)
        async with cluster.driver([one, other], call_timeout_s=12.0) as driver:
            await driver.read()
            fake.faults = [Fault("patch", "nodes", times=1, hang_s=9.0)]
            applied = await driver.apply([wanted(one), wanted(other)])
            assert "does not answer in time" in "".join(applied.failures.values())
            assert len(applied.now) == 1

    asyncio.run(scenario())


def test_a_watch_that_ends_at_once_is_no_storm_and_told(
    both: tuple[Cluster, FakeApiServer],
) -> None:
    cluster, fake = both
    said = {"kind": "Status", "message": "etcd has no leader", "reason": "InternalError"}
    line = json.dumps({"type": "ERROR", "object": said | {"code": 500}}).encode() + b"\n"

    async def scenario() -> None:
        (one,) = cluster.make(1)
        fault = Fault("watch", "nodes", times=1000, body=line)
        fake.faults = [fault]
        async with cluster.driver([one]) as driver:
            async with asyncio.timeout(60):
                while not (told := await failure_of(driver)):  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.05)
            assert "watch nodes: the API server answers 500: etcd has no leader" in told
            assert 1000 - fault.times <= 4
            fault.times = 0
            cluster.human.cordon(one)
            async with asyncio.timeout(60):
                while await failure_of(driver):  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.05)
            await reads(driver, lambda view: one in view.holds)

    asyncio.run(scenario())


def test_a_node_that_refuses_its_condition_keeps_no_other_waiting(
    both: tuple[Cluster, FakeApiServer],
) -> None:
    cluster, fake = both

    async def scenario() -> None:
        names = cluster.make(4)
        fault = Fault("patch", "nodes/status", times=1000, name=names[0], code=422)
        broken = Fault("patch", "nodes/status", times=1000, name=names[1], code=500)
        fake.faults = [fault, broken]
        async with cluster.driver(names) as driver:
            await driver.read()
            for name in names[2:]:
                await until(lambda name=name: cluster.human.condition(name) is not None)  # type: ignore[misc]
            # Whatever is told of it, it is not asked again for a while.
            for index in range(5):
                cluster.human.patch(names[0], {"metadata": {"labels": {"x": str(index)}}})
                await reads(
                    driver,
                    lambda view, at=str(index): view.nodes[names[0]].labels.get("x") == at,  # type: ignore[misc]
                )
            assert 1000 - fault.times == 1
            assert (await driver.read()).nodes.keys() == set(names)

    asyncio.run(scenario())


def test_a_name_that_no_node_can_have_is_asked_of_nobody(
    both: tuple[Cluster, FakeApiServer],
) -> None:
    cluster, fake = both

    async def scenario() -> None:
        (one,) = cluster.make(1)
        nasty = [f"../nodes/{one}", f"{one}?x=y", f"{one}/status", "", "a b", "x" * 254]
        async with cluster.driver([one, *nasty]) as driver:
            await driver.read()
            fake.requests.clear()
            assert (await driver.apply([wanted(name) for name in nasty])).unmanaged == set(nasty)
            assert [call for call in fake.requests if call.verb in ("get", "patch")] == []

    asyncio.run(scenario())


def test_pods_that_are_there_still_when_a_node_is_freed_stay(
    both: tuple[Cluster, FakeApiServer],
) -> None:
    cluster, fake = both

    async def scenario() -> None:
        (one,) = cluster.make(1)
        place(fake, *(pod(f"p{index}", one) for index in range(5)))
        async with cluster.driver([one], pods="evict") as driver:
            await driver.read()
            fake.faults = [
                Fault(
                    "create",
                    "pods/eviction",
                    hang_s=1.0,
                    first=lambda: cluster.human.untaint(one, TAINT),
                )
            ]
            await driver.apply([wanted(one)])
            await until(lambda: len(names(fake)) == 4)
            await reads(driver, lambda view: one not in view.holds)
            asked = [call for call in fake.requests if call.right == "pods/eviction"]
            assert len(asked) == 1

    asyncio.run(scenario())


def test_the_manifest_is_what_the_driver_asks_for(both: tuple[Cluster, FakeApiServer]) -> None:
    cluster, fake = both

    async def scenario() -> None:
        (one,) = cluster.make(1)
        cluster.human.report(one, "Unknown")
        fake.requests.clear()
        async with cluster.driver([one], pods="evict") as driver:
            place(fake, pod("plain", one))
            await driver.read()
            await driver.apply([wanted(one)])
            await until(lambda: names(fake) == set())
        rights = {(right.verb, right.resource) for right in driver._policy.rights}
        used = {(call.verb, call.right) for call in fake.requests if call.group not in _ASKED}
        used -= {pair for pair in used if pair[1] == "serviceaccounts"}
        assert rights == used

    asyncio.run(scenario())
