"""What an agent tells of ranks that died, and the command line shows: with gRPC and a journal."""

import asyncio
from pathlib import Path

import pytest

from everstep_proto.generated import admin_pb2, admin_pb2_grpc, fleet_pb2
from fakes.agent_stream import AgentStream, agent_stream
from fakes.controllers import controller
from fakes.local_secret import admin_channel
from integration.test_controller_streams import launcher

pytestmark = pytest.mark.timeout(60)

_KILLED = fleet_pb2.RankExited(
    generation=1,
    rank=3,
    signal=9,
    at_boot_ns=7,
    kind="host_memory",
    exception="the kernel killed it because memory ran out",
    core_dumped=True,
    core_file="/tmp/core.77",
)
_STOPPED = fleet_pb2.GenerationStopped(
    generation=1, at_boot_ns=9, free_port=29501, abandoned=[70, 71]
)


async def _die(agent: AgentStream) -> None:
    """A job of one node runs, one of its ranks is killed, two processes are left behind."""
    await agent.healthy()
    await agent.record(2, launcher_joined=launcher())
    await agent.order("start_generation")
    await agent.record(3, rank_exited=_KILLED)
    await agent.record(4, generation_stopped=_STOPPED)
    await agent.acknowledged(4)


def test_who_died_and_what_was_left_is_told_also_after_a_restart(tmp_path: Path) -> None:
    async def ask(port: int) -> tuple[admin_pb2.Incident, ...]:
        async with admin_channel(port) as channel:
            admin = admin_pb2_grpc.AdminStub(channel)
            job = await admin.GetJob(admin_pb2.GetJobRequest(job="train"))
            why = await admin.Why(admin_pb2.WhyRequest(name="train"))
            fleet = await admin.ListIncidents(admin_pb2.ListIncidentsRequest(open=True))
            return job.incidents[-1], why.incident, *fleet.incidents

    async def scenario() -> list[admin_pb2.Incident]:
        async with controller(tmp_path) as running, agent_stream(running.port, "n") as agent:
            await _die(agent)
            before = await ask(running.port)
        async with controller(tmp_path) as running:
            return [*before, *await ask(running.port)]

    told = asyncio.run(scenario())
    assert len(told) == 2 * 3, "the job has it, its explanation, and the fleet's list"
    for incident in told:
        assert incident.kind == "job"
        (job_id,) = incident.subjects
        assert job_id.startswith("train-")
        assert incident.incident == f"{job_id}.1"
        assert [(part.cause, part.node) for part in incident.parts] == [("process", "n")]
        (death,) = incident.deaths
        assert (death.rank, death.node, death.generation, death.signal) == (3, "n", 1, 9)
        assert (death.kind, death.said) == ("host_memory", _KILLED.exception)
        assert (death.core_dumped, death.core_file) == (True, "/tmp/core.77")
        assert not death.HasField("step")
        (left,) = incident.left_behind
        assert "generation 1 on n" in left
        assert "70, 71" in left


def test_a_node_has_no_incident(tmp_path: Path) -> None:
    async def scenario() -> admin_pb2.WhyReply:
        async with (
            controller(tmp_path) as running,
            agent_stream(running.port, "n") as agent,
            admin_channel(running.port) as channel,
        ):
            await _die(agent)
            reply = await admin_pb2_grpc.AdminStub(channel).Why(admin_pb2.WhyRequest(name="n"))
            assert isinstance(reply, admin_pb2.WhyReply)
            return reply

    assert not asyncio.run(scenario()).HasField("incident")
