"""What is long holds up nobody else: messages that come, manifests that go, the collector."""

import asyncio
import gc
import random
import socket
import sqlite3
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from everstep_agent.concurrency.cycle_collector import collect_all_periodically, mark_all_old
from everstep_agent.ipc.connection import Connection
from everstep_agent.ipc.message_memory import (
    MESSAGE_MEMORY_BYTES_MIN,
    SMALL_BYTES_MAX,
    buffer_for,
    message_memories,
)
from everstep_agent.ipc.peer import Peer
from everstep_agent.vault.snapshots.manifest import ManifestCheck, check_in_parts, dropped_in_parts
from everstep_agent.vault.snapshots.manifest_store import ManifestStore
from everstep_common.long_frames import encode_in_parts, finish
from everstep_common.rank_messages import Commit, Entry
from fakes.jumping_loop import simulate

_SHARDS = 10_000
_MANY = tuple(Entry(f"layer.{number}.weight", 8 * number, 8) for number in range(_SHARDS))


def test_others_have_their_turns_while_a_long_message_comes_and_goes() -> None:
    message = Commit(1, 0, 1, _MANY)
    size = sum(map(len, finish(encode_in_parts(message))))

    async def scenario() -> None:
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        ends = [Connection(one, Peer(1, 1)) for one in socket.socketpair()]
        for end in ends:
            end.use_memory(message_memories(MESSAGE_MEMORY_BYTES_MIN, patience_s=60), "demo")
        beside = asyncio.create_task(others())
        sent = asyncio.create_task(ends[0].send(message))
        assert await ends[1].receive([Commit]) == message
        await sent
        beside.cancel()
        assert turns > size // (512 * 1024)
        for end in ends:
            end.close()

    simulate(scenario())


def test_a_message_that_follows_a_long_one_is_not_lost() -> None:
    messages = [Commit(1, 0, 1, _MANY), Commit(2, 0, 2, _MANY[:2]), Commit(3, 0, 3, _MANY)]

    async def scenario() -> None:
        ours, theirs = (Connection(one, Peer(1, 1)) for one in socket.socketpair())
        theirs.use_memory(message_memories(MESSAGE_MEMORY_BYTES_MIN, patience_s=60), "demo")

        async def send_all() -> None:
            for message in messages:
                await ours.send(message)

        sent = asyncio.create_task(send_all())
        for message in messages:
            assert await theirs.receive([Commit]) == message
        await sent
        ours.close()
        theirs.close()

    simulate(scenario())


def test_space_for_a_message_is_as_large_as_it_is() -> None:
    for size in (0, 1, SMALL_BYTES_MAX, 3 * SMALL_BYTES_MAX + 1):
        space = buffer_for(size)
        assert len(space) == size
        space[:] = b"x" * size
        assert bytes(space) == b"x" * size


def test_what_has_come_is_looked_at_by_no_pass_over_the_young() -> None:
    shards = [[number] for number in range(100)]
    mark_all_old()
    assert any(one is shards for one in gc.get_objects(generation=2))


def test_after_a_pass_over_everything_the_collector_waits_long() -> None:
    passes: list[float] = []

    def looked(phase: str, told: dict[str, int]) -> None:
        if phase == "stop" and told["generation"] == 2:
            passes.append(asyncio.get_running_loop().time())

    async def scenario() -> None:
        task = asyncio.create_task(collect_all_periodically())
        await asyncio.sleep(200)
        task.cancel()

    gc.callbacks.append(looked)
    try:
        simulate(scenario())
    finally:
        gc.callbacks.remove(looked)
    # On this loop a pass takes no time, and the shortest wait is a minute.
    assert sum(at >= 60 for at in passes) >= 3


@given(st.randoms(use_true_random=False), st.integers(0, 2))
def test_shards_in_any_order_are_found_to_overlap_or_not(
    chance: random.Random, overlapping: int
) -> None:
    entries = list(_MANY[:200])
    for number in chance.sample(range(1, 200), overlapping):
        before = entries[number]
        entries[number] = replace(before, offset_bytes=before.offset_bytes - 1)
    in_order = finish(check_in_parts(tuple(entries), 1 << 20))
    chance.shuffle(entries)
    assert finish(check_in_parts(tuple(entries), 1 << 20)) == in_order
    assert (in_order.problem is None) == (overlapping == 0)


def test_a_name_that_comes_twice_or_is_none_is_a_problem() -> None:
    wrong = ManifestCheck("shard names must be unique and not empty")
    for name in ("", "layer.0.weight"):
        entries = (*_MANY[:1000], Entry(name, 8 * 1000, 8))
        assert finish(check_in_parts(entries, 1 << 20)) == wrong


def test_a_list_is_emptied_in_parts() -> None:
    items = list(range(10_000))
    sizes = [len(items) for _ in dropped_in_parts(items)]
    assert sizes == sorted(sizes, reverse=True)
    assert len(sizes) >= 4
    assert not items


def test_a_manifest_that_nothing_refers_to_goes_in_parts_and_wholly() -> None:
    rows = ManifestStore(database := sqlite3.connect(":memory:", isolation_level=None))
    manifests = [tuple(replace(entry) for entry in _MANY[:1000]) for _ in range(20)]
    for entries in manifests[:-1]:
        finish(rows.save(entries))
        rows.refer("memory", entries)
    steps = sum(1 for _ in rows.save(manifests[-1]))
    # One step for each row that is written, and more for those of the manifest that goes.
    assert steps > 1000 // 128 + 1
    rows.refer("memory", manifests[-1])
    (count,) = database.execute("SELECT count(DISTINCT id) FROM manifest").fetchone()
    assert count == 18
    assert rows.refer("other", manifests[0]) == 0
    assert rows.load("memory", 20) == manifests[-1]
    database.close()
