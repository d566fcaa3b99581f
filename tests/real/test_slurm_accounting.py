"""The Slurm driver with slurmdbd: several clusters, rights by AdminLevel, a second slurmctld."""

import asyncio
import os
import subprocess
from collections.abc import Iterator

import pytest

from everstep_controller.core.model.isolation import Hold, WantedIsolation
from everstep_controller.drivers.drivers import DriversConfig, configured_drivers
from everstep_controller.drivers.port import IsolationDriver
from everstep_controller.drivers.slurm.config import SlurmDriverConfig
from everstep_controller.drivers.slurm.reasons import drain_reason
from fakes.waits import wait_until
from real.ordinary_user import User, import_path, python_for_all
from real.ordinary_user import missing as no_user
from real.slurm_accounting import Accounting, missing, running_accounting
from real.slurm_cluster import SlurmCluster
from real.slurm_drains import CLUSTER_ID
from real.test_slurm_driver import DRAIN

pytestmark = [pytest.mark.real, pytest.mark.skipif(bool(missing()), reason=missing())]

_FOREIGN = Hold("ann: cables", ours=False)
_STANDBY = "standby"


@pytest.fixture(scope="module")
def accounting() -> Iterator[Accounting]:
    with running_accounting() as running:
        yield running


@pytest.fixture(scope="module")
def one(accounting: Accounting) -> Iterator[SlurmCluster]:
    with accounting.cluster("one", ["a1", "a2", "both"]) as slurm:
        yield slurm


@pytest.fixture(scope="module")
def two(accounting: Accounting) -> Iterator[SlurmCluster]:
    with accounting.cluster("two", ["b1", "b2", "both"]) as slurm:
        yield slurm


def _driver(slurm: SlurmCluster, *clusters: str) -> IsolationDriver:
    config = SlurmDriverConfig(
        enabled=True, conf_file=slurm.folder / "slurm.conf", clusters=clusters
    )
    drivers = DriversConfig(slurm=config, call_timeout_s=60.0)
    return configured_drivers(drivers, lambda _: {}, cluster_id=lambda: CLUSTER_ID)["slurm"]


def _wanted(node: str) -> WantedIsolation:
    return WantedIsolation(node, ("automation",), f"automation: GPU of {node}", "XidFatal")


def _reason(slurm: SlurmCluster, node: str) -> str:
    return slurm.run("sinfo", "-h", "-N", "-t", "drain", "-n", node, "-o", "%E").stdout.strip()


def test_claims_are_drains_at_the_cluster_that_has_the_node_and_at_both_that_share_it(
    one: SlurmCluster, two: SlurmCluster
) -> None:
    two.run("scontrol", "update", "nodename=b2", "state=drain", f"reason={_FOREIGN.reason}")
    wanted = [_wanted(name) for name in ("a1", "b1", "b2", "both", "elsewhere")]
    ours = {name: drain_reason(_wanted(name), CLUSTER_ID) for name in ("a1", "b1", "both")}

    async def scenario() -> None:
        driver = _driver(one, "one", "two")
        view = await driver.read()
        assert set(view.nodes) == {"a1", "a2", "b1", "b2", "both"}
        assert view.holds == {"b2": _FOREIGN}
        applied = await driver.apply(wanted)
        assert (applied.failures, set(applied.unmanaged)) == ({}, {"elsewhere"})
        holds = {name: Hold(reason, ours=True) for name, reason in ours.items()}
        assert applied.now == {**holds, "b2": _FOREIGN}
        assert (await driver.read()).holds == applied.now
        assert _reason(one, "a1") == ours["a1"]
        assert _reason(two, "b1") == ours["b1"]
        assert _reason(one, "both") == _reason(two, "both") == ours["both"]
        freed = await driver.apply([WantedIsolation(one.node) for one in wanted])
        assert freed.now == {**dict.fromkeys(ours), "b2": _FOREIGN}

    asyncio.run(scenario())
    assert not _reason(one, "both")
    assert _reason(two, "b2") == _FOREIGN.reason


@pytest.mark.skipif(bool(no_user()), reason=no_user())
def test_only_an_administrator_may_drain_who_is_not_slurmuser(
    accounting: Accounting, one: SlurmCluster
) -> None:
    user = User(65534, 65534)
    name = "nobody"
    path = {"PYTHONPATH": import_path(), **one.environ}
    command = [*user.become, python_for_all(), "-c", DRAIN, f"{one.folder}/slurm.conf", "a2"]

    def said() -> str:
        done = subprocess.run(
            command, env=path, capture_output=True, text=True, timeout=60, check=True
        )
        return done.stdout

    accounting.sacctmgr("add", "user", name, "account=root")
    refused = f"type 'sacctmgr modify user {name} set adminlevel=Administrator'"
    for level in ("None", "Operator"):
        accounting.sacctmgr("modify", "user", name, "set", f"adminlevel={level}")
        assert f"{name}||{level}" in accounting.sacctmgr("show", "user", name)
        assert refused in said()
    accounting.sacctmgr("modify", "user", name, "set", "adminlevel=Administrator")
    # slurmdbd tells slurmctld of it.
    wait_until(lambda: said() == "True\n", 30.0, "an administrator")
    assert _reason(one, "a2").startswith("everstep: operator")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a second machine's name")
@pytest.mark.timeout(180)
def test_a_second_slurmctld_that_takes_over_during_a_reading_is_no_failure(
    accounting: Accounting,
) -> None:
    lines = (
        f"SlurmctldHost={os.uname().nodename}(127.0.0.1)",
        f"SlurmctldHost={_STANDBY}(127.0.0.2)",
        "CommunicationParameters=NoCtldInAddrAny",
        "SlurmctldTimeout=5",
    )
    with accounting.cluster("pair", ["c1", "c2"], lines) as pair:
        pair.start_standby(_STANDBY)
        ping = ("scontrol", "ping")
        wait_until(lambda: pair.run(*ping).stdout.count(" is UP") == 2, 60.0, "a standby")

        async def scenario() -> None:
            driver = _driver(pair)
            await driver.read()
            await driver.apply([_wanted("c1")])
            pair.lose_controller()
            ours = Hold(drain_reason(_wanted("c1"), CLUSTER_ID), ours=True)
            assert (await driver.read()).holds == {"c1": ours}
            assert (await driver.apply([_wanted("c2")])).failures == {}
            assert (await driver.apply([WantedIsolation("c1")])).now == {"c1": None}

        asyncio.run(scenario())
        assert _reason(pair, "c2").startswith("everstep: XidFatal")
