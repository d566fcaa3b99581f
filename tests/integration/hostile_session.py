"""A hostile launcher and its rank: they say whatever they like, in each phase of their sessions."""

import contextlib
import os
import select
import socket
import struct
from pathlib import Path

from everstep_common.frames import decode, encode
from everstep_common.launcher_messages import TO_LAUNCHER, End, Joined, Start, Stop
from everstep_common.rank_messages import TO_TRAINER, Attached, Refused, RefusedForNow, Reserve
from everstep_common.reports import GenerationStopped
from fakes.nobody import nobody
from integration.vault_clients import attach_message, join_message

_KNOWN = {kind.__name__: kind for kind in (*TO_LAUNCHER, *TO_TRAINER)}
_TIMEOUT_S = 60.0
# How long the controller may take to start a job that needs nobody but its launcher.
_START_S = 5.0


class Hostile:
    """One connection to an agent's socket."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._socket.settimeout(_TIMEOUT_S)
        with nobody():  # the agent is told who connects
            self._socket.connect(str(path))
        self._received = b""

    def send(self, frame: bytes) -> None:
        """Send a frame, also to an agent that has hung up."""
        with contextlib.suppress(ConnectionError):
            self._socket.sendall(frame)

    def hear(self) -> object:
        """Return the next message; None at the end of the connection."""
        head = self._take(4)
        body = None if head is None else self._take(struct.unpack(">I", head)[0])
        return None if body is None else decode(body, _KNOWN)

    def has_said(self, within_s: float = 0.0) -> bool:
        """Return whether something comes in time, or has come, that was not heard."""
        return bool(self._received) or bool(select.select([self._socket], [], [], within_s)[0])

    def hear_out(self) -> None:
        """Say no more, and read until the agent has closed: it has read everything then."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        while self.hear() is not None:
            pass
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def _take(self, count: int) -> bytes | None:
        while len(self._received) < count:
            try:
                # With the largest room for descriptors: none stays under way.
                data, fds, _, _ = socket.recv_fds(self._socket, 1 << 16, 253)
            except ConnectionError:
                return None
            for fd in fds:
                os.close(fd)
            if not data:
                return None
            self._received += data
        taken, self._received = self._received[:count], self._received[count:]
        return taken


class HostileJob:
    """A job whose launcher stops when it is told to, and says anything besides."""

    def __init__(self, path: Path, name: str, nodes: int = 1) -> None:
        self._path = path
        self._name = name
        self._nodes = nodes
        self._number = 0
        self.joins = 0
        self.generation = 0
        self._launcher: Hostile | None = None

    @property
    def name(self) -> str:
        """Return what the job is called now; each one that has ended has another name."""
        return f"{self._name}-{self._number}"

    def launcher(self) -> Hostile:
        """Return the launcher's connection; one that has joined, if need be."""
        while self._launcher is None or (self._launcher.has_said() and not self._heed()):
            self._join()
        return self._launcher

    def running(self) -> Hostile:
        """Return the launcher's connection when it was told to start a generation."""
        launcher = self.launcher()
        while not self.generation:
            if not launcher.has_said(_START_S):
                # What was said has led it to where it waits for something else: another job.
                self._number += 1
                self.leave()
            if self._launcher is None or not self._heed():
                launcher = self.launcher()
        return launcher

    def rank(self) -> Hostile | None:
        """Return the connection of an attached rank with memory; None if it was not let in."""
        self.running()
        rank = Hostile(self._path)
        rank.send(encode(attach_message(job=self.name, generation=self.generation)))
        if not isinstance(rank.hear(), Attached):
            rank.close()
            self.leave()
            return None
        rank.send(encode(Reserve(4096)))
        rank.hear()
        return rank

    def leave(self) -> None:
        """Hang up; the launcher comes back when it is asked for."""
        if self._launcher is not None:
            self._launcher.hear_out()
        self._launcher, self.generation = None, 0

    def _join(self) -> None:
        self.leave()
        launcher = Hostile(self._path)
        sizes = {"nodes_min": self._nodes, "nodes_max": self._nodes, "restarts_max": 1_000_000}
        launcher.send(encode(join_message(job=self.name, **sizes)))
        self.joins += 1
        answer = launcher.hear()
        if isinstance(answer, Joined):
            self._launcher = launcher
            return
        launcher.close()
        assert isinstance(answer, Refused | RefusedForNow), answer
        self._number += isinstance(answer, Refused)

    def _heed(self) -> bool:
        """Hear one message and do what it says; return whether the launcher is still there."""
        assert self._launcher is not None
        match message := self._launcher.hear():
            case Start():
                self.generation = message.generation
            case Stop():
                self.generation = 0
                self._launcher.send(encode(GenerationStopped(message.generation, 1024)))
            case End() | Refused():
                self._number += 1
                self.leave()
                return False
            case None:
                self.leave()
                return False
        return True
