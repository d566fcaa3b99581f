"""Fleet of simulated agents in one process, each with a stream of its own to a real controller.

Arguments: port of loopback, number of agents, and the controller's secret, or the folder of the
agents' certificates. Each line of standard input is a command, answered by a line of JSON: how long
it took, and what was sent and received by kind.
"""

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path

import grpc
from transport.agent import SAMPLE_S, Agent

from everstep_proto.generated import fleet_pb2, fleet_pb2_grpc
from everstep_proto.local.secret import read_secret
from everstep_proto.tls import TlsSettings, aio_channel

_PATIENCE_S = 240.0
_LOOK_S = 0.02
# Hellos without a Welcome: a ramp, not a storm.
_RAMP = 50
# So many agents speak before answers are read again.
_SLICE = 32
# Of a step: until its first copies are verified, until all here are, and until replicas are.
_COMMIT_S, _COMMIT_REST_S, _RECEIVE_S, _TAIL_S = 0.3, 0.6, 0.9, 2.0
# Each has a connection of its own, as agents have.
_OPTIONS = [("grpc.use_local_subchannel_pool", 1), ("grpc.http2.bdp_probe", 0)]


class Fleet:
    """All agents, and what they are told to do."""

    def __init__(self, port: int, nodes: int, trust: Path) -> None:
        self._port, self._trust = port, trust
        self.agents = [Agent(index, nodes, self._say) for index in range(nodes)]
        self._by_name = {agent.name: agent for agent in self.agents}
        self._outgoing: dict[int, asyncio.Queue[fleet_pb2.AgentMessage]] = {}
        self._streams: list[asyncio.Task[None]] = []
        self._heard_s = 0.0
        self.sent: Counter[str] = Counter()
        self.received: Counter[str] = Counter()

    async def serve(self) -> None:
        """Take commands until standard input ends."""
        print(json.dumps("ready"), flush=True)
        while words := (await asyncio.to_thread(sys.stdin.readline)).split():
            self.sent.clear()
            self.received.clear()
            began = time.monotonic()
            await self._commands()[words[0]](*map(float, words[1:]))
            told = {"seconds": time.monotonic() - began, "sent": self.sent}
            print(json.dumps(told | {"received": self.received}), flush=True)

    def _commands(self) -> Mapping[str, Callable[..., Awaitable[None]]]:
        return {
            "connect": self._connect,
            "let_go": self._let_go,
            "quiet": self._quiet,
            "idle": asyncio.sleep,
            "check": self._check,
            "join": self._join,
            "progress": self._progress,
            "vault": self._vault,
            "exits": self._exits,
            "steady": self._steady,
        }

    # --- streams ---------------------------------------------------------------------------------

    def _channel(self, agent: Agent) -> grpc.aio.Channel:
        if self._trust.is_dir():
            stem = self._trust / agent.name
            files = (self._trust / "ca.pem", stem.with_suffix(".pem"), stem.with_suffix(".key"))
            tls = TlsSettings(ca=files[0], certificate=files[1], key=files[2])
            return aio_channel(f"localhost:{self._port}", tls)
        return grpc.aio.insecure_channel(f"127.0.0.1:{self._port}", options=_OPTIONS)

    async def _stream(self, agent: Agent, gate: asyncio.Semaphore) -> None:
        shown = () if self._trust.is_dir() else read_secret(self._trust).metadata()
        outgoing = self._outgoing[agent.index] = asyncio.Queue()

        async def messages() -> AsyncIterator[fleet_pb2.AgentMessage]:
            while True:
                yield await outgoing.get()

        async with self._channel(agent) as channel:
            async with gate:
                agent.hello()
                stub = fleet_pb2_grpc.FleetStub(channel)
                answers = aiter(stub.Connect(messages(), metadata=shown))
                self._take(agent, await anext(answers))
            async for message in answers:
                self._take(agent, message)
        raise SystemExit(f"the controller ended the stream of {agent.name}")

    def _take(self, agent: Agent, message: fleet_pb2.ControllerMessage) -> None:
        kind = agent.take(message)
        self.received[kind] += 1
        if kind != "time_request":
            self._heard_s = time.monotonic()

    def _say(self, agent: Agent, message: fleet_pb2.AgentMessage) -> None:
        self.sent[message.WhichOneof("body") or ""] += 1
        self._outgoing[agent.index].put_nowait(message)

    async def _connect(self) -> None:
        gate = asyncio.Semaphore(_RAMP)
        self._streams = [asyncio.create_task(self._stream(one, gate)) for one in self.agents]
        await self._until(lambda: all(agent.welcomed for agent in self.agents))

    async def _let_go(self) -> None:
        """End all streams."""
        for stream in self._streams:
            stream.cancel()
        await asyncio.gather(*self._streams, return_exceptions=True)
        self._streams.clear()

    async def _until(self, so: Callable[[], bool]) -> None:
        async with asyncio.timeout(_PATIENCE_S):
            while not so():
                for stream in self._streams:
                    if stream.done():
                        stream.result()
                await asyncio.sleep(_LOOK_S)

    async def _quiet(self, seconds: float) -> None:
        """Return when so long nothing has come but questions for the time."""
        self._heard_s = time.monotonic()
        await self._until(lambda: time.monotonic() - self._heard_s > seconds)

    async def _each(self, speak: Callable[[Agent], None]) -> None:
        """Have all agents speak at once, as far as one process can."""
        for agent in self.agents:
            speak(agent)
            if agent.index % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)

    def _all_acknowledged(self) -> bool:
        return all(agent.acknowledged == agent.sequence for agent in self.agents)

    # --- what they do ----------------------------------------------------------------------------

    async def _check(self) -> None:
        """Return when all have passed their check; a few then raise a finding."""
        await self._until(lambda: all(agent.sequence for agent in self.agents))
        await self._each(Agent.find)
        await self._until(self._all_acknowledged)

    async def _join(self) -> None:
        await self._each(Agent.join)
        await self._until(lambda: all(agent.generation for agent in self.agents))
        await self._until(self._all_acknowledged)
        await self._progress()
        await self._until(lambda: all(agent.target for agent in self.agents))

    async def _progress(self) -> None:
        """Have all agents tell of a step; return when it is acknowledged."""
        step = self.agents[0].step + 1
        await self._each(lambda agent: agent.complete_step(step))
        await self._until(self._all_acknowledged)

    async def _vault(self) -> None:
        """Have all agents tell of the copies of a step; return when all know it is recoverable."""
        step = self.agents[0].step
        await self._each(lambda agent: agent.commit(step))
        await self._each(lambda agent: agent.commit_rest(step))
        await self._each(lambda agent: self._receive(step, agent))
        await self._until(lambda: all(one.recoverable >= step for one in self.agents))

    def _receive(self, step: int, home: Agent) -> None:
        target = self._by_name.get(home.target)
        if target is not None:
            target.receive(step, home)

    async def _exits(self) -> None:
        """Have all ranks die; return when all ranks run again."""
        generation = self.agents[0].generation
        await self._each(Agent.lose_ranks)
        await self._until(lambda: all(one.generation > generation for one in self.agents))
        await self._until(self._all_acknowledged)

    async def _steady(self, seconds: float, step_s: float) -> None:
        """Train for so long: samples of all agents out of phase, and steps of all together."""
        ends_s = time.monotonic() + seconds
        async with asyncio.TaskGroup() as tasks:
            for agent in self.agents:
                tasks.create_task(self._sample(agent, ends_s))
            while time.monotonic() < ends_s:
                tasks.create_task(self._step(self.agents[0].step + 1))
                await asyncio.sleep(step_s)
        await asyncio.sleep(_TAIL_S)

    async def _sample(self, agent: Agent, ends_s: float) -> None:
        await asyncio.sleep(agent.index / len(self.agents) * SAMPLE_S)
        while time.monotonic() < ends_s:
            agent.sample()
            await asyncio.sleep(SAMPLE_S)

    async def _step(self, step: int) -> None:
        await self._each(lambda agent: agent.complete_step(step))
        await asyncio.sleep(_COMMIT_S)
        await self._each(lambda agent: agent.commit(step))
        await asyncio.sleep(_COMMIT_REST_S - _COMMIT_S)
        await self._each(lambda agent: agent.commit_rest(step))
        await asyncio.sleep(_RECEIVE_S - _COMMIT_REST_S)
        await self._each(lambda agent: self._receive(step, agent))


if __name__ == "__main__":
    asyncio.run(Fleet(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])).serve())
