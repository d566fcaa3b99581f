"""User connections: what the health sockets let each user of the node have at once."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable

from everstep_agent.ipc.guarded_socket import GuardedSocket
from everstep_agent.ipc.listeners import UserListener
from everstep_agent.quotas.connection_quota import ConnectionQuota

logger = logging.getLogger(__name__)


async def serve_users(
    listener: socket.socket,
    what: str,
    quota: ConnectionQuota,
    serve: Callable[[GuardedSocket], Awaitable[None]],
    say: Callable[[str], bytes] = lambda _: b"",
) -> None:
    """Serve every connection in a task, until cancelled; ``say`` makes bytes of a refusal."""

    async def serve_one(connection: GuardedSocket) -> None:
        try:
            await serve(connection)
        except (OSError, ValueError) as error:  # TimeoutError and CodecError are among them
            logger.debug("%s: %s", what, error)
        finally:
            quota.leave(connection.user)
            connection.close()

    users = UserListener(listener, what, quota, say)
    async with asyncio.TaskGroup() as group:
        while True:
            accepted, peer = await users.accept()
            group.create_task(serve_one(GuardedSocket(accepted, peer.uid)), name=what)
