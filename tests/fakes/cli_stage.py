"""A job of two ranks on two nodes at a real controller, its agents fakes, and the command line."""

import asyncio
import io
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from everstep_cli.client.grpc_admin import connect
from everstep_cli.commands.session import AdminSession
from everstep_cli.main import run_command, screen
from everstep_controller.service import Controller
from everstep_proto.generated import fleet_pb2
from fakes.agent_stream import AgentStream, agent_stream
from fakes.controllers import controller
from fakes.local_secret import SECRET_FILE
from fakes.waits import eventually

NODES = ("node-1", "node-2")
GIB = 1 << 30


@dataclass(frozen=True)
class Answer:
    """What a command ended with."""

    code: int
    drawn: str
    out: str
    err: str

    @property
    def text(self) -> str:
        """Return what was drawn, as one line."""
        return " ".join(self.drawn.split())


@dataclass(frozen=True)
class Stage:
    """A job of two ranks on two nodes, and the command line."""

    running: Controller
    agents: dict[str, AgentStream]
    capture: pytest.CaptureFixture[str]

    async def everstep(self, *arguments: str) -> Answer:
        """Run a command against the controller."""
        self.capture.readouterr()
        drawn = io.StringIO()
        session = AdminSession(connect, screen(drawn, 80), time.time_ns)
        address = f"127.0.0.1:{self.running.port}"
        there = ["--controller", address, "--secret-file", str(SECRET_FILE)]
        code = await asyncio.to_thread(run_command, session, [*arguments, *there])
        told = self.capture.readouterr()
        return Answer(code, drawn.getvalue(), told.out, told.err)

    async def until(self, words: str, *arguments: str) -> Answer:
        """Ask until the answer has these words."""

        async def told() -> Answer | None:
            answer = await self.everstep(*arguments)
            return answer if words in answer.text else None

        return await eventually(told)

    async def report(self, node: str, *steps: int, replicas: bool = True) -> None:
        """Tell that a node holds its rank's snapshots of these steps, and the other's too."""
        ranks = [NODES.index(node)] + ([1 - NODES.index(node)] if replicas else [])
        copies = [copy(node, rank, step) for step in steps for rank in ranks]
        report = fleet_pb2.VaultReport(job="train", copies=copies, settled_generation=1)
        await self.agents[node].send(vault=report)

    async def end(self) -> None:
        """End the job as its user does."""
        left = fleet_pb2.LauncherLeft(reason="interrupted by its user", by_user=True)
        for node in NODES:
            await self.agents[node].record(9, launcher_left=left)
        for node in NODES:
            await self.agents[node].order("end_job")


def copy(node: str, rank: int, step: int) -> fleet_pb2.VaultCopy:
    return fleet_pb2.VaultCopy(
        generation=1, rank=rank, step=step, root_hash=bytes([rank, step]) * 8, size_bytes=GIB,
        replica=NODES[rank] != node, layout=bytes([rank]) * 16,
    )  # fmt: skip


def launcher() -> fleet_pb2.LauncherJoined:
    return fleet_pb2.LauncherJoined(
        token_sha256="00", uid=1000, nodes_min=2, nodes_max=2, processes_per_node=1,
        replica_nodes=1, restarts_max=3, free_port=4000,
    )  # fmt: skip


async def begin(agent: AgentStream) -> None:
    """Bring a node's rank to its first steps."""
    await agent.order("start_generation")
    phases = (fleet_pb2.PHASE_STARTED, fleet_pb2.PHASE_ATTACHED, fleet_pb2.PHASE_RESTORED)
    for sequence, phase in enumerate(phases, start=3):
        reached = fleet_pb2.PhaseReached(generation=1, phase=phase, at_boot_ns=5)
        await agent.record(sequence, phase_reached=reached)
    ends = list(range(10, 20))
    progress = fleet_pb2.StepsCompleted(
        generation=1, first_step=0, end_boot_ns=ends, stall_ns=[0] * len(ends)
    )
    await agent.record(6, steps_completed=progress)


@asynccontextmanager
async def training(folder: Path, capture: pytest.CaptureFixture[str]) -> AsyncIterator[Stage]:
    """Run a controller and a job that has done step 9 on two nodes."""
    async with (
        controller(folder) as running,
        agent_stream(running.port, NODES[0]) as first,
        agent_stream(running.port, NODES[1]) as second,
    ):
        agents = {NODES[0]: first, NODES[1]: second}
        for agent in agents.values():
            await agent.healthy()
            await agent.record(2, launcher_joined=launcher())
        for agent in agents.values():
            await begin(agent)
        stage = Stage(running, agents, capture)
        await stage.until("running", "job", "train")
        yield stage
