"""The Slurm driver with a real Slurm: drains of ours and of others, and their release."""

import asyncio
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial

import pytest

from everstep_controller.core.model.isolation import Hold, WantedIsolation
from everstep_controller.drivers.port import Applied, DriverError, DriverView
from everstep_controller.drivers.slurm.config import SlurmDriverConfig
from everstep_controller.drivers.slurm.names import NoteField
from everstep_controller.drivers.slurm.reasons import allowed_text, drain_reason
from fakes.waits import wait_until
from real import unit_filter
from real.booted_box import REPOSITORY
from real.ordinary_user import User, import_path, python_for_all
from real.ordinary_user import missing as no_user
from real.slurm_cluster import missing
from real.slurm_drains import CLUSTER_ID, Drains, running_drains
from real.unit_filter import allowed_calls, numbers_of

pytestmark = [pytest.mark.real, pytest.mark.skipif(bool(missing()), reason=missing())]

_NODES = [f"node{number}" for number in range(1, 7)]
_OWNERS = ("automation",)
_NOTED = SlurmDriverConfig(note_field=NoteField.COMMENT)


def _wanted(node: str, text: str = "GPU 3 fell off the bus") -> WantedIsolation:
    return WantedIsolation(node, _OWNERS, f"automation: {text}", "XidFatal")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Drains]:
    lines = ("NodeName=apart NodeHostname=localhost NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN",)
    with running_drains(_NODES, lines) as drains:
        yield drains


@pytest.fixture
def drains(cluster: Drains) -> Iterator[Drains]:
    # A node that is drained no more does not respond for a moment.
    wait_until(lambda: cluster.slurm.states() == dict.fromkeys(_NODES, "idle"))
    yield cluster
    for name in [*_NODES, "apart"]:
        cluster.slurm.run("scontrol", "update", f"nodename={name}", "comment=")
        cluster.slurm.run("scontrol", "update", f"nodename={name}", "state=resume")


def _apply(
    drains: Drains, *wanted: WantedIsolation, settings: SlurmDriverConfig | None = None
) -> Applied:
    return asyncio.run(drains.driver(settings).apply(wanted))


def test_a_claim_is_a_drain_and_its_end_clears_it(drains: Drains) -> None:
    reason = drain_reason(_wanted("node1"), CLUSTER_ID)
    assert _apply(drains, _wanted("node1")).now == {"node1": Hold(reason, ours=True)}
    assert drains.node("node1") == ("idle+drain", reason)
    shown = drains.slurm.run("sinfo", "-R", "-h").stdout
    assert shown.startswith("everstep: XidFatal a"), shown
    view = asyncio.run(drains.driver().read())
    assert view.holds["node1"] == Hold(reason, ours=True)
    assert view.nodes["node1"].state == "IDLE+DRAIN"
    assert _apply(drains, WantedIsolation("node1")).now == {"node1": None}
    assert drains.node("node1")[1] == "none"


def test_many_nodes_of_one_reason_are_one_update_and_nothing_is_done_twice(drains: Drains) -> None:
    wanted = [_wanted(name) for name in _NODES]
    before = drains.said("reason set to: everstep")
    assert all(hold and hold.ours for hold in _apply(drains, *wanted).now.values())
    _apply(drains, *wanted)
    assert drains.said("reason set to: everstep") - before == len(_NODES)
    other = [_wanted(name, f"fault {name}") for name in _NODES]
    now = _apply(drains, *other).now
    assert {name: hold and name in hold.reason for name, hold in now.items()} == dict.fromkeys(
        _NODES, True
    )


def test_what_others_drain_set_down_or_edit_is_neither_changed_nor_freed(drains: Drains) -> None:
    _apply(drains, _wanted("node3"))
    drains.update("node1", "state=drain", "reason=ann: cables")
    drains.update("node2", "state=down", "reason=ann: PSU")
    drains.update("node3", f"reason={drains.node('node3')[1]} ann: RMA 7")
    before = {name: drains.node(name) for name in _NODES[:3]}
    for wanted in (_wanted, WantedIsolation):
        now = _apply(drains, *(wanted(name) for name in _NODES[:3])).now
        assert {name: hold and hold.ours for name, hold in now.items()} == dict.fromkeys(
            _NODES[:3], False
        )
    assert {name: drains.node(name) for name in _NODES[:3]} == before


def test_a_release_leaves_down_and_power_states_as_they_are(drains: Drains) -> None:
    drains.update("node4", "state=down", "reason=Not responding")
    drains.slurm.run("scontrol", "update", "nodename=node4", "state=drain", "reason=x")
    reason = drain_reason(_wanted("node4"), CLUSTER_ID)
    drains.update("node4", f"reason={reason}")
    assert _apply(drains, WantedIsolation("node4")).failures == {}
    state, said = drains.node("node4")
    assert "down" in state.split("+")
    assert "drain" not in state.split("+")
    assert "everstep: " not in said


def test_a_node_of_no_partition_is_drained_and_one_that_is_not_there_is_none_of_slurms(
    drains: Drains,
) -> None:
    applied = _apply(drains, _wanted("apart"), _wanted("elsewhere"), _wanted("ALL"))
    assert applied.now["apart"] == Hold(drain_reason(_wanted("apart"), CLUSTER_ID), ours=True)
    assert set(applied.unmanaged) == {"elsewhere", "ALL"}
    assert all(drains.node(name)[0] == "idle" for name in _NODES)
    held = {"apart": Hold(drain_reason(_wanted("apart"), CLUSTER_ID), ours=True)}
    assert asyncio.run(drains.driver(remembered=held).read()).holds == held
    assert _apply(drains, WantedIsolation("apart")).now == {"apart": None}
    assert asyncio.run(drains.driver(remembered=held).read()).holds == {}


def test_a_note_tells_programs_of_the_claim_and_leaves_that_of_others(drains: Drains) -> None:
    drains.update("node2", "comment=rack7")
    wanted = [_wanted("node1"), _wanted("node2"), _wanted("node3", "another")]
    _apply(drains, *wanted, settings=_NOTED)

    def comments() -> list[str]:
        shown = drains.slurm.run("sinfo", "-h", "-N", "-n", "node[1-3]", "-O", "Comment:0")
        return shown.stdout.split()

    assert comments() == ["everstep:automation:XidFatal", "rack7", "everstep:automation:XidFatal"]
    _apply(drains, *(WantedIsolation(name) for name in _NODES[:3]), settings=_NOTED)
    assert comments() == ["(null)", "rack7", "(null)"]


@pytest.mark.parametrize("seed", range(2))
def test_whatever_findings_say_slurm_shows_the_allowed_text_and_does_nothing_else(
    drains: Drains, seed: int
) -> None:
    rng = random.Random(seed)
    pieces = [*"\n\r\t\x00\"'\\`$();|=é\u2028", "\n\n"]
    pieces += ["update nodename=node6 state=down reason=evil", "shutdown", "ALL", "a", " ", "!"]
    wanted = [
        _wanted(name, "".join(rng.choices(pieces, k=rng.randrange(30)))) for name in _NODES[:5]
    ]
    now = _apply(drains, *wanted).now
    for one in wanted:
        reason = drain_reason(one, CLUSTER_ID)
        assert now[one.node] == Hold(reason, ours=True)
        assert drains.node(one.node) == ("idle+drain", reason)
        assert allowed_text(reason.rpartition(" #")[0]) == reason.rpartition(" #")[0]
    assert drains.node("node6")[0] == "idle"


_READ = """\
import asyncio, sys
from pathlib import Path
from everstep_controller.drivers.port import DriverContext, DriverError
from everstep_controller.drivers.slurm.config import SlurmDriverConfig

try:
    slurm = SlurmDriverConfig(enabled=True, conf_file=Path(sys.argv[1]))
    driver = slurm.driver(DriverContext(60.0))
    print(sorted(asyncio.run(driver.read()).nodes))
except DriverError as error:
    print(error)
"""


@pytest.mark.skipif(bool(no_user()), reason=no_user())
def test_a_user_without_rights_is_told_what_to_type(drains: Drains) -> None:
    python = [python_for_all(), "-c", _READ, str(drains.conf)]
    path = {"PYTHONPATH": import_path(), **drains.slurm.environ}

    def printed(*become: str) -> str:
        done = subprocess.run(
            [*become, *python], env=path, capture_output=True, text=True, timeout=60, check=True
        )
        return done.stdout

    said = printed(*User(65534, 65534).become)
    assert "drain nodes (slurm_update error: Invalid user id)" in said
    assert re.search("type 'sacctmgr modify user [a-z]+ set adminlevel=Administrator'", said)
    assert "node1" in printed()


# Prints whether nodes were drained, or why nothing may be.
DRAIN = """\
import asyncio, sys
from pathlib import Path
from everstep_controller.core.model.isolation import WantedIsolation
from everstep_controller.drivers.port import DriverContext, DriverError
from everstep_controller.drivers.slurm.config import SlurmDriverConfig

async def main():
    slurm = SlurmDriverConfig(enabled=True, conf_file=Path(sys.argv[1]))
    driver = slurm.driver(DriverContext(60.0))
    await driver.read()
    wanted = [WantedIsolation(name, ("operator",), f"operator: {name}") for name in sys.argv[2:]]
    print((await driver.apply(wanted)).now.keys() == set(sys.argv[2:]))

try:
    asyncio.run(main())
except DriverError as error:
    print(error)
"""


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze (apt)")
def test_slurms_programs_need_no_call_that_the_shipped_unit_forbids(drains: Drains) -> None:
    numbers = numbers_of(allowed_calls([REPOSITORY / "systemd/everstep-controller.service"]))
    filtered = [sys.executable, unit_filter.__file__, ",".join(map(str, numbers))]
    names = _NODES[:3]
    done = subprocess.run(
        [*filtered, sys.executable, "-c", DRAIN, str(drains.conf), *names],
        env={"PYTHONPATH": ":".join(filter(None, sys.path)), **drains.slurm.environ},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout == "True\n", done.stderr
    assert all(drains.node(name)[1].startswith("everstep: operator") for name in names)


@pytest.mark.timeout(120)
def test_jobs_stay_unless_the_policy_requeues_those_that_allow_it(drains: Drains) -> None:
    submit = partial(drains.slurm.run, "sbatch", "--parsable", "-o", "/dev/null", "-N1")
    yes = submit("--requeue", "-w", "node1", "--wrap", "sleep 300").stdout.strip()
    no = submit("--no-requeue", "-w", "node2", "--wrap", "sleep 300").stdout.strip()
    # The job of a launcher on node4 has node3 as well.
    wide = ("-N2", "-w", "node[3-4]")
    own = submit("--requeue", *wide, "--wrap", "sleep 300").stdout.strip()

    def states() -> dict[str, str]:
        lines = drains.slurm.run("squeue", "-h", "-o", "%i %T").stdout.splitlines()
        return dict(line.split() for line in lines)

    running = dict.fromkeys((yes, no, own), "RUNNING")
    wait_until(lambda: states() == running)
    nodes = _NODES[:3]
    _apply(drains, *(_wanted(name) for name in nodes))
    view = asyncio.run(drains.driver().read())
    assert [view.nodes[name].work for name in nodes] == [(yes,), (no,), (own,)]
    assert states() == running

    async def two_readings() -> None:
        driver = drains.driver(SlurmDriverConfig(requeue=True), ["node4"])
        await driver.read()
        assert states() == running
        await driver.read()

    asyncio.run(two_readings())
    wait_until(lambda: states()[yes] != "RUNNING")
    assert (states()[no], states()[own]) == ("RUNNING", "RUNNING")
    drains.slurm.run("scancel", yes, no, own)
    wait_until(lambda: not states(), 60)


def test_a_cluster_that_is_not_known_is_told_by_its_name(drains: Drains) -> None:
    with pytest.raises(DriverError, match=r"scontrol failed: .*elsewhere"):
        asyncio.run(drains.driver(SlurmDriverConfig(clusters=("elsewhere",))).read())


@pytest.mark.timeout(300)
def test_a_slurmctld_that_is_replaced_during_a_call_is_no_failure(drains: Drains) -> None:
    _apply(drains, _wanted("node1"))
    drains.slurm.stop_controller()

    async def scenario() -> DriverView:
        reading = asyncio.create_task(drains.driver().read())
        await asyncio.sleep(3.0)
        assert not reading.done()
        drains.slurm.start_controller()
        return await reading

    view = asyncio.run(scenario())
    assert view.holds == {"node1": Hold(drain_reason(_wanted("node1"), CLUSTER_ID), ours=True)}


@pytest.mark.timeout(300)
def test_a_dead_node_is_drained_and_is_in_service_again_once_it_is_released_and_answers(
    drains: Drains,
) -> None:
    drains.slurm.lose("node5")
    wait_until(lambda: drains.node("node5")[0] == "down+not_responding", 90.0)
    assert "node5" in asyncio.run(drains.driver().read()).down
    assert asyncio.run(drains.driver().read()).holds == {}
    now = _apply(drains, _wanted("node5")).now["node5"]
    assert now is not None
    assert now.ours
    assert _apply(drains, WantedIsolation("node5")).now == {"node5": None}
    assert drains.node("node5") == ("down+not_responding", "Not responding")
    drains.slurm.start_node("node5")
    wait_until(lambda: drains.node("node5")[0] == "idle", 90.0)
