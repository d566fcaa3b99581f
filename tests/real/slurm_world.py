"""A world of a controller, a Slurm and its people: random events, and what has to hold after each.

The controller is a process that can be killed, its nodes are streams of agents, and Slurm is real.
What Slurm shows is compared with a model of each node after every event that is about it.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import grpc

from everstep_proto.generated import admin_pb2, admin_pb2_grpc
from fakes.agent_stream import AgentStream, agent_stream
from fakes.controllers import ControllerProcess, start_controller
from fakes.local_secret import admin_channel
from fakes.waits import eventually
from real.slurm_drains import Drains

_PATIENCE_S = 120
_OURS = "everstep: "

T = TypeVar("T")


@dataclass(slots=True)
class NodeModel:
    """What has to be so of one node."""

    claimed: bool = False
    # The reason with which somebody drained it; empty: nobody has.
    theirs: str = ""
    # Somebody freed it in spite of the claim: it is not drained again before the next claim.
    overridden: bool = False

    @property
    def is_ours(self) -> bool:
        """Whether Slurm has to withhold it for us."""
        return self.claimed and not self.theirs and not self.overridden


@dataclass(slots=True)
class World:
    """A controller, a Slurm, and the nodes of both, with the events that happen to them."""

    drains: Drains
    folder: Path
    rng: random.Random
    nodes: dict[str, NodeModel]
    controller: ControllerProcess | None = None
    streams: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)
    agents: dict[str, AgentStream] = field(default_factory=dict)
    # How often Slurm came to withhold a node for us: each is one change, and there are no others.
    changes: int = 0
    told: list[str] = field(default_factory=list)

    async def play(self, events: int) -> None:
        """Let so many things happen; every node is as its model says after each."""
        kinds = [self.isolate, self.release, self.drain, self.free]
        for number in range(events):
            if number % 40 == 20:
                await self.restart_slurmctld()
            elif number % 60 == 40:
                await self.kill_controller()
            else:
                name = self.rng.choice(list(self.nodes))
                await self.rng.choice(kinds)(name)
                if self.rng.random() < 0.7:
                    await self.settled(name)
        for name in self.nodes:
            await self.settled(name)
        assert self.drains.said(f"reason set to: {_OURS}") <= self.changes, self.told

    async def isolate(self, name: str) -> None:
        """Have an operator claim a node; a node that nobody withholds is drained."""
        await self.settled(name)
        model = self.nodes[name]
        if not model.claimed:
            request = admin_pb2.IsolateRequest(node=name, reason=_hostile(self.rng), operator="ann")
            await self._asked(lambda admin: admin.Isolate(request))
            model.claimed = True
            self.changes += model.is_ours
            self.told.append(f"isolate {name}")

    async def release(self, name: str) -> None:
        """Have the operator give it back."""
        await self.settled(name)
        model = self.nodes[name]
        if model.claimed:
            request = admin_pb2.ReleaseRequest(node=name, operator="ann")
            await self._asked(lambda admin: admin.Release(request))
            model.claimed = model.overridden = False
            self.told.append(f"release {name}")

    async def drain(self, name: str) -> None:
        """Have somebody else drain it, or write another reason where we have."""
        await self.settled(name)
        model = self.nodes[name]
        if not model.theirs:
            model.theirs = f"bob: ticket {self.rng.randrange(10**6)}"
            self.drains.update(name, "state=drain", f"reason={model.theirs}")
            self.told.append(f"bob drains {name}")

    async def free(self, name: str) -> None:
        """Have somebody else resume it, whoever drained it."""
        await self.settled(name)
        model = self.nodes[name]
        if model.theirs or model.is_ours:
            model.overridden = model.overridden or model.is_ours
            model.theirs = ""
            self.drains.update(name, "state=resume")
            self.changes += model.is_ours
            self.told.append(f"bob frees {name}")

    async def restart_slurmctld(self) -> None:
        """Have Slurm's controller restarted; it keeps its state."""
        self.told.append("slurmctld is restarted")
        await asyncio.to_thread(self.drains.slurm.restart_controller)

    async def kill_controller(self) -> None:
        """Kill the controller at any moment, and start it again."""
        self.told.append("the controller is killed")
        await self.stop()
        await self.start()

    async def start(self) -> None:
        """Start the controller, and connect an agent of each node."""
        tables = (
            "[drivers]\nread_interval_s = 0.3\n[drivers.slurm]\nenabled = true\n"
            f'conf_file = "{self.drains.conf}"\n'
        )
        self.controller = await asyncio.to_thread(start_controller, self.folder, tables=tables)
        first = not self.agents
        for name in self.nodes:
            stream = agent_stream(self.controller.port, name)
            self.agents[name] = await self.streams.enter_async_context(stream)
            await (self.agents[name].healthy() if first else self.agents[name].hello())

    async def stop(self) -> None:
        """Kill the controller, and close what was connected to it."""
        assert self.controller is not None
        self.controller.kill()
        with contextlib.suppress(grpc.aio.AioRpcError):
            await self.streams.aclose()

    async def settled(self, name: str) -> None:
        """Return when a node is as its model says, at Slurm and in the controller."""
        model = self.nodes[name]

        async def is_settled() -> bool:
            assert not model.theirs or self.drains.node(name)[1] == model.theirs, self.told
            return self._is_at_slurm(name, model) and await self._is_known(name, model)

        await eventually(is_settled, _PATIENCE_S, f"a settled {name}")

    def _is_at_slurm(self, name: str, model: NodeModel) -> bool:
        state, reason = self.drains.node(name)
        drained = "drain" in state.split("+")
        if model.theirs:
            return drained and reason == model.theirs
        return drained == model.is_ours and (not drained or reason.startswith(_OURS))

    async def _is_known(self, name: str, model: NodeModel) -> bool:
        """Return whether the controller knows what Slurm does with a node, and who claims it."""
        listed = await self._asked(lambda admin: admin.ListNodes(admin_pb2.ListNodesRequest()))
        claims = {claim.owner for one in listed.nodes if one.node == name for claim in one.claims}
        why = await self._asked(lambda admin: admin.Why(admin_pb2.WhyRequest(name=name)))
        return (
            ("scheduler" in claims) == bool(model.theirs)
            and ("operator" in claims) == model.claimed
            and ("somebody freed" in why.answer) == model.overridden
        )

    async def _asked(self, call: Callable[["admin_pb2_grpc.AdminAsyncStub"], Awaitable[T]]) -> T:
        assert self.controller is not None
        async with admin_channel(self.controller.port) as channel:
            return await call(admin_pb2_grpc.AdminStub(channel))


def _hostile(rng: random.Random) -> str:
    """Return a reason as users' names and kernels' lines may make it."""
    pieces = ["fan", '"', "'", "\n", "; reboot", "$(id)", "`id`", " ", "é", "\\", "#", "|"]
    return "x" + "".join(rng.choices(pieces, k=rng.randrange(12)))


@contextlib.asynccontextmanager
async def running_world(drains: Drains, folder: Path, seed: int) -> AsyncIterator[World]:
    """Yield a world in which nothing has happened yet."""
    nodes = {name: NodeModel() for name in drains.slurm.ports}
    world = World(drains, folder, random.Random(seed), nodes)
    await world.start()
    try:
        yield world
    finally:
        await world.stop()
