"""User connections: what the health sockets let each user of the node have at once."""

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Awaitable, Callable

from everstep_agent.ipc.guarded_socket import GuardedSocket
from everstep_agent.ipc.listeners import accept_user

logger = logging.getLogger(__name__)

# Each is a descriptor and a few kilobytes; the look itself is shared. Of one user, so that nobody
# takes the agent's descriptors, or another user's turn.
CONNECTIONS_PER_USER_MAX = 32


async def serve_users(
    listener: socket.socket, what: str, serve: Callable[[GuardedSocket], Awaitable[None]]
) -> None:
    """Serve every connection in a task, until cancelled."""
    connected: Counter[int] = Counter()

    async def serve_one(connection: GuardedSocket, user: int) -> None:
        try:
            await serve(connection)
        except (OSError, ValueError) as error:  # TimeoutError and CodecError are among them
            logger.debug("%s: %s", what, error)
        finally:
            connected[user] -= 1
            connection.close()

    async with asyncio.TaskGroup() as group:
        while True:
            accepted, peer = await accept_user(listener, what)
            connection = GuardedSocket(accepted, peer.uid)
            if connected[peer.uid] >= CONNECTIONS_PER_USER_MAX:
                connection.close()
                continue
            connected[peer.uid] += 1
            group.create_task(serve_one(connection, peer.uid), name=what)
