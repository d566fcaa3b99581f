"""The Slurm driver with Slurm 24.11 and 26.05, from roots that the test makes."""

import asyncio
from collections.abc import Iterator

import pytest

from everstep_controller.core.model.isolation import Hold, WantedIsolation
from everstep_controller.drivers.slurm.reasons import drain_reason
from fakes.waits import wait_until
from real.slurm_drains import CLUSTER_ID
from real.slurm_versions import SUITES, VersionedSlurm, missing, running_version

pytestmark = [
    pytest.mark.real,
    pytest.mark.long,
    pytest.mark.xdist_group("mounts"),
    pytest.mark.skipif(bool(missing()), reason=missing()),
]


@pytest.fixture(scope="module", params=SUITES)
def slurm(request: pytest.FixtureRequest) -> Iterator[VersionedSlurm]:
    with running_version(str(request.param)) as running:
        assert f" {request.param}" in running.run("sinfo", "--version")
        yield running


def _wanted(node: str, text: str) -> WantedIsolation:
    return WantedIsolation(node, ("automation",), f"automation: {text}", "XidFatal")


@pytest.mark.timeout(1800)
def test_it_drains_reads_and_releases_and_leaves_the_drains_of_others(
    slurm: VersionedSlurm,
) -> None:
    hostile = 'a "fan"\nupdate nodename=n4 state=down reason=evil\n$(reboot) `id` \\'
    wanted = [_wanted("n1", hostile), _wanted("n2", "Xid 79"), _wanted("n9", "none")]
    slurm.run("scontrol", "update", "nodename=n3", "state=drain", "reason=ann: cables")
    foreign = Hold("ann: cables", ours=False)

    async def scenario() -> None:
        driver = slurm.driver()
        assert (await driver.read()).holds == {"n3": foreign}
        applied = await driver.apply([*wanted, _wanted("n3", "Xid 79")])
        assert (applied.failures, set(applied.unmanaged)) == ({}, {"n9"})
        assert applied.now["n3"] == foreign
        for one in wanted[:2]:
            reason = drain_reason(one, CLUSTER_ID)
            assert applied.now[one.node] == Hold(reason, ours=True)
            assert slurm.node(one.node) == ("idle+drain", reason)
        view = await driver.read()
        assert view.holds == {**applied.now}
        assert view.nodes["n1"].labels == {"partition": "all,debug", "feature": "h100"}
        freed = await driver.apply([WantedIsolation(name) for name in ("n1", "n2", "n3")])
        assert freed.now == {"n1": None, "n2": None, "n3": foreign}

    asyncio.run(scenario())
    # Without slurmdbd, 24.11 keeps the reason of a node that is drained no more.
    wait_until(lambda: slurm.node("n1")[0] == "idle")
    assert slurm.node("n3")[1] == "ann: cables"
    assert slurm.node("n4")[0] == "idle"
