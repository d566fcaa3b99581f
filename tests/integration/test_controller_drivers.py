"""A real controller with the command driver: claims, foreign drains and failures, over restarts."""

import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import cast

from everstep_controller.core.dispatch.core import Core
from everstep_controller.drivers.command import CommandDriverConfig
from everstep_controller.drivers.drivers import DriversConfig
from everstep_controller.service import Controller, Options
from everstep_proto.generated import admin_pb2, admin_pb2_grpc
from fakes.agent_stream import agent_stream
from fakes.controllers import config, controller_command, environment, scrape, start_controller
from fakes.local_secret import admin_channel
from fakes.waits import eventually

PROGRAM = Path(__file__).with_name("isolation_program.py")


class Site:
    """The scheduler's file, and what the program was asked."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "scheduler.json"
        self.broken = folder / "scheduler.json.broken"

    @property
    def argv(self) -> tuple[str, ...]:
        return (sys.executable, str(PROGRAM), str(self.file), "well")

    def holds(self) -> dict[str, dict[str, object]]:
        """Return what the scheduler withholds now."""
        return json.loads(self.file.read_text()) if self.file.exists() else {}

    def hold(self, node: str) -> None:
        """Let somebody else drain a node."""
        new = self.file.with_suffix(".others")
        new.write_text(json.dumps(self.holds() | {node: {"reason": "ann: cables", "ours": False}}))
        new.rename(self.file)

    def free(self, node: str) -> None:
        """Let somebody else resume a node."""
        new = self.file.with_suffix(".others")
        new.write_text(json.dumps({k: v for k, v in self.holds().items() if k != node}))
        new.rename(self.file)

    def calls(self, kind: str) -> list[dict[str, object]]:
        """Return the calls of one kind so far."""
        lines = Path(f"{self.file}.calls").read_text().splitlines()
        return [call for line in lines if (call := json.loads(line))["call"] == kind]


def make_controller(folder: Path, site: Site) -> Controller:
    command = CommandDriverConfig(argv=site.argv)
    drivers = DriversConfig(read_interval_s=0.2, command=command)
    return Controller.open(replace(config(folder), drivers=drivers), Options(Core, ""))


def test_claims_reach_the_scheduler_and_what_others_drain_takes_no_ranks(tmp_path: Path) -> None:
    site = Site(tmp_path)

    def owners(running: Controller) -> list[str]:
        return [claim.owner for claim in running.runtime.state.nodes["node-1"].isolation.claims]

    async def scenario() -> None:
        running = make_controller(tmp_path, site)
        await running.start()
        channel = admin_channel(running.port)
        admin = admin_pb2_grpc.AdminStub(channel)
        async with agent_stream(running.port, "node-1") as agent:
            await agent.healthy()
            request = admin_pb2.IsolateRequest(node="node-1", reason="fan", operator="ann")
            await admin.Isolate(request)
            await eventually(lambda: "node-1" in site.holds())
            assert "ann: fan" in str(site.holds()["node-1"]["reason"])
            await admin.Release(admin_pb2.ReleaseRequest(node="node-1", operator="ann"))
            await eventually(lambda: "node-1" not in site.holds())
            applied = len(site.calls("apply"))

            site.hold("node-1")
            await eventually(lambda: owners(running) == ["scheduler"])
            listed = await admin.ListNodes(admin_pb2.ListNodesRequest())
            (claim,) = listed.nodes[0].claims
            assert (claim.owner, claim.reason) == ("scheduler", "command: ann: cables")
            site.free("node-1")
            await eventually(lambda: owners(running) == [])
            assert len(site.calls("apply")) == applied
        await channel.close()
        await running.stop()

    asyncio.run(scenario())


def test_a_failing_driver_is_told_and_catches_up_when_it_works_again(tmp_path: Path) -> None:
    site = Site(tmp_path)

    async def scenario() -> None:
        running = make_controller(tmp_path, site)
        await running.start()
        channel = admin_channel(running.port)
        admin = admin_pb2_grpc.AdminStub(channel)
        async with agent_stream(running.port, "node-1") as agent:
            await agent.healthy()
            site.broken.touch()
            request = admin_pb2.IsolateRequest(node="node-1", reason="fan", operator="ann")
            await admin.Isolate(request)
            record = running.runtime.state.drivers["command"]
            await eventually(lambda: record.failures >= 3)
            why = await admin.Why(admin_pb2.WhyRequest(name="node-1"))
            assert "slurmctld does not answer" in why.answer
            found = await admin.ListFindings(admin_pb2.ListFindingsRequest())
            assert "IsolationDriverFailed" in str(found)
            series = await scrape(running)
            assert series["everstep_driver_failures_total[('driver', 'command')]"] >= 3
            assert series["everstep_driver_failures_total[('driver', 'built-in')]"] == 0
            site.broken.unlink()
            await eventually(lambda: "node-1" in site.holds())
            await eventually(lambda: record.failures == 0)
            found = await admin.ListFindings(admin_pb2.ListFindingsRequest())
            assert "IsolationDriverFailed" not in str(found)
        await channel.close()
        await running.stop()

    asyncio.run(scenario())


def test_a_start_reads_and_asks_for_nothing_that_is_so(tmp_path: Path) -> None:
    site = Site(tmp_path)

    async def scenario(*, isolate: bool) -> None:
        running = make_controller(tmp_path, site)
        await running.start()
        record = running.runtime.state.drivers["command"]
        await eventually(lambda: record.read)
        async with agent_stream(running.port, "node-1") as agent:
            if isolate:
                await agent.healthy()
                channel = admin_channel(running.port)
                request = admin_pb2.IsolateRequest(node="node-1", reason="fan", operator="ann")
                await admin_pb2_grpc.AdminStub(channel).Isolate(request)
                await channel.close()
                await eventually(lambda: "node-1" in site.holds())
                await eventually(lambda: record.nodes["node-1"].asked is None)
        await running.stop()

    asyncio.run(scenario(isolate=True))
    asyncio.run(scenario(isolate=False))
    asyncio.run(scenario(isolate=False))
    assert len(site.calls("apply")) == 1
    assert len(site.calls("read")) >= 3


def test_a_controller_that_is_killed_during_a_call_asks_for_nothing_twice(tmp_path: Path) -> None:
    site = Site(tmp_path)
    tables = (
        f"[drivers]\nread_interval_s = 0.2\n[drivers.command]\nargv = {json.dumps(site.argv)}\n"
    )

    async def isolate(port: int, node: str) -> None:
        async with admin_channel(port) as channel:
            request = admin_pb2.IsolateRequest(node=node, reason="fan", operator="ann")
            await admin_pb2_grpc.AdminStub(channel).Isolate(request)

    async def first(port: int) -> None:
        async with agent_stream(port, "node-1") as agent:
            await agent.healthy()
            await isolate(port, "node-1")
            await eventually(lambda: "node-1" in site.holds())

    async def second(port: int) -> None:
        async with agent_stream(port, "node-2") as agent:
            await agent.healthy()
            await isolate(port, "node-2")
            await eventually(lambda: "node-2" in site.holds())

    with start_controller(tmp_path, tables=tables) as running:
        asyncio.run(first(running.port))
    site.hold("node-3")
    with start_controller(tmp_path, tables=tables) as running:
        asyncio.run(second(running.port))
        assert running.terminate() == 0
    asked = [list(cast("dict[str, object]", call["wanted"])) for call in site.calls("apply")]
    assert asked == [["node-1"], ["node-2"]]
    assert {node: hold["ours"] for node, hold in site.holds().items()} == {
        "node-1": True,
        "node-2": True,
        "node-3": False,
    }


def test_a_wrong_program_is_a_mistake_of_the_configuration(tmp_path: Path) -> None:
    async def scenario() -> tuple[int, str]:
        file = tmp_path / "controller.toml"
        file.write_text('[drivers.command]\nargv = ["hold-nodes"]\n')
        command = controller_command("--config", str(file))
        process = await asyncio.create_subprocess_exec(
            *command, env=environment(), stderr=asyncio.subprocess.PIPE
        )
        _, said = await process.communicate()
        return process.returncode or 0, said.decode()

    code, said = asyncio.run(scenario())
    assert code == 78
    assert "drivers.command.argv: expected a program by its absolute path" in said


def test_groups_pauses_and_readings_are_what_operators_see_of_them(tmp_path: Path) -> None:
    """Two nodes, of which one is told to nobody; a pause that outlives a restart."""
    site = Site(tmp_path)
    groups = (
        '[groups.quiet]\nnodes = ["node-[2-3]"]\ndrivers = []\nobserve = ["XidFatal"]\n'
        '[groups.loud]\ndomains = ["rack-1"]\ndrivers = ["command"]\n'
    )
    tables = (
        f"[drivers]\nread_interval_s = 0.2\n[drivers.command]\nargv = {json.dumps(site.argv)}\n"
        f"{groups}"
    )

    async def before(port: int) -> None:
        async with (
            admin_channel(port) as channel,
            agent_stream(port, "node-1") as one,
            agent_stream(port, "node-2") as two,
        ):
            admin = admin_pb2_grpc.AdminStub(channel)
            await one.healthy()
            await two.healthy()
            for name in ("node-1", "node-2"):
                request = admin_pb2.IsolateRequest(node=name, reason="fan", operator="ann")
                await admin.Isolate(request)
            await eventually(lambda: "node-1" in site.holds())
            policy = await admin.GetPolicy(admin_pb2.GetPolicyRequest(subject="node-2"))
            decided = [r for line in policy.lines for r in line.rules if r.decides]
            expected = [("XidFatal in group quiet", "observe")]
            assert [(r.place, r.says) for r in decided] == expected
            word = admin_pb2.PauseRequest(drivers=True, reason="upgrade", operator="ann")
            paused = await admin.Pause(word)
            assert paused.drivers_paused == "ann: upgrade"
            await admin.Release(admin_pb2.ReleaseRequest(node="node-1", operator="ann"))

    async def after(port: int) -> None:
        async with admin_channel(port) as channel:
            admin = admin_pb2_grpc.AdminStub(channel)
            detail = await admin.GetNode(admin_pb2.GetNodeRequest(node="node-1"))
            # The answer of the call before the pause may have been lost: a reading shows the hold.
            while not any(one.ours and one.HasField("age_s") for one in detail.schedulers):
                await asyncio.sleep(0.05)
                detail = await admin.GetNode(admin_pb2.GetNodeRequest(node="node-1"))
            (view,) = detail.schedulers
            assert (view.driver, view.HasField("age_s"), view.waiting_since_ns > 0) == (
                "command",
                True,
                True,
            )
            assert "node-1" in site.holds()
            listed = await admin.ListNodes(admin_pb2.ListNodesRequest())
            assert listed.drivers_paused == "ann: upgrade"
            found = await admin.ListFindings(admin_pb2.ListFindingsRequest())
            assert "DriversPaused" in {one.condition for one in found.findings}
            (line,) = (await admin.ListDrivers(admin_pb2.ListDriversRequest())).drivers
            assert (list(line.waiting), line.held_ours) == (["node-1"], 1)
            await admin.Resume(admin_pb2.ResumeRequest(drivers=True, operator="ann"))
            await eventually(lambda: site.holds() == {})

    for scenario in (before, after):
        with start_controller(tmp_path, tables=tables) as running:
            asyncio.run(scenario(running.port))
            assert running.terminate() == 0
    told = {
        node for call in site.calls("apply") for node in cast("dict[str, object]", call["wanted"])
    }
    assert told == {"node-1"}
