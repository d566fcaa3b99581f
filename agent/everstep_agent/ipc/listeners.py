"""The agent's runtime folder: one agent at a time, and nobody else reads its database."""

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from everstep_agent.listening import cannot_listen


@dataclass(frozen=True, slots=True)
class RuntimeFolder:
    """A folder that this agent has to itself, until it is closed."""

    path: Path
    _lock: int

    @classmethod
    def open(cls, path: Path) -> "RuntimeFolder":
        """Take the folder. Raises OSError, when another agent has it among other reasons."""
        path.mkdir(parents=True, exist_ok=True)
        lock = os.open(path / "agent.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            raise OSError(error.errno, "another agent uses this folder", os.fspath(path)) from error
        return cls(path, lock)

    def database(self) -> str:
        """Return the path of the runtime database, which holds transfer keys: private."""
        path = self.path / "jobs.sqlite"
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        return os.fspath(path)

    def close(self) -> None:
        """Let another agent have it."""
        os.close(self._lock)


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
        # As long as it is held, its inode is no other's, though nobody may listen any more.
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
