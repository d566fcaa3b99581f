"""Sockets whose close would wait for an hour, closed by the threads of one event loop."""

import asyncio
import os
import socket

from everstep_agent.ipc.socket_disposal import OTHER_USERS, SocketDisposal, socket_disposal
from fakes.lingering import LingeringSockets

_PATIENCE_S = 60.0


def _unread(lingering: LingeringSockets) -> socket.socket:
    """Return a Unix socket in which such a descriptor lies unread."""
    ours, theirs = socket.socketpair()
    with theirs:
        lingering.pass_over(theirs, b"x")
    return ours


def test_closes_that_would_take_hours_are_all_over_soon_and_stop_no_one() -> None:
    async def life(lingering: LingeringSockets) -> None:
        disposal = SocketDisposal(waiting_max=1)
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            disposal.refuse(_unread(lingering), 1000)
        assert disposal.waiting
        await asyncio.wait_for(disposal.room(), _PATIENCE_S)
        # What is left are the peers of the sockets that were closed.
        assert len(os.listdir("/proc/self/fd")) == before + 20
        assert disposal.refused == {1000: 20}

    with LingeringSockets() as lingering:
        asyncio.run(life(lingering))


def test_nobody_is_let_in_while_too_many_sockets_wait_for_their_close() -> None:
    async def life(lingering: LingeringSockets) -> None:
        disposal = SocketDisposal(waiting_max=2)
        for _ in range(3):
            disposal.close(_unread(lingering))
        # Their waits are ended by this loop only, so none is over yet.
        room = asyncio.create_task(disposal.room())
        await asyncio.sleep(0)
        assert not room.done()
        await asyncio.wait_for(room, _PATIENCE_S)
        assert disposal.waiting < 2

    with LingeringSockets() as lingering:
        asyncio.run(life(lingering))


def test_a_thousand_users_are_counted_in_a_few_rows() -> None:
    async def life() -> None:
        disposal = socket_disposal()
        for user in range(1000):
            disposal.refuse(socket.socket(socket.AF_UNIX), user)
        assert len(disposal.refused) == 65
        assert disposal.refused[0] == 1
        assert disposal.refused[OTHER_USERS] == 1000 - 64

    asyncio.run(life())
