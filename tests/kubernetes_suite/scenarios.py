"""Scenarios of the driver: whose hold is whose, what is written, what others do meanwhile."""

import asyncio
import random
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace

import pytest

from everstep_controller.core.model.isolation import WantedIsolation
from everstep_controller.drivers.kubernetes.api_server import ApiError
from everstep_controller.drivers.kubernetes.conditions import WantedCondition, condition_call
from everstep_controller.drivers.kubernetes.config import KubernetesDriverConfig
from everstep_controller.drivers.kubernetes.driver import KubernetesDriver
from everstep_controller.drivers.kubernetes.marks import Told, plain
from everstep_controller.drivers.port import DriverError, DriverView
from kubernetes_suite.cluster import Cluster, free, ours, reads, until, wanted
from kubernetes_suite.hostile import hostile_text

Scenario = Callable[[Cluster], Coroutine[None, None, None]]
TAINT = "everstep.io/isolated"


async def a_claim_is_a_taint_and_a_condition_and_goes_with_it(cluster: Cluster) -> None:
    human, (one, other) = cluster.human, cluster.make(2)
    human.taint(one, "nvidia.com/gpu", "present")
    human.taint(one, "site.example/soft", effect="PreferNoSchedule")
    async with cluster.driver([one, other]) as driver:
        assert (await driver.read()).holds == {}
        assert (await driver.apply([wanted(one)])).now == {one: ours()}
        assert human.taints(one) == {
            "nvidia.com/gpu": "present:NoSchedule",
            "site.example/soft": ":PreferNoSchedule",
            TAINT: "automation:NoSchedule",
        }
        condition = human.condition(one)
        assert condition is not None
        assert condition["status"] == "True"
        assert condition["reason"] == "XidFatal"
        assert condition["message"] == f"automation: Xid 79; everstep why {one}"
        assert (await driver.read()).holds == {one: ours()}
        assert human.taints(other) == {}

        assert (await driver.apply([free(one)])).now == {one: None}
        assert human.taints(one).keys() == {"nvidia.com/gpu", "site.example/soft"}
        condition = human.condition(one)
        assert condition is not None
        assert (condition["status"], condition["reason"]) == ("False", "NotIsolated")
        assert human.node(one)["metadata"].get("annotations", {}) == {}
        assert human.condition(one, "Ready") is not None


async def what_is_so_already_is_not_written_again(cluster: Cluster) -> None:
    human, (one,) = cluster.human, cluster.make(1)
    async with cluster.driver([one]) as driver:
        await driver.read()
        await driver.apply([wanted(one)])
        await until(lambda: human.condition(one) is not None)
        before = human.node(one)["spec"]
        assert (await driver.apply([wanted(one)])).now == {one: ours()}
        assert human.node(one)["spec"] == before
        # A new word of the same claim changes the condition, and the taint only where it differs.
        again = wanted(one, "operator: ann: a fan")
        assert (await driver.apply([again])).now == {one: ours("operator: ann: a fan")}
        assert human.taints(one) == {TAINT: "operator:NoSchedule"}


async def every_node_that_everstep_knows_says_so(cluster: Cluster) -> None:
    human, names = cluster.human, cluster.make(4)
    async with cluster.driver(names[:3]) as driver:
        view = await driver.read()
        assert view.nodes.keys() >= set(names)
        assert view.nodes[names[0]].state == "Ready"
        assert view.nodes[names[0]].labels["kubernetes.io/hostname"] == names[0]
        for name in names[:3]:
            await until(lambda name=name: human.condition(name) is not None)  # type: ignore[misc]
            condition = human.condition(name)
            assert condition is not None
            assert condition["status"] == "False"
        assert human.condition(names[3]) is None
        assert human.condition(names[0], "Ready") is not None


async def what_others_withhold_is_theirs(cluster: Cluster) -> None:
    human, (cordoned, tainted, echoed) = cluster.human, cluster.make(3)
    human.cordon(cordoned)
    human.taint(tainted, "site.example/broken", "cable")
    human.taint(echoed, "node.kubernetes.io/memory-pressure")
    human.taint(echoed, "readiness.k8s.io/everstep")
    async with cluster.driver([cordoned, tainted, echoed]) as driver:
        holds = (await driver.read()).holds
        assert {name: (hold.ours, hold.reason) for name, hold in holds.items()} == {
            cordoned: (False, "cordoned"),
            tainted: (False, "taint site.example/broken=cable:NoSchedule"),
        }
        applied = await driver.apply([wanted(cordoned), wanted(tainted), wanted(echoed)])
        assert [hold and hold.ours for hold in applied.now.values()].count(False) == 2
        assert TAINT not in {**human.taints(cordoned), **human.taints(tainted)}
        assert TAINT in human.taints(echoed)
        freed = await driver.apply([free(cordoned), free(tainted)])
        assert freed.now == {name: holds[name] for name in (cordoned, tainted)}
        assert human.node(cordoned)["spec"]["unschedulable"] is True
        assert "site.example/broken" in human.taints(tainted)
        human.cordon(cordoned, on=False)
        await reads(driver, lambda view: cordoned not in view.holds)


async def a_hold_beside_ours_is_told_and_stays_when_ours_goes(cluster: Cluster) -> None:
    human, (one,) = cluster.human, cluster.make(1)
    async with cluster.driver([one], cordon=True) as driver:
        await driver.read()
        await driver.apply([wanted(one)])
        assert human.node(one)["spec"]["unschedulable"] is True
        human.taint(one, "site.example/broken")
        view = await reads(driver, lambda view: not view.holds[one].ours)
        assert view.holds[one].reason == "taint site.example/broken:NoSchedule"
        freed = await driver.apply([free(one)])
        assert freed.now == {one: view.holds[one]}
        assert human.taints(one).keys() == {"site.example/broken"}
        assert not human.node(one)["spec"].get("unschedulable")


async def a_taint_that_a_human_set_with_our_key_is_a_humans(cluster: Cluster) -> None:
    human, (one,) = cluster.human, cluster.make(1)
    human.taint(one, TAINT, "automation")
    async with cluster.driver([one]) as driver:
        hold = (await driver.read()).holds[one]
        assert not hold.ours
        assert (await driver.apply([free(one)])).now == {one: hold}
        assert human.taints(one) == {TAINT: "automation:NoSchedule"}


async def two_everstep_clusters_leave_each_others_marks(cluster: Cluster) -> None:
    human, (one,) = cluster.human, cluster.make(1)
    async with cluster.driver([one], "c1") as first, cluster.driver([one], "c2") as second:
        await first.read()
        await first.apply([wanted(one)])
        hold = (await second.read()).holds[one]
        assert not hold.ours
        assert (await second.apply([free(one)])).now == {one: hold}
        assert TAINT in human.taints(one)
        # Neither do they write over one another's condition for ever.
        for _ in range(25):
            condition = human.condition(one)
            assert condition is not None
            assert condition["status"] == "True"
            await asyncio.sleep(0.1)
        await first.apply([free(one)])
        await reads(second, lambda view: one not in view.holds)
        await until(lambda: (human.condition(one) or {}).get("status") == "False")


async def what_others_free_is_free_and_leaves_no_marks(cluster: Cluster) -> None:
    human, (one,) = cluster.human, cluster.make(1)
    async with cluster.driver([one], cordon=True) as driver:
        await driver.read()
        await driver.apply([wanted(one)])
        human.untaint(one, TAINT)
        human.cordon(one, on=False)
        await reads(driver, lambda view: one not in view.holds)
        await driver.read()
        assert human.node(one)["metadata"].get("annotations", {}) == {}
        # So the next cordon is a human's.
        human.cordon(one)
        view = await reads(driver, lambda view: one in view.holds)
        assert not view.holds[one].ours


async def an_effect_that_ends_pods_comes_beside_the_one_that_places_none(cluster: Cluster) -> None:
    human, (one,) = cluster.human, cluster.make(1)
    async with cluster.driver([one], taint_effect="NoExecute") as driver:
        await driver.read()
        await driver.apply([wanted(one)])
        taints = human.node(one)["spec"]["taints"]
        assert {t["effect"] for t in taints if t["key"] == TAINT} == {"NoSchedule", "NoExecute"}
        assert (await driver.apply([free(one)])).now == {one: None}
        assert human.taints(one) == {}


async def a_node_that_was_made_anew_is_a_new_node(cluster: Cluster) -> None:
    human, (one,) = cluster.human, cluster.make(1)
    async with cluster.driver([one]) as driver:
        await driver.read()
        await driver.apply([wanted(one)])
        human.delete(one)
        await reads(driver, lambda view: one not in view.nodes)
        assert (await driver.apply([wanted(one)])).unmanaged == {one}
        human.make(one)
        view = await reads(driver, lambda view: one in view.nodes)
        assert view.holds == {}
        await until(lambda: human.condition(one) is not None)
        condition = human.condition(one)
        assert condition is not None
        assert condition["status"] == "False"
        assert human.taints(one) == {}


async def a_condition_for_another_uid_is_refused(cluster: Cluster) -> None:
    (one,) = cluster.make(1)
    async with cluster.driver([one]) as driver:
        await driver.read()
        view = replace(driver._nodes.views[one], uid="00000000-0000-0000-0000-000000000000")
        told = WantedCondition(isolated=True, told=Told("XidFatal", "m"))
        with pytest.raises(ApiError) as refused:
            await driver._server.send(condition_call(view, told, 1_796_000_000.0))
        assert refused.value.code in (409, 422)
        assert (cluster.human.condition(one) or {}).get("status") != "True"


async def a_node_of_no_cluster_is_unmanaged(cluster: Cluster) -> None:
    (one,) = cluster.make(1)
    async with cluster.driver([one, "elsewhere"]) as driver:
        await driver.read()
        applied = await driver.apply([wanted("elsewhere"), wanted(one), free("elsewhere")])
        assert applied.unmanaged == {"elsewhere"}
        assert applied.now == {one: ours()}


async def others_who_write_all_the_time_lose_nothing(cluster: Cluster) -> None:
    human, names, stop = cluster.human, cluster.make(4), threading.Event()

    def meddle() -> None:
        count = 0
        while not stop.is_set():
            count += 1
            human.taint(names[count % 4], f"site.example/t{count}", effect="PreferNoSchedule")
            human.untaint(names[(count + 2) % 4], f"site.example/t{count - 6}")

    async with cluster.driver(names) as driver:
        await driver.read()
        meddler = threading.Thread(target=meddle)
        meddler.start()
        try:
            for _ in range(5):
                for wish in (wanted, free):
                    pending = set(names)
                    while pending:
                        applied = await driver.apply([wish(name) for name in sorted(pending)])
                        pending -= applied.now.keys()
        finally:
            stop.set()
            await asyncio.to_thread(meddler.join)
        kept = [key for name in names for key in human.taints(name)]
        assert TAINT not in kept
        assert len(kept) >= 6


async def a_selector_narrows_what_is_looked_at(cluster: Cluster) -> None:
    gpus, rest = cluster.make(2, pool="gpu"), cluster.make(2, pool="cpu")
    async with cluster.driver([*gpus, *rest], selector="pool=gpu") as driver:
        assert (await driver.read()).nodes.keys() == set(gpus)
        assert (await driver.apply([wanted(rest[0])])).unmanaged == {rest[0]}


async def a_node_that_leaves_the_selection_and_comes_again_is_seen(cluster: Cluster) -> None:
    human, (one,) = cluster.human, cluster.make(1, pool="alone")
    async with cluster.driver([one], selector="pool=alone") as driver:
        assert (await driver.read()).nodes.keys() == {one}
        human.patch(one, {"metadata": {"labels": {"pool": "cpu"}}})
        await reads(driver, lambda view: one not in view.nodes)
        human.patch(one, {"metadata": {"labels": {"pool": "alone"}}})
        await reads(driver, lambda view: one in view.nodes)
        assert (await driver.apply([wanted(one)])).now == {one: ours()}


async def a_host_is_found_by_its_name_where_that_is_of_one_node(cluster: Cluster) -> None:
    human, (one, other) = cluster.human, cluster.make(2)
    host = f"host-of-{one}"
    human.patch(one, {"metadata": {"labels": {"kubernetes.io/hostname": host}}})
    async with cluster.driver([host]) as driver:
        assert host in (await driver.read()).nodes
        assert (await driver.apply([wanted(host)])).now == {host: ours()}
        assert TAINT in human.taints(one)
        assert (await driver.apply([free(host)])).now == {host: None}
        human.patch(other, {"metadata": {"labels": {"kubernetes.io/hostname": host}}})
        await reads(driver, lambda view: host not in view.nodes)
        assert (await driver.apply([wanted(host)])).unmanaged == {host}
        human.patch(other, {"metadata": {"labels": {"kubernetes.io/hostname": other}}})
        await reads(driver, lambda view: host in view.nodes)
        assert (await driver.apply([wanted(host)])).now == {host: ours()}
        assert TAINT not in human.taints(other)


async def nodes_come_in_pages(cluster: Cluster) -> None:
    names = cluster.register(600, pool="many")
    async with cluster.driver(names[:3], selector="pool=many") as driver:
        assert (await driver.read()).nodes.keys() == set(names)


async def a_server_that_was_away_is_followed_again(cluster: Cluster) -> None:
    human, (one, other) = cluster.human, cluster.make(2)
    async with cluster.driver([one, other]) as driver:
        await driver.read()
        cluster.server.stop()
        with pytest.raises(DriverError, match=r"cannot be reached|does not answer"):
            await reads(driver, lambda _: False)
        applied = await driver.apply([wanted(one)])
        assert applied.failures.keys() == {one}
        cluster.server.start()
        human.cordon(other)
        await _read_again(driver, lambda view: other in view.holds)
        assert (await driver.apply([wanted(one)])).now == {one: ours()}


async def a_place_in_the_watch_that_is_gone_is_found_again(cluster: Cluster) -> None:
    human, (one, other, gone) = cluster.human, cluster.make(3)
    async with cluster.driver([one, other, gone]) as driver:
        await driver.read()
        cluster.server.stop()
        with pytest.raises(DriverError):
            await reads(driver, lambda _: False)
        cluster.server.start()
        human.cordon(one)
        human.delete(gone)
        cluster.server.compact()
        view = await _read_again(driver, lambda view: gone not in view.nodes)
        assert view.holds.keys() == {one}
        assert view.nodes.keys() >= {one, other}


async def a_store_that_was_restored_from_a_backup_is_read_anew(cluster: Cluster) -> None:
    human, (one, other) = cluster.human, cluster.make(2)
    human.cordon(other)
    cluster.allow(KubernetesDriverConfig(access=str(cluster.kubeconfig)))
    cluster.server.back_up()
    async with cluster.driver([one, other]) as driver:
        await driver.read()
        (late,) = cluster.make(1)
        human.cordon(other, on=False)
        await reads(driver, lambda view: late in view.nodes and other not in view.holds)
        cluster.server.restore()
        view = await _read_again(driver, lambda view: late not in view.nodes)
        assert view.holds[other].reason == "cordoned"
        assert (await driver.apply([wanted(one)])).now == {one: ours()}
        human.cordon(one)
        await reads(driver, lambda view: not view.holds[one].ours)


async def _read_again(driver: KubernetesDriver, holds: Callable[[DriverView], bool]) -> DriverView:
    """Read until something holds; what fails until then is a server that comes."""
    async with asyncio.timeout(90):
        while True:
            with suppress(DriverError):
                if holds(view := await driver.read()):
                    return view
            await asyncio.sleep(0.1)


async def what_it_may_not_do_is_told_before_anything_is_done(cluster: Cluster) -> None:
    human, (one,) = cluster.human, cluster.make(1)
    async with cluster.driver([one]) as driver:
        config = KubernetesDriverConfig(access=str(cluster.kubeconfig))
        row = '- apiGroups: [""]\n  resources: [nodes/status]\n  verbs: [patch]\n'
        cluster.allow(config, without=row)
        # An authorizer learns of roles within a moment.
        with pytest.raises(DriverError, match=r"may not patch nodes/status; .* kubernetes rbac"):
            await _read_anew(driver)
        with pytest.raises(DriverError, match="may not patch nodes/status"):
            await driver.apply([wanted(one)])
        assert TAINT not in human.taints(one)
        cluster.allow(config)
        await _read_again(driver, lambda _: True)
        assert (await driver.apply([wanted(one)])).now == {one: ours()}


async def _read_anew(driver: KubernetesDriver) -> None:
    """Read until that fails, with the rights as they are each time."""
    for _ in range(200):
        await driver.read()
        driver._is_allowed = False
        await asyncio.sleep(0.05)


async def a_reason_full_of_signs_is_one_plain_line(cluster: Cluster) -> None:
    human, (one,) = cluster.human, cluster.make(1)
    nasty = 'operator: "a\n{{ .evil }}`$(reboot)`\x1b[2J\\ \u202e' + "x" * 5000
    async with cluster.driver([one]) as driver:
        await driver.read()
        wish = WantedIsolation(one, ("ann & co/über", "automation"), nasty, "not a reason\n")
        applied = await driver.apply([wish])
        assert applied.failures == {}
        condition = human.condition(one)
        assert condition is not None
        assert condition["message"].isprintable()
        assert condition["message"].isascii()
        assert len(condition["message"]) < 1024
        assert condition["reason"] == "IsolatedByAutomation"
        hold = (await driver.read()).holds[one]
        assert hold.ours


async def hostile_reasons_are_shown_in_listed_signs(cluster: Cluster) -> None:
    human, (one,), chance = cluster.human, cluster.make(1), random.Random(11)
    async with cluster.driver([one]) as driver:
        await driver.read()
        for _ in range(40):
            reason, condition = hostile_text(chance), hostile_text(chance)
            wish = WantedIsolation(one, (hostile_text(chance), "operator"), reason, condition)
            assert (await driver.apply([wish])).now == {one: ours(plain(reason))}
            told = human.condition(one)
            assert told is not None
            assert told["message"] == f"{plain(reason)}; everstep why {one}"
            assert human.taints(one) == {TAINT: "operator:NoSchedule"}


async def a_node_that_kubernetes_does_not_hear_is_down_with_its_age(cluster: Cluster) -> None:
    human, (one, other) = cluster.human, cluster.make(2)
    human.report(one, "Unknown", at="2026-11-30T05:00:00Z")
    human.report(other, "False")
    async with cluster.driver([one, other]) as driver:
        view = await driver.read()
        assert view.nodes[one].state == view.nodes[other].state == "NotReady"
        assert view.down.keys() == {one}
        assert "Kubelet stopped posting node status" in view.down[one]
        assert view.holds == {}


SCENARIOS: tuple[Scenario, ...] = (
    a_claim_is_a_taint_and_a_condition_and_goes_with_it,
    what_is_so_already_is_not_written_again,
    every_node_that_everstep_knows_says_so,
    what_others_withhold_is_theirs,
    a_hold_beside_ours_is_told_and_stays_when_ours_goes,
    a_taint_that_a_human_set_with_our_key_is_a_humans,
    two_everstep_clusters_leave_each_others_marks,
    what_others_free_is_free_and_leaves_no_marks,
    an_effect_that_ends_pods_comes_beside_the_one_that_places_none,
    a_node_that_was_made_anew_is_a_new_node,
    a_condition_for_another_uid_is_refused,
    a_node_of_no_cluster_is_unmanaged,
    others_who_write_all_the_time_lose_nothing,
    a_selector_narrows_what_is_looked_at,
    a_node_that_leaves_the_selection_and_comes_again_is_seen,
    a_host_is_found_by_its_name_where_that_is_of_one_node,
    nodes_come_in_pages,
    a_server_that_was_away_is_followed_again,
    a_place_in_the_watch_that_is_gone_is_found_again,
    a_store_that_was_restored_from_a_backup_is_read_anew,
    what_it_may_not_do_is_told_before_anything_is_done,
    a_reason_full_of_signs_is_one_plain_line,
    hostile_reasons_are_shown_in_listed_signs,
    a_node_that_kubernetes_does_not_hear_is_down_with_its_age,
)
