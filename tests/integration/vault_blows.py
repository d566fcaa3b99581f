"""A job of one rank on a node whose agent, or whose rank, is killed at a chosen moment."""

import asyncio
import itertools
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from everstep_common.launcher_messages import TO_LAUNCHER, Joined, Start, Stop
from everstep_common.rank_messages import (
    TO_TRAINER,
    Attached,
    Begin,
    Commit,
    Committed,
    Describe,
    Entry,
    Refused,
    Reserve,
    Restore,
    Slot,
)
from everstep_common.reports import GenerationStopped
from everstep_proto.generated import fleet_pb2
from integration.vault_clients import Client, attach_message, join_message
from integration.vault_killed import RemoteJobs, environ
from integration.vault_states import STATE_BYTES, state_of
from integration.vault_world import Node, plan

_RANK = Path(__file__).with_name("vault_chunked_rank.py")
_MANIFEST = (Entry("w", 0, STATE_BYTES),)


class Moment(Enum):
    """When the agent is killed: it never reads the message, may have, or has answered it."""

    UNREAD = "unread"
    IN_FLIGHT = "in flight"
    ANSWERED = "answered"


class At(Enum):
    """The message at which it is killed."""

    ATTACH = "attach"
    DESCRIBE = "describe"
    RESTORE = "restore"
    RESERVE = "reserve"
    BEGIN = "begin"
    COMMIT = "commit"


@dataclass(frozen=True)
class AgentKilled:
    """The agent, at a message of a rank that saves a step."""

    at: At
    moment: Moment


@dataclass(frozen=True)
class RankKilled:
    """The rank, before a chunk of its copy; CHUNKS: after all of them, before the commit."""

    chunk: int
    with_agent: bool = False


@dataclass
class Job:
    """A job of one rank: what was saved, what the controller knew to be verified."""

    node: Node
    agent: RemoteJobs
    generation: int = 0
    step: int = 0
    # Of the newest generation: steps whose verified copy was reported, and what was restored.
    known: int | None = None
    control: Client | None = None
    ports: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    async def join(self) -> None:
        """The launcher comes, or comes back."""
        if self.control is not None:
            self.control.close()
        self.control = await Client.connect(self.node, TO_LAUNCHER)
        said = await self.control.ask(join_message(running_generation=self.generation))
        assert said == Joined(self.node.name)

    async def hear(self, kind: type) -> None:
        assert self.control is not None
        while not isinstance(await self.control.hear(), kind):
            pass

    async def start(self) -> None:
        """Begin the next generation from the newest step of this one, which must be whole."""
        sources: tuple[fleet_pb2.ShardSource, ...] = ()
        newest = max(self.copies(), default=None)
        if newest is not None:
            of, step = newest
            sources = (self.node.source(self.node, step, generation=of),)
        assert (newest is not None) or self.known is None
        assert newest is None or self.known is None or newest[1] >= self.known
        self.known = None if newest is None else newest[1]
        self.generation += 1
        self.node.order(start_generation=plan(self.generation, sources, step=self.known))
        await self.hear(Start)

    async def stop(self) -> None:
        """Stop the generation: after it, every copy that was committed is verified and told."""
        order = fleet_pb2.StopGeneration(job="demo", generation=self.generation)
        self.node.order(stop_generation=order)
        await self.hear(Stop)
        assert self.control is not None
        await self.control.tell(GenerationStopped(self.generation, next(self.ports), 1))
        await self.node.outlet.until(lambda: self._settled() >= self.generation)

    def copies(self) -> set[tuple[int, int]]:
        return {(generation, step) for generation, _, step, _ in self.node.outlet.copies()}

    def _settled(self) -> int:
        report = self.node.outlet.reports.get("demo")
        return report.settled_generation if report else 0

    async def restored(self) -> None:
        """What a rank of this generation gets is one whole step: the one that was planned."""
        if self.known is None:
            return
        async with self._rank() as rank:
            assert await rank.restore() == state_of(self.known)
            self.step = self.known

    async def save(self) -> None:
        """Save one step, and hear that it is verified."""
        self.step += 1
        async with self._rank() as rank:
            await rank.reserve(STATE_BYTES)
            await rank.save(self.step, state_of(self.step))
        await self.verified()

    async def verified(self) -> None:
        wanted = (self.generation, self.step)
        await self.node.outlet.until(lambda: wanted in self.copies())
        self.known = self.step

    @asynccontextmanager
    async def _rank(self) -> AsyncIterator[Client]:
        rank = await self._attached()
        try:
            yield rank
        finally:
            rank.close()

    async def _attached(self) -> Client:
        """Attach, as soon as the agent has seen the end of the connection before."""
        while True:
            rank = await Client.connect(self.node, TO_TRAINER)
            said = await rank.ask(attach_message(generation=self.generation))
            if isinstance(said, Attached):
                return rank
            rank.close()
            assert isinstance(said, Refused), said
            assert "attached already" in said.reason

    async def suffer(self, blow: AgentKilled | RankKilled) -> None:
        before = self.agent.pid
        self.step += 1
        if isinstance(blow, RankKilled):
            await self._kill_rank(blow)
        else:
            await self._kill_agent(blow)
        if isinstance(blow, AgentKilled) or blow.with_agent:
            await self.agent.another_than(before)
            await self.join()

    async def _kill_rank(self, blow: RankKilled) -> None:
        numbers = (self.generation, self.step, blow.chunk, blow.with_agent and self.agent.pid)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(_RANK), str(self.node.settings.socket_path)),
            *map(str, map(int, numbers)),
            env=environ(),
        )
        assert await process.wait() == -signal.SIGKILL

    async def _kill_agent(self, blow: AgentKilled) -> None:
        rank = await Client.connect(self.node, TO_TRAINER)
        try:
            await self._until_killed(rank, blow)
        finally:
            rank.close()

    async def _until_killed(self, rank: Client, blow: AgentKilled) -> None:
        slot: Slot | None = None
        for at in At:
            message = self._message(at, slot)
            if at is not blow.at or blow.moment is Moment.ANSWERED:
                slot = await self._answered(rank, message) or slot
            else:
                if blow.moment is Moment.UNREAD:
                    os.kill(self.agent.pid, signal.SIGSTOP)
                await rank.tell(message)
            if at is blow.at:
                os.kill(self.agent.pid, signal.SIGKILL)
                return

    async def _answered(self, rank: Client, message: object) -> Slot | None:
        """Get the answer to a message, and do with it what a rank does."""
        if isinstance(message, Reserve):
            await rank.reserve(message.size_bytes)
            return None
        answer = await rank.ask(message)
        if isinstance(message, Commit):
            assert answer == Committed(self.step)
            # It was told that the agent has it: from then on it must never be lost.
            self.known = self.step
        if not isinstance(answer, Slot):
            return None
        rank.maps[answer.slot][:STATE_BYTES] = state_of(self.step)
        return answer

    def _message(self, at: At, slot: Slot | None) -> object:
        match at:
            case At.ATTACH:
                return attach_message(generation=self.generation)
            case At.DESCRIBE:
                return Describe(everyone=True)
            case At.RESTORE:
                return Restore(())
            case At.RESERVE:
                return Reserve(STATE_BYTES)
            case At.BEGIN:
                return Begin(self.step)
            case At.COMMIT:
                assert slot is not None
                return Commit(self.step, slot.slot, slot.epoch, _MANIFEST)
