"""Listeners: sockets that the agent listens on, and the error message when it cannot."""

import ipaddress
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def listening_unix(path: Path) -> Iterator[socket.socket]:
    """Listen as `listen_unix` does, and leave no socket behind."""
    with listen_unix(path) as listener, removed_after(path):
        yield listener


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
