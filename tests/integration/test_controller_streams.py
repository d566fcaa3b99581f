import asyncio
from pathlib import Path

import grpc
import pytest

from everstep_common.reports import FindingRaised
from everstep_controller.core.actions import Action
from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.events import JournaledEvent, Reported
from everstep_controller.service import Controller
from everstep_proto.generated import admin_pb2, admin_pb2_grpc, fleet_pb2
from fakes.agent_stream import AgentStream, agent_stream, stamp
from fakes.controllers import controller
from fakes.local_secret import admin_channel, shown

pytestmark = pytest.mark.timeout(60)


class FragileCore(Core):
    """Falls over one condition, after it has already changed something."""

    def handle(self, event: JournaledEvent, now_ns: int) -> list[Action]:
        actions = super().handle(event, now_ns)
        report = event.report if isinstance(event, Reported) else None
        if isinstance(report, FindingRaised) and report.finding.condition == "Poison":
            raise ZeroDivisionError("on purpose")
        return actions


def launcher(job: str = "train", nodes: int = 1) -> fleet_pb2.LauncherJoined:
    return fleet_pb2.LauncherJoined(
        token_sha256="00",
        uid=1000,
        nodes_min=nodes,
        nodes_max=nodes,
        processes_per_node=1,
        replica_nodes=1,
        restarts_max=3,
        free_port=4000,
    )


def test_a_node_that_passes_its_check_takes_the_ranks_of_a_job(tmp_path: Path) -> None:
    async def scenario() -> tuple[fleet_pb2.Order, Controller]:
        async with controller(tmp_path) as running, agent_stream(running.port, "node-1") as agent:
            await agent.healthy()
            await agent.record(2, launcher_joined=launcher())
            order = await agent.order("start_generation")
            return order, running

    order, running = asyncio.run(scenario())
    start = order.start_generation
    assert (start.job, start.generation, start.world_size) == ("train", 1, 1)
    assert not start.HasField("restore_step")
    assert len(start.transfer_key) == 32
    assert order.term == running.runtime.state.term == 1


async def run_to_step(agent: AgentStream, step: int) -> fleet_pb2.VaultDirective:
    await agent.record(2, launcher_joined=launcher())
    await agent.order("start_generation")
    for sequence, phase in enumerate(
        (fleet_pb2.PHASE_STARTED, fleet_pb2.PHASE_ATTACHED, fleet_pb2.PHASE_RESTORED), start=3
    ):
        reached = fleet_pb2.PhaseReached(generation=1, phase=phase, at_boot_ns=5)
        await agent.record(sequence, phase_reached=reached)
    ends = list(range(10, 10 + step + 1))
    progress = fleet_pb2.StepsCompleted(
        generation=1, first_step=0, end_boot_ns=ends, stall_ns=[0] * len(ends)
    )
    await agent.record(6, steps_completed=progress)
    copy = fleet_pb2.VaultCopy(
        generation=1, rank=0, step=step, root_hash=b"hash", size_bytes=8, layout=b"w"
    )
    await agent.send(vault=fleet_pb2.VaultReport(job="train", copies=[copy]))
    while not (directive := (await agent.wait_for("vault")).vault).HasField("recoverable_step"):
        pass
    return directive


def test_a_job_goes_back_to_the_newest_step_that_its_vaults_hold(tmp_path: Path) -> None:
    async def scenario() -> tuple[fleet_pb2.VaultDirective, fleet_pb2.StartGeneration]:
        async with controller(tmp_path) as running, agent_stream(running.port, "node-1") as agent:
            await agent.healthy()
            directive = await run_to_step(agent, 7)
            exited = fleet_pb2.RankExited(generation=1, rank=0, signal=9, at_boot_ns=30)
            await agent.record(7, rank_exited=exited)
            await agent.order("stop_generation")
            copy = fleet_pb2.VaultCopy(
                generation=1, rank=0, step=7, root_hash=b"hash", size_bytes=8, layout=b"w"
            )
            report = fleet_pb2.VaultReport(job="train", copies=[copy], settled_generation=1)
            await agent.send(vault=report)
            stopped = fleet_pb2.GenerationStopped(generation=1, at_boot_ns=40, free_port=4001)
            await agent.record(8, generation_stopped=stopped)
            return directive, (await agent.order("start_generation")).start_generation

    directive, start = asyncio.run(scenario())
    assert (directive.recoverable_step, directive.generation) == (7, 1)
    assert (start.generation, start.restore_step) == (2, 7)
    assert [(s.node, s.step, s.root_hash) for s in start.sources] == [("node-1", 7, b"hash")]


def test_a_second_stream_of_a_node_replaces_the_first(tmp_path: Path) -> None:
    async def scenario() -> tuple[grpc.StatusCode, str]:
        async with (
            controller(tmp_path) as running,
            agent_stream(running.port, "node-1") as first,
            agent_stream(running.port, "node-1") as second,
        ):
            await first.hello()
            await second.hello()
            ended = await first.end()
            await second.finding(1)
            await second.acknowledged(1)
            assert running.runtime.state.nodes["node-1"].liveness.connected
            return ended

    code, sentence = asyncio.run(scenario())
    assert code is grpc.StatusCode.ABORTED
    assert "newer stream" in sentence


MALFORMED = {
    "no hello": [fleet_pb2.AgentMessage(peer=fleet_pb2.PeerReport(peer="x"))],
    "an empty message": [fleet_pb2.AgentMessage()],
    "a bad name": [fleet_pb2.AgentMessage(hello=fleet_pb2.Hello(node="../etc", outbox="o"))],
}


@pytest.mark.parametrize("messages", MALFORMED.values(), ids=MALFORMED.keys())
def test_what_is_no_proper_beginning_ends_the_stream(
    tmp_path: Path, messages: list[fleet_pb2.AgentMessage]
) -> None:
    async def scenario() -> tuple[grpc.StatusCode, str]:
        async with controller(tmp_path) as running, agent_stream(running.port, "node-1") as agent:
            for message in messages:
                await agent.call.write(message)
            return await agent.end()

    code, sentence = asyncio.run(scenario())
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert sentence


def test_a_second_hello_ends_only_its_own_stream(tmp_path: Path) -> None:
    async def scenario() -> tuple[grpc.StatusCode, str]:
        async with (
            controller(tmp_path) as running,
            agent_stream(running.port, "good") as good,
            agent_stream(running.port, "bad") as bad,
        ):
            await good.hello()
            await bad.hello()
            await bad.send(hello=fleet_pb2.Hello(node="bad", outbox="o", stamp=stamp()))
            ended = await bad.end()
            await good.finding(1)
            await good.acknowledged(1)
            return ended

    code, sentence = asyncio.run(scenario())
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "second Hello" in sentence


def test_bytes_that_are_no_message_are_answered_with_a_sentence(tmp_path: Path) -> None:
    async def scenario() -> tuple[grpc.StatusCode, str]:
        async with (
            controller(tmp_path) as running,
            admin_channel(running.port) as channel,
        ):
            call: grpc.aio.StreamStreamCall[bytes, bytes] = channel.stream_stream(
                "/everstep.fleet.v1.Fleet/Connect"
            )(metadata=shown())
            await call.write(b"\xff\xff\xff\xff")
            code, details = await call.code(), await call.details()
            assert isinstance(code, grpc.StatusCode)
            return code, details or ""

    code, sentence = asyncio.run(scenario())
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "not a message" in sentence


def test_an_event_that_makes_the_core_raise_is_rejected_and_pauses_its_node(tmp_path: Path) -> None:
    async def scenario() -> tuple[admin_pb2.ListFindingsReply, Controller]:
        async with (
            controller(tmp_path, FragileCore) as running,
            agent_stream(running.port, "node-1") as agent,
            admin_channel(running.port) as channel,
        ):
            await agent.hello()
            await agent.finding(1)
            await agent.finding(2, "Poison")
            await agent.finding(3)
            await agent.acknowledged(3)
            # The rejection is an event of its own; what is journaled after it shows that it is in.
            await agent.finding(4)
            await agent.acknowledged(4)
            admin = admin_pb2_grpc.AdminStub(channel)
            return await admin.ListFindings(admin_pb2.ListFindingsRequest()), running

    found, running = asyncio.run(scenario())
    lines = {(line.node, line.component): line.condition for line in found.findings}
    assert lines[("controller", "controller/core")] == "EventRejected"
    assert ("node-1", "disk/2") not in lines
    assert ("node-1", "disk/3") in lines
    assert "ZeroDivisionError" in running.runtime.state.paused["node-1"]


def test_after_a_rejected_event_a_restart_comes_to_the_same_state(tmp_path: Path) -> None:
    async def poison() -> None:
        async with (
            controller(tmp_path, FragileCore) as running,
            agent_stream(running.port, "node-1") as agent,
        ):
            await agent.hello()
            await agent.finding(1, "Poison")
            await agent.acknowledged(1)

    async def again() -> set[str]:
        async with controller(tmp_path, FragileCore) as running:
            return set(running.runtime.state.nodes["node-1"].health.findings)

    asyncio.run(poison())
    assert asyncio.run(again()) == set()


def test_a_journal_that_is_older_than_its_agents_acts_on_nothing_until_it_is_rebuilt(
    tmp_path: Path,
) -> None:
    async def scenario() -> tuple[str, fleet_pb2.ControllerMessage | None]:
        async with controller(tmp_path) as running, agent_stream(running.port, "node-1") as agent:
            assert (await agent.hello(term=9)).halted
            await agent.finding(1)
            order = next((m for m in agent.seen if m.WhichOneof("body") == "order"), None)
            return running.runtime.state.halted, order

    halted, order = asyncio.run(scenario())
    assert "everstep-controller recover" in halted
    assert order is None


def test_a_recovery_hears_the_agents_before_it_acts_again(tmp_path: Path) -> None:
    async def scenario() -> tuple[str, list[str]]:
        async with controller(tmp_path, recover_by="ann") as running:
            halted = running.runtime.state.halted
            async with agent_stream(running.port, "node-1") as agent:
                await agent.hello(term=9)
                await agent.finding(1)
                timers = list(running.runtime.state.timers)
            return halted, timers

    halted, timers = asyncio.run(scenario())
    assert "ordered by ann" in halted
    assert "recovery" in timers


def test_a_restart_in_the_middle_of_a_recovery_ends_at_the_same_step(tmp_path: Path) -> None:
    async def until_stopping() -> None:
        async with controller(tmp_path) as running, agent_stream(running.port, "node-1") as agent:
            await agent.healthy()
            await run_to_step(agent, 7)
            exited = fleet_pb2.RankExited(generation=1, rank=0, signal=9, at_boot_ns=9)
            await agent.record(7, rank_exited=exited)
            await agent.order("stop_generation")

    async def after_restart() -> fleet_pb2.StartGeneration:
        async with controller(tmp_path) as running, agent_stream(running.port, "node-1") as agent:
            await agent.hello(jobs=(fleet_pb2.JobOnNode(job="train", generation=1, launcher=True),))
            await agent.order("stop_generation")
            stopped = fleet_pb2.GenerationStopped(generation=1, at_boot_ns=40, free_port=4001)
            await agent.record(8, generation_stopped=stopped)
            await agent.acknowledged(8)
            copy = fleet_pb2.VaultCopy(
                generation=1, rank=0, step=7, root_hash=b"hash", size_bytes=8, layout=b"w"
            )
            report = fleet_pb2.VaultReport(job="train", copies=[copy], settled_generation=1)
            await agent.send(vault=report)
            return (await agent.order("start_generation")).start_generation

    asyncio.run(until_stopping())
    start = asyncio.run(after_restart())
    assert (start.generation, start.restore_step) == (2, 7)
