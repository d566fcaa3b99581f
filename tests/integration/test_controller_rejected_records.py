"""Records that the controller cannot use: acknowledged, told to people, and nobody else's trouble.

A real controller with its journal, and a stream over real gRPC.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from everstep_agent.backoff import Backoff
from everstep_agent.persistence.agent_database import Remembered
from everstep_agent.persistence.disk_store import LostStore
from everstep_agent.persistence.outbox import Outbox
from everstep_agent.uplink import Uplink, UplinkSettings
from everstep_common.clock import stamp_clock
from everstep_controller.service import Controller
from everstep_proto.generated import admin_pb2, admin_pb2_grpc, fleet_pb2
from everstep_proto.record_codec import to_wire
from fakes.agent_stream import AgentStream, agent_stream, stamp
from fakes.controllers import controller
from fakes.local_secret import access_to, admin_channel, shown
from fakes.waits import eventually

pytestmark = pytest.mark.timeout(60)


def joined(**wrong: object) -> fleet_pb2.LauncherJoined:
    launcher = fleet_pb2.LauncherJoined(
        token_sha256="00",
        uid=1000,
        nodes_min=1,
        nodes_max=1,
        processes_per_node=1,
        replica_nodes=1,
        restarts_max=3,
        free_port=4000,
    )
    launcher.MergeFrom(fleet_pb2.LauncherJoined(**wrong))  # type: ignore[arg-type]
    return launcher


def without(field: str) -> fleet_pb2.LauncherJoined:
    launcher = joined()
    launcher.ClearField(field)  # type: ignore[arg-type]
    return launcher


HALF = fleet_pb2.FindingRaised(finding=fleet_pb2.Finding(component="x"))
BAD_RECORDS: dict[str, dict[str, object]] = {
    "no processes": {"launcher_joined": without("processes_per_node")},
    "no nodes": {"launcher_joined": without("nodes_min")},
    "more at least than at most": {"launcher_joined": joined(nodes_min=2)},
    "copies that do not fit": {"launcher_joined": joined(replica_nodes=2)},
    "storage nowhere": {"launcher_joined": joined(storage=fleet_pb2.Storage())},
    "a name that is none": {"launcher_joined": joined(), "job": "../etc"},
    "data backwards": {
        "rollback_asked": fleet_pb2.RollbackAsked(skip=fleet_pb2.DataRange(first=3, last=2))
    },
    "a phase of tomorrow": {"phase_reached": fleet_pb2.PhaseReached()},
    "uneven progress": {"steps_completed": fleet_pb2.StepsCompleted(end_boot_ns=[1])},
    "half a finding": {"finding_raised": HALF},
    "no body": {},
}
BAD_MESSAGES: dict[str, dict[str, object]] = {
    "samples": {"samples": fleet_pb2.SampleBatch(schema=1, rows=b"half")},
    "kernel": {"kernel": fleet_pb2.KernelMessages(lines=[fleet_pb2.KernelMessage(text="x")])},
    "time_reply": {"time_reply": fleet_pb2.TimeReply(sent_ns=1)},
    "peer": {"peer": fleet_pb2.PeerReport(peer="../etc")},
    "evidence": {"evidence": fleet_pb2.PeerEvidence(peer="../etc")},
    "pong": {"pong": fleet_pb2.Pong()},
    "vault": {"vault": fleet_pb2.VaultReport(job="train", copies=[fleet_pb2.VaultCopy()])},
    "record": {"record": fleet_pb2.Record(stamp=stamp())},
    "message": {},
}


async def rejected(running: Controller) -> list[admin_pb2.FindingLine]:
    """Return what people see of rejected records, as the admin API tells it."""
    async with admin_channel(running.port) as channel:
        admin = admin_pb2_grpc.AdminStub(channel)
        reply = await admin.ListFindings(admin_pb2.ListFindingsRequest())
    return [line for line in reply.findings if line.condition == "RecordRejected"]


@pytest.mark.parametrize("bad", BAD_RECORDS.values(), ids=BAD_RECORDS.keys())
def test_a_bad_record_holds_up_no_other_job_and_people_see_it(
    tmp_path: Path, bad: dict[str, object]
) -> None:
    async def scenario() -> list[admin_pb2.FindingLine]:
        async with controller(tmp_path) as running, agent_stream(running.port, "node-1") as agent:
            await agent.healthy()
            await agent.record(2, job="before", launcher_joined=joined())
            await agent.record(3, **{"job": "bad"} | bad)  # type: ignore[arg-type]
            await agent.record(4, job="after", launcher_joined=joined())
            await agent.acknowledged(4)
            assert running.runtime.state.names.keys() == {"before", "after"}
            assert running.runtime.state.nodes["node-1"].liveness.connected
            assert running.runtime.state.paused == {}
            return await rejected(running)

    (line,) = asyncio.run(scenario())
    assert line.node == "controller"
    kind = next(iter(bad), "record")
    # Of a launcher the record itself says whose it is.
    user = "/1000" if kind == "launcher_joined" else ""
    assert line.component == f"controller/records/node-1/{kind}{user}"
    assert line.message
    assert "1 so far" in line.evidence


def test_after_a_restart_it_is_known_and_not_asked_for_again(tmp_path: Path) -> None:
    async def first() -> None:
        async with controller(tmp_path) as running, agent_stream(running.port, "node-1") as agent:
            await agent.hello()
            await agent.record(1, job="bad", launcher_joined=without("processes_per_node"))
            await agent.record(2, job="bad", launcher_joined=without("nodes_min"))
            await agent.acknowledged(2)

    async def second() -> tuple[int, list[admin_pb2.FindingLine]]:
        async with controller(tmp_path) as running, agent_stream(running.port, "node-1") as agent:
            welcome = await agent.hello()
            return welcome.acknowledged, await rejected(running)

    asyncio.run(first())
    acknowledged, (line,) = asyncio.run(second())
    assert acknowledged == 2
    assert "--nproc-per-node 0" in line.message
    assert "2 so far, of job bad" in line.evidence


def test_a_flood_of_bad_records_is_acknowledged_and_one_row_of_the_journal(tmp_path: Path) -> None:
    async def scenario() -> int:
        async with controller(tmp_path) as running, agent_stream(running.port, "node-1") as agent:
            await agent.hello()
            await agent.record(1, finding_raised=HALF)
            await agent.acknowledged(1)
            before = running.runtime.seq
            for sequence in range(2, 502):
                await agent.record(sequence, finding_raised=HALF)
            await agent.acknowledged(501)
            return running.runtime.seq - before

    assert asyncio.run(scenario()) <= 1


async def still_up(agent: AgentStream, sequence: int) -> None:
    await agent.finding(sequence)
    await agent.acknowledged(sequence)


@pytest.mark.parametrize(("kind", "bad"), BAD_MESSAGES.items(), ids=BAD_MESSAGES.keys())
def test_another_message_that_cannot_be_used_is_left_out_and_told(
    tmp_path: Path, kind: str, bad: dict[str, object]
) -> None:
    async def scenario() -> list[admin_pb2.FindingLine]:
        async with controller(tmp_path) as running, agent_stream(running.port, "node-1") as agent:
            await agent.hello()
            await agent.send(**bad)
            await still_up(agent, 1)
            await eventually(lambda: bool(running.runtime.state.rejected_records))
            return await rejected(running)

    (line,) = asyncio.run(scenario())
    assert line.component == f"controller/records/node-1/{kind}"


def test_a_record_with_a_number_that_no_journal_holds_stops_nobody(tmp_path: Path) -> None:
    async def scenario() -> list[admin_pb2.FindingLine]:
        async with controller(tmp_path) as running, agent_stream(running.port, "node-1") as agent:
            await agent.hello()
            finding = fleet_pb2.Finding(component="disk/1", condition="Odd", message="odd")
            raised = fleet_pb2.FindingRaised(finding=finding, since=stamp())
            record = fleet_pb2.Record(sequence=2**63, stamp=stamp(), finding_raised=raised)
            await agent.send(record=record)
            await still_up(agent, 1)
            return await rejected(running)

    (line,) = asyncio.run(scenario())
    assert "whose sequence is 9223372036854775808" in line.message


def test_bytes_that_are_no_message_end_no_stream_and_are_told(tmp_path: Path) -> None:
    async def scenario() -> list[admin_pb2.FindingLine]:
        async with (
            controller(tmp_path) as running,
            grpc.aio.insecure_channel(f"127.0.0.1:{running.port}") as channel,
        ):
            call: grpc.aio.StreamStreamCall[bytes, bytes] = channel.stream_stream(
                "/everstep.fleet.v1.Fleet/Connect"
            )(metadata=shown())
            hello = fleet_pb2.Hello(node="node-1", outbox="o", stamp=stamp(), host="h")
            await call.write(fleet_pb2.AgentMessage(hello=hello).SerializeToString())
            check = fleet_pb2.CheckFinished(order_id="o", passed=True, message="fine")
            record = fleet_pb2.Record(sequence=2, stamp=stamp(), check_finished=check)
            for sent in (b"\xff" * 8, fleet_pb2.AgentMessage(record=record).SerializeToString()):
                await call.write(sent)
            acknowledged = 0
            async with asyncio.timeout(20):
                while acknowledged < 2:
                    told = fleet_pb2.ControllerMessage.FromString(await call.read())  # type: ignore[arg-type]
                    acknowledged = max(acknowledged, told.ack.sequence)
            call.cancel()
            return await rejected(running)

    (line,) = asyncio.run(scenario())
    assert line.component == "controller/records/node-1/message"


def test_a_hello_that_cannot_be_used_is_a_finding_of_a_node_that_is_known(tmp_path: Path) -> None:
    async def scenario() -> list[admin_pb2.FindingLine]:
        async with controller(tmp_path) as running:
            async with agent_stream(running.port, "node-1") as agent:
                await agent.hello()
            for node in ("node-1", "never-seen"):
                async with agent_stream(running.port, node) as agent:
                    await agent.send_hello(jobs=(fleet_pb2.JobOnNode(job="../etc"),))
                    code, _ = await agent.end()
                    assert code is grpc.StatusCode.INVALID_ARGUMENT
            await eventually(lambda: bool(running.runtime.state.rejected_records))
            return await rejected(running)

    (line,) = asyncio.run(scenario())
    assert line.component == "controller/records/node-1/hello"
    assert "--job '../etc'" in line.message


def test_a_record_is_of_the_user_that_its_agent_names_or_else_of_its_job(tmp_path: Path) -> None:
    async def scenario() -> list[str]:
        async with controller(tmp_path) as running, agent_stream(running.port, "node-1") as agent:
            await agent.healthy()
            await agent.record(2, job="train", launcher_joined=joined(uid=1042))
            await agent.acknowledged(2)
            bad = fleet_pb2.PhaseReached(generation=1)
            await agent.record(3, job="train", uid=7, phase_reached=bad)
            # An agent of the version before says no user.
            await agent.record(4, job="train", phase_reached=bad)
            await agent.record(5, job="unknown", phase_reached=bad)
            await agent.acknowledged(5)
            return [line.component for line in await rejected(running)]

    place = "controller/records/node-1/phase_reached"
    assert asyncio.run(scenario()) == [f"{place}/7", f"{place}/1042", place]


def test_a_stream_that_ends_again_and_again_for_one_message_says_for_which(tmp_path: Path) -> None:
    change = fleet_pb2.VaultReport(job="train", change=True)

    async def scenario() -> list[admin_pb2.FindingLine]:
        async with controller(tmp_path) as running:
            async with agent_stream(running.port, "node-1") as agent:
                await agent.healthy()
                await agent.record(2, job="train", launcher_joined=joined(uid=1042))
                await agent.acknowledged(2)
            for _ in range(6):
                async with agent_stream(running.port, "node-1") as agent:
                    await agent.hello()
                    await agent.send(vault=change)
                    await agent.end()
            node = running.runtime.state.nodes["node-1"]
            await eventually(lambda: bool(node.streams.flaps_since_ns))
            async with admin_channel(running.port) as channel:
                admin = admin_pb2_grpc.AdminStub(channel)
                reply = await admin.ListFindings(admin_pb2.ListFindingsRequest())
            return list(reply.findings)

    found = {line.condition: line for line in asyncio.run(scenario())}
    assert "vault of user 1042: a change of a list" in found["StreamFlapping"].evidence
    assert found["RecordRejected"].component == "controller/records/node-1/vault/1042"


def test_changes_of_a_list_of_copies_that_could_not_be_used_are_left_out_with_it(
    tmp_path: Path,
) -> None:
    change = fleet_pb2.VaultReport(job="train", change=True)

    async def scenario() -> tuple[grpc.StatusCode, str]:
        async with controller(tmp_path) as running, agent_stream(running.port, "node-1") as agent:
            await agent.hello()
            await agent.send(**BAD_MESSAGES["vault"])
            await agent.send(vault=change)
            await still_up(agent, 1)
            await agent.send(vault=fleet_pb2.VaultReport(job="train"))
            await agent.send(vault=change)
            # The list before it was told empty, so there is none to change.
            return await agent.end()

    code, sentence = asyncio.run(scenario())
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "was not told" in sentence


class Deaf:
    """An agent that does nothing of what it is told, but counts the copies to restore."""

    def __init__(self, heard: list[int]) -> None:
        self._heard = heard

    def on_welcome(self, welcome: fleet_pb2.Welcome, forgotten: bool) -> None:
        pass

    def on_halted(self) -> None:
        pass

    def on_away(self) -> None:
        pass

    def on_message(self, message: fleet_pb2.ControllerMessage) -> None:
        if message.order.HasField("start_generation"):
            self._heard.append(len(message.order.start_generation.sources))


@asynccontextmanager
async def uplink(port: int, heard: list[int] | None = None) -> AsyncIterator[tuple[Outbox, Uplink]]:
    """Run an agent's own outbox and uplink."""
    now = stamp_clock()
    outbox = Outbox(LostStore("test"), Remembered("outbox-1"), now, 10_000)
    settings = UplinkSettings(controllers=(access_to(port),), connect_timeout_s=5.0, silence_s=30.0)
    up = Uplink(settings, outbox, now, Backoff(random.Random(1), first_s=0.02, cap_s=0.1))

    def hello() -> fleet_pb2.Hello:
        return fleet_pb2.Hello(
            node="node-1", outbox="outbox-1", stamp=to_wire(now(), fleet_pb2.Stamp)
        )

    running = asyncio.create_task(up.run(hello, Deaf([] if heard is None else heard)))
    try:
        yield outbox, up
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


def test_an_order_of_more_than_four_mebibytes_reaches_its_agent_and_a_longer_one_ends_no_stream(
    tmp_path: Path,
) -> None:
    """Four MiB are what gRPC takes unasked; a job of 16,384 ranks is told more."""

    def order(sources: int) -> fleet_pb2.ControllerMessage:
        source = fleet_pb2.ShardSource(node="n" * 200, bulk_address="b" * 200)
        start = fleet_pb2.StartGeneration(job="train", sources=[source] * sources)
        return fleet_pb2.ControllerMessage(order=fleet_pb2.Order(start_generation=start))

    async def scenario() -> tuple[list[int], int]:
        heard: list[int] = []
        async with controller(tmp_path) as running, uplink(running.port, heard) as (outbox, up):
            outbox.record(fleet_pb2.Record(job="train", launcher_joined=joined()))
            await eventually(lambda: bool(up.streams) and not outbox.counts.waiting)
            session = running.parts.fleet.sessions.of("node-1")
            assert session is not None
            session.send(order(20_000))
            session.send(order(200_000))
            session.send(order(1))
            await eventually(lambda: len(heard) >= 2)
            return heard, up.streams

    assert asyncio.run(scenario()) == ([20_000, 1], 1)


def test_an_agent_gets_rid_of_a_bad_record_on_its_first_stream(tmp_path: Path) -> None:
    async def scenario() -> int:
        async with controller(tmp_path) as running, uplink(running.port) as (outbox, up):
            bad = without("processes_per_node")
            for job, launcher in (("before", joined()), ("bad", bad), ("after", joined())):
                outbox.record(fleet_pb2.Record(job=job, launcher_joined=launcher))
            await eventually(lambda: bool(up.streams) and not outbox.counts.waiting)
            assert running.runtime.state.names.keys() == {"before", "after"}
            return up.streams

    assert asyncio.run(scenario()) == 1
