"""Two nodes that exchange a copy, of which one's agent is killed at a chosen message."""

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from everstep_agent.vault.snapshots.copies import CopyKey, CopyRef
from everstep_agent.vault.transfer.client import get_copy
from everstep_agent.vault.transfer.remote_agent import RemoteAgent
from everstep_agent.vault.transfer.stripes import STRIPE_BYTES
from everstep_common.launcher_messages import Start
from everstep_common.orders import VaultDirective
from everstep_common.rank_messages import Restore, RestoredCopies, RestoreFailed
from everstep_proto.generated import fleet_pb2
from everstep_proto.record_codec import from_wire
from fakes.waits import eventually
from integration.bulk_messages import Blow
from integration.bulk_tap import Tap, tapping
from integration.vault_blows import Job
from integration.vault_killed import killable
from integration.vault_world import (
    JOB_ID,
    KEY,
    TIMEOUT_S,
    Node,
    identify,
    plan,
    running,
    settings,
    trainer,
)

# Two stripes, so that a second connection has one to carry.
SIZE = STRIPE_BYTES + STRIPE_BYTES // 4
# Of the node that writes: then no other fetches its copy before it is asked for.
_RANK = 1

T = TypeVar("T")


def state_of(step: int) -> bytes:
    """Return a state of which no byte range is like that of another step."""
    return random.Random(step).randbytes(SIZE)


@dataclass
class Pair:
    """The writer's copies go to, or are fetched by, the other; the tap is between them."""

    writer: Job
    other: Job
    tap: Tap
    # To look at what others have: never killed.
    looker: Node
    step: int = 0
    # The writer's copy of that step, as a plan names it.
    source: fleet_pb2.ShardSource = field(default_factory=fleet_pb2.ShardSource)

    async def save(self) -> None:
        """Save one more step on the writer; return when it is verified."""
        self.step += 1
        node = self.writer.node
        async with trainer(node, SIZE, rank=_RANK) as rank:
            await rank.save(self.step, state_of(self.step))
        wanted = (1, _RANK, self.step, False)
        await node.outlet.until(lambda: wanted in node.outlet.copies())
        self.source = self.looker.source(node, self.step, _RANK)
        self.source.bulk_address = self.tap.address

    async def arm(self, blow: Blow) -> int:
        """Let it happen at the next exchange; return which agent process it will be."""
        await self.tap.shut()
        victim = (self.writer if blow.sender else self.other).agent

        def strike() -> None:
            os.kill(victim.pid, signal.SIGKILL)

        self.tap.arm(blow.at, blow.nth, held=blow.held, strike=strike)
        return victim.pid

    async def recover(self, blow: Blow, before: int) -> None:
        """Wait for the next agent, to which the launcher comes back."""
        job = self.writer if blow.sender else self.other
        await job.agent.another_than(before)
        if job.control is not None:
            await job.join()

    async def until_other_has_it(self) -> None:
        """Wait until the other's agent has the newest step, and look at every byte of it."""
        of, root_hash = CopyKey(1, _RANK, self.step), self.source.root_hash
        expected = CopyRef(of, self.source.size_bytes, root_hash)
        # Until then it has no such copy, is killed, or starts.
        await eventually(lambda: self._look(expected), 2 * TIMEOUT_S)

    async def _look(self, expected: CopyRef) -> bool:
        job = self.looker.jobs.known("demo")
        assert job is not None
        vault = job.vault
        remote = RemoteAgent(self.other.agent.bulk_address, JOB_ID, KEY)
        _, region = await get_copy(remote, expected, vault.receive_buffers, vault.context.incoming)
        assert bytes(region.view()[:SIZE]) == state_of(self.step)
        region.release()
        return True

    async def restored(self) -> bytes:
        """Return what a rank of the other gets, however often it has to ask."""
        return await eventually(self._restored_once, 2 * TIMEOUT_S)

    async def _restored_once(self) -> bytes | None:
        async with trainer(self.other.node, 0, generation=self.other.generation) as rank:
            answer = await rank.ask(Restore(()))
            if isinstance(answer, RestoreFailed):
                return None
            assert isinstance(answer, RestoredCopies)
            (copy,), (fd,) = answer.copies, rank.fds
            assert [entry.size_bytes for entry in copy.entries] == [SIZE]
            return os.pread(fd, SIZE, copy.entries[0].offset_bytes)


@asynccontextmanager
async def _pair(folder: Path, *, fetched: bool) -> AsyncIterator[Pair]:
    async with (
        _killable(folder, "node-1") as writer,
        _killable(folder, "node-2") as other,
        running(settings(folder / "looker"), "node-3") as looker,
        tapping(
            lambda: (writer if fetched else other).agent.bulk_address, SIZE, fetched=fetched
        ) as tap,
    ):
        looker.direct(1)
        await writer.join()
        writer.node.order(start_generation=plan(first_rank=_RANK))
        await writer.hear(Start)
        writer.generation = 1
        yield Pair(writer, other, tap, looker)


@asynccontextmanager
async def _killable(folder: Path, name: str) -> AsyncIterator[Job]:
    own = folder / name
    own.mkdir()
    async with killable(own, name=name) as (node, agent):
        job = Job(node, agent)
        try:
            yield job
        finally:
            if job.control is not None:
                job.control.close()


def _directive(pair: Pair, step: int | None) -> None:
    directive = fleet_pb2.VaultDirective(
        job="demo",
        generation=1,
        transfer_key=KEY,
        term=1,
        recoverable_step=step,
    )
    identify(directive)
    pair.other.node.jobs.on_directive(from_wire(VaultDirective, directive))
    directive.replica_target = pair.other.node.name
    directive.replica_bulk_address = pair.tap.address
    pair.writer.node.jobs.on_directive(from_wire(VaultDirective, directive))


async def replicas_arrive(folder: Path, blows: list[Blow]) -> None:
    """Save step after step, each replicated whatever happens; each is whole then, to the bit."""
    async with _pair(folder, fetched=False) as pair:
        _directive(pair, None)
        for blow in blows:
            before = await pair.arm(blow)
            exchange = await _struck(pair, pair.until_other_has_it)
            await pair.recover(blow, before)
            await exchange
            # Also of the agent that came after one that had it.
            await pair.until_other_has_it()
            _directive(pair, pair.step)
        await _begin(pair)
        await pair.until_other_has_it()


async def fetches_arrive(folder: Path, blows: list[Blow]) -> None:
    """Restore step after step on the other node, whatever happens: each is whole, to the bit."""
    async with _pair(folder, fetched=True) as pair:
        await pair.other.join()
        pair.other.generation = 1
        for blow in blows:
            before = await pair.arm(blow)
            exchange = await _struck(pair, pair.restored, restores=True)
            await pair.recover(blow, before)
            assert await exchange == state_of(pair.step)
            assert await pair.restored() == state_of(pair.step)
        await _begin(pair, restores=True)
        assert await pair.restored() == state_of(pair.step)


async def _begin(pair: Pair, *, restores: bool = False) -> None:
    """Save a step; with ``restores`` the other node begins a generation that goes on from it.

    Meanwhile nothing passes the tap, so nobody is killed.
    """
    await pair.tap.shut()
    await pair.save()
    if restores:
        pair.writer.node.direct(1, pair.step)
        pair.other.generation += 1
        start = plan(pair.other.generation, (pair.source,), step=pair.step)
        pair.other.node.order(start_generation=start)
        await pair.other.hear(Start)
    pair.tap.open()


async def _struck(
    pair: Pair, look: Callable[[], Coroutine[None, None, T]], *, restores: bool = False
) -> "asyncio.Task[T]":
    """Have copies travel until the blow has fallen; return what goes on meanwhile.

    Everything may go by without its message: a second connection may come too late for a stripe.
    """
    while True:
        await _begin(pair, restores=restores)
        exchange = asyncio.create_task(look())
        struck = asyncio.create_task(pair.tap.struck.wait())
        await asyncio.wait([exchange, struck], return_when=asyncio.FIRST_COMPLETED)
        if not pair.tap.struck.is_set():
            await pair.tap.quiet()
        if pair.tap.struck.is_set():
            return exchange
        pair.tap.again()
        struck.cancel()
        await asyncio.gather(struck, return_exceptions=True)
