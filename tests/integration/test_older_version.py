"""An agent and a controller of two versions: what one of them cannot use is acknowledged and told.

Real processes of both versions, the older one from the history of this repository.
"""

import asyncio
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from everstep_common.frames import encode
from everstep_proto.generated import admin_pb2, fleet_pb2
from fakes.agent_stream import agent_stream
from fakes.controllers import start_controller
from integration.certified_places import certified_places, here
from integration.counting import launch
from integration.hostile_session import Hostile
from integration.older_version import TRAINER_PROTOCOL, older_packages
from integration.real_fleet import JOB, RealFleet, running_fleet
from integration.vault_clients import join_message

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


@contextmanager
def _certified(folder: Path, packages: Mapping[str, Sequence[Path]]) -> Iterator[RealFleet]:
    """Yield a fleet with certificates: the older version knows no other trust than loopback's."""
    (folder / "ca").mkdir()
    places, tls = certified_places(["node-1"], folder / "ca", here)
    with running_fleet("node-1", packages=packages, places=places, tls=tls) as fleet:
        yield fleet


def _is_unharmed(fleet: RealFleet) -> None:
    before = fleet.job().step
    fleet.until("more steps", 60, lambda: fleet.job().step > before + 10)
    assert fleet.job().generation == 1, fleet.logs()
    assert (
        fleet.admin.call(
            lambda stub: stub.GetSnapshots, admin_pb2.GetSnapshotsRequest(job=JOB)
        ).cadence.skipped
        == 0
    ), fleet.logs()
    log = fleet.agents["node-1"].log.read_text()
    assert len(re.findall(r"connected to the controller", log)) == 1
    assert "Traceback" not in log


def _train(fleet: RealFleet) -> None:
    fleet.folder.chmod(0o711)
    launch(fleet, size=1 << 20, steps=1_000_000, step_seconds=0.1)
    fleet.until("the first steps", 60, lambda: fleet.job().step > 5)


def _findings(fleet: RealFleet) -> dict[str, str]:
    return {line.component: line.message for line in fleet.findings()}


def test_what_an_older_agent_lets_in_is_rejected_with_its_user_and_harms_nobody(
    tmp_path: Path,
) -> None:
    older = older_packages(tmp_path)
    with _certified(tmp_path, {"agent": older, "launcher": older}) as fleet:
        _train(fleet)
        launcher = Hostile(fleet.folder / "node-1" / "run" / "agent.sock")
        # More ranks than the controller counts one by one; the older agent knows no such limit.
        huge = join_message(protocol=TRAINER_PROTOCOL, job="huge", processes_per_node=2**31 - 1)
        launcher.send(encode(huge))
        # `Hostile` connects as nobody where it can.
        user = os.geteuid() or 65534
        place = f"controller/records/node-1/launcher_joined/{user}"
        fleet.until("a finding", 30, lambda: place in _findings(fleet))
        launcher.close()
        assert "--nproc-per-node 2147483647" in _findings(fleet)[place]
        _is_unharmed(fleet)


def test_an_agent_serves_an_older_controller(tmp_path: Path) -> None:
    older = older_packages(tmp_path)
    with _certified(tmp_path, {"controller": older}) as fleet:
        _train(fleet)
        launcher = Hostile(fleet.folder / "node-1" / "run" / "agent.sock")
        launcher.send(encode(join_message(job="huge", processes_per_node=2**31 - 1)))
        launcher.hear_out()
        _is_unharmed(fleet)
        assert not [one for one in _findings(fleet) if one.startswith("controller/records")]


def test_an_older_controller_acknowledges_a_kind_of_record_that_it_does_not_know(
    tmp_path: Path,
) -> None:
    older = older_packages(tmp_path / "older")
    paths = os.pathsep.join([*map(str, older), *filter(None, sys.path)])

    async def scenario(port: int) -> None:
        async with agent_stream(port, "node-1") as agent:
            await agent.healthy()
            rejected = fleet_pb2.OrderRejected(kind="vault", error="of tomorrow", count=1)
            await agent.record(2, order_rejected=rejected)
            await agent.record(3, uid=7, launcher_left=fleet_pb2.LauncherLeft(reason="gone"))
            await agent.finding(4)
            await agent.acknowledged(4)

    with start_controller(tmp_path, trust="", PYTHONPATH=paths) as running:
        asyncio.run(scenario(running.port))
