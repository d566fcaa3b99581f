"""Listeners: sockets that the agent listens on, and the error message when it cannot."""

import asyncio
import ipaddress
import logging
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from everstep_agent.ipc.accept_load_limit import AcceptLoadLimit, wait_readable
from everstep_agent.ipc.guarded_socket import GuardedSocket, refuse_descriptors
from everstep_agent.ipc.peer import Peer, peer_of, user_of
from everstep_agent.ipc.socket_disposal import socket_disposal
from everstep_agent.quotas.connection_quota import ConnectionQuota

logger = logging.getLogger(__name__)
# How long a listener rests when the process has no descriptor left: the backlog waits.
_REST_S = 0.2
# Connections wait here while a listener rests; net.core.somaxconn is 4,096 since Linux 5.4.
_BACKLOG = 1024
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


class UserListener:
    """Listener of a Unix socket: lets users in, each within its quota.

    Who is refused costs a few system calls and hears why, if there is room for it. While refusals
    take more than their share of the event loop the listener rests: the backlog waits, in which a
    user who floods it has no more places than one who does not.
    """

    def __init__(
        self,
        listener: socket.socket,
        what: str,
        quota: ConnectionQuota,
        say: Callable[[str], bytes] = lambda _: b"",
    ) -> None:
        """``say`` makes what is sent of a sentence of refusal."""
        self._listener = listener
        self._what = what
        self._quota = quota
        self._say = say
        self._load_limit = AcceptLoadLimit()

    async def accept(self) -> tuple[socket.socket, Peer]:
        """Return the next connection that is let in; the caller tells its quota when it ends."""
        clock = asyncio.get_running_loop().time
        while True:
            await socket_disposal().room()
            await self._load_limit.rest_if_due()
            began_s = clock()
            try:
                accepted, _ = self._listener.accept()
            except BlockingIOError:
                await wait_readable(self._listener)
                continue
            except OSError as error:
                logger.warning("%s: %s", self._what, error)
                await asyncio.sleep(_REST_S)
                continue
            peer = self._let_in(accepted)
            self._load_limit.count_work(clock() - began_s)
            if peer is not None:
                return accepted, peer

    def _let_in(self, accepted: socket.socket) -> Peer | None:
        try:
            user = user_of(accepted)
            if sentence := self._quota.enter(user):
                self._refuse(accepted, user, sentence)
                return None
        except OSError:  # it is gone already
            GuardedSocket(accepted, _NOBODY).close()
            return None
        try:
            return peer_of(accepted)
        except OSError:
            self._quota.leave(user)
            GuardedSocket(accepted, user).close()
            return None

    def _refuse(self, accepted: socket.socket, user: int, sentence: str) -> None:
        connection = GuardedSocket(accepted, user)
        with suppress(OSError):
            accepted.send(self._say(sentence))
        connection.close()


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
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


def listen_tcp(host: str, port: int, key: str) -> socket.socket:
    """Return a listening TCP socket. Raises OSError, which names the key to change."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind | socket.SOCK_CLOEXEC, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise cannot_listen(key, f"{host}:{port}", error) from error
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
