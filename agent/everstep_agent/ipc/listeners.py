"""Listeners: sockets that the agent listens on, and the error message when it cannot."""

import asyncio
import ipaddress
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from everstep_agent.ipc.guarded_socket import GuardedSocket, refuse_descriptors
from everstep_agent.ipc.peer import Peer, peer_of
from everstep_agent.ipc.socket_disposal import socket_disposal

logger = logging.getLogger(__name__)
# How long a listener rests when the process has no descriptor left: the backlog waits.
_REST_S = 0.2
# Of a process that was gone before it was asked who it is.
_NOBODY = -1


@contextmanager
def listening_unix(path: Path) -> Iterator[socket.socket]:
    """Listen as `listen_unix` does, and leave no socket behind."""
    listener = listen_unix(path)
    try:
        with removed_after(path):
            yield listener
    finally:
        # In a thread: connections that nobody accepted are closed with it, with what is in them.
        socket_disposal().close(listener)


async def accept_user(listener: socket.socket, what: str) -> tuple[socket.socket, Peer]:
    """Return the next connection of a Unix socket, and whose it is."""
    loop = asyncio.get_running_loop()
    while True:
        await socket_disposal().room()
        try:
            accepted, _ = await loop.sock_accept(listener)
        except OSError as error:
            logger.warning("%s: %s", what, error)
            await asyncio.sleep(_REST_S)
            continue
        try:
            return accepted, peer_of(accepted)
        except OSError:  # it is gone already
            GuardedSocket(accepted, _NOBODY).close()


@contextmanager
def removed_after(path: Path) -> Iterator[None]:
    """Remove the socket that is at a path, but not one that has taken its place meanwhile."""
    try:
        held = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:  # it is gone already
        yield
        return
    try:
        yield
    finally:
        # While the descriptor is open the inode is not reused, even if nobody listens any more.
        with suppress(OSError):
            if os.path.samestat(path.lstat(), os.fstat(held)):
                path.unlink()
        os.close(held)


def listen_unix(path: Path) -> socket.socket:
    """Return a listening socket, open to all users: each connection proves what it may do."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        refuse_descriptors(listener)
        listener.bind(os.fspath(path))
        path.chmod(0o666)
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


def listen_tcp(host: str, port: int) -> socket.socket:
    """Return a listening TCP socket. Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind | socket.SOCK_CLOEXEC, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise cannot_listen("jobs.bulk_host and bulk_port", f"{host}:{port}", error) from error
    listener.setblocking(False)
    return listener


def cannot_listen(key: str, address: str, error: OSError) -> OSError:
    """Return the error with the key of the configuration that is to be changed."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    return OSError(f"{key}: {address} cannot be listened on ({reason}); choose another there")


def is_wildcard(host: str) -> bool:
    """Return whether a host stands for all addresses of this node, and so names none."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return host == ""
