"""A connection whose other side takes no answers: it ends, and nothing of its room stays held."""

import asyncio
import socket

import pytest

from everstep_agent.ipc.connection import Connection
from everstep_agent.ipc.message_memory import MESSAGE_MEMORY_BYTES_MIN, message_memories
from everstep_agent.ipc.peer import Peer
from everstep_common.frames import FrameError
from everstep_common.rank_messages import DescribedPart, Entry, Skip
from fakes.jumping_loop import simulate

MANY = tuple(Entry(f"layer.{number}.weight", number, 1) for number in range(20_000))


@pytest.mark.parametrize("answer", [Skip("no slot " * 100), DescribedPart(1, MANY, 0)])
def test_who_takes_no_answer_is_not_waited_for_without_end(answer: object) -> None:
    async def scenario() -> None:
        ours, theirs = socket.socketpair()
        rooms = message_memories(MESSAGE_MEMORY_BYTES_MIN, patience_s=3)
        connection = Connection(ours, Peer(1, 1))
        connection.use_memory(rooms, "demo")
        with theirs, pytest.raises(FrameError, match="was not taken within 3 s"):
            await asyncio.wait_for(_send_on(connection, answer), 60)
        connection.close()
        assert rooms.outgoing.held_bytes == 0

    simulate(scenario())


async def _send_on(connection: Connection, answer: object) -> None:
    while True:
        await connection.send(answer)
