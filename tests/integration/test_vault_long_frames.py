"""Many ranks that announce the longest messages, or never take an answer, harm only their job."""

import asyncio
import resource
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from everstep_agent.ipc.message_memory import SMALL_BYTES_MAX, MessageMemories
from everstep_common import frames
from everstep_common.rank_messages import (
    TO_TRAINER,
    Attached,
    Begin,
    Commit,
    Committed,
    Describe,
    Entry,
    Progress,
    Slot,
)
from fakes.waits import eventually
from integration.vault_world import (
    TIMEOUT_S,
    Client,
    Node,
    attach_message,
    launcher,
    lived,
    plan,
    running,
    settings,
    trainer,
)

RANKS = 12
LONGEST = frames.FRAME_BYTES_MAX
# All that is held of one job's, what its decoder may make of it, and what a test run needs itself.
GROWTH_BYTES_MAX = 6 * LONGEST
SHARDS = tuple(Entry(f"{'layer.' * 40}{i}", i * 8, 8) for i in range(4000))


@asynccontextmanager
async def hostile(node: Node, rank: int, generation: int = 1) -> AsyncIterator[socket.socket]:
    """A rank that is attached, as a socket."""
    with socket.socket(socket.AF_UNIX) as raw:
        await asyncio.to_thread(raw.connect, str(node.settings.socket_path))
        channel = frames.Channel(raw, TO_TRAINER)
        channel.send(attach_message(rank=rank, generation=generation))
        answer, _ = await asyncio.to_thread(channel.receive, TIMEOUT_S)
        assert isinstance(answer, Attached), answer
        raw.setblocking(False)
        yield raw


@asynccontextmanager
async def neighbour(node: Node) -> AsyncIterator[Client]:
    """A rank of another job."""
    order = plan(1)
    order.job = "other"
    async with launcher(node, job="other") as control:
        node.order(start_generation=order)
        await control.hear()
        async with trainer(node, len(SHARDS) * 8, job="other") as rank:
            yield rank


async def is_served(rank: Client, steps: int) -> None:
    for step in range(1, steps + 1):
        slot = await rank.ask(Begin(step))
        assert isinstance(slot, Slot), slot
        commit = Commit(step, slot.slot, slot.epoch, (Entry("w", 0, 8), *SHARDS[step:]))
        assert await rank.ask(commit) == Committed(step)


def rooms(node: Node) -> MessageMemories:
    job = node.jobs.known("demo")
    assert job is not None
    return job.context.vault_context.message_memories


def _memory_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


@lived
async def test_a_flood_of_the_longest_messages_is_bounded_and_others_are_served(
    tmp_path: Path,
) -> None:
    loop, body = asyncio.get_running_loop(), b" " * (LONGEST - 1)
    async with (
        running(settings(tmp_path, slots_per_rank=8, message_timeout_s=3 * TIMEOUT_S)) as node,
        launcher(node, processes_per_node=RANKS),
        neighbour(node) as other,
        AsyncExitStack() as stack,
    ):
        node.order(start_generation=plan(1, processes=RANKS))
        raws = [await stack.enter_async_context(hostile(node, rank)) for rank in range(RANKS)]
        before = _memory_bytes()
        floods = [asyncio.create_task(_flood(loop, raw, body)) for raw in raws]
        incoming = rooms(node).incoming
        await eventually(lambda: (incoming.held_bytes, incoming.waiting) == (LONGEST, RANKS - 1))
        await is_served(other, 3)
        # The room of its last message is free a moment after it was answered.
        await eventually(lambda: incoming.held_bytes == LONGEST)
        assert _memory_bytes() - before < GROWTH_BYTES_MAX
        for flood in floods:
            flood.cancel()
        await asyncio.wait(floods)
        await stack.aclose()
        await eventually(lambda: (incoming.held_bytes, incoming.waiting) == (0, 0))


async def _flood(loop: asyncio.AbstractEventLoop, raw: socket.socket, body: bytes) -> None:
    """Send all but the last byte of a message."""
    await loop.sock_sendall(raw, frames.header(LONGEST))
    await loop.sock_sendall(raw, body)


@lived
async def test_a_message_that_trickles_ends_its_connection(tmp_path: Path) -> None:
    async with running(settings(tmp_path, message_timeout_s=0.5)) as node, launcher(node):
        node.order(start_generation=plan(1))
        async with hostile(node, 0) as raw:
            raw.sendall(frames.header(LONGEST))
            incoming = rooms(node).incoming
            await eventually(lambda: incoming.held_bytes == LONGEST)
            raw.sendall(b"{")
            async with asyncio.timeout(TIMEOUT_S):
                assert await asyncio.get_running_loop().sock_recv(raw, 1) == b""
        await eventually(lambda: incoming.held_bytes == 0)


@lived
async def test_the_room_of_what_is_only_told_is_free_when_it_is_heard(tmp_path: Path) -> None:
    told = frames.encode(Progress(1, 1, 0))[frames.HEADER_BYTES :].ljust(2 * SMALL_BYTES_MAX)
    async with running(settings(tmp_path)) as node, launcher(node):
        node.order(start_generation=plan(1))
        async with hostile(node, 0) as raw:
            incoming, loop = rooms(node).incoming, asyncio.get_running_loop()
            await loop.sock_sendall(raw, frames.header(len(told)))
            await eventually(lambda: incoming.held_bytes == len(told))
            await loop.sock_sendall(raw, told)
            await eventually(lambda: incoming.held_bytes == 0)


@lived
async def test_ranks_that_ask_and_take_no_answer_are_bounded_and_others_are_served(
    tmp_path: Path,
) -> None:
    async with (
        running(settings(tmp_path, slots_per_rank=8, message_timeout_s=3 * TIMEOUT_S)) as node,
        launcher(node, processes_per_node=RANKS),
        neighbour(node) as other,
        AsyncExitStack() as stack,
    ):
        node.order(start_generation=plan(1))
        async with trainer(node, len(SHARDS) * 8) as rank:
            await is_served(rank, 1)
            await node.outlet.until(lambda: node.outlet.copies())
        source = node.source(node, 1)
        node.order(start_generation=plan(2, (source,), step=1, processes=RANKS))
        for rank_number in range(RANKS):
            raw = await stack.enter_async_context(hostile(node, rank_number, 2))
            raw.send(frames.encode(Describe(everyone=True)) * 20)
        outgoing = rooms(node).outgoing
        await eventually(lambda: outgoing.waiting == RANKS - 1)
        assert 0 < outgoing.held_bytes <= LONGEST
        await is_served(other, 3)
        await stack.aclose()
        await eventually(lambda: (outgoing.held_bytes, outgoing.waiting) == (0, 0))
