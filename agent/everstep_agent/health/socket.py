"""Health socket: a Unix socket that answers a one-line question of any user in one line."""

import asyncio
import contextlib
import errno
import json
import socket
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from everstep_agent.health.groups import GROUPS
from everstep_agent.health.report import HealthReport, decode, encode
from everstep_agent.health.user_connections import serve_users
from everstep_agent.ipc.guarded_socket import GuardedSocket
from everstep_agent.ipc.listeners import listening_unix
from everstep_agent.quotas.connection_quota import ConnectionQuota
from everstep_common.codec import from_json
from everstep_common.frames import connect_in_turn

SOCKET_NAME = "health.sock"
_QUESTION_BYTES_MAX = 4096
# The only field of the line that is sent to a user beyond its quota.
_REFUSED = "refused"
_QUESTION_S = 5.0
# How long whoever asked may take to read.
_ANSWER_S = 60.0
_ANSWER_BYTES_MAX = 4 << 20
_PIECE_BYTES = 64 << 10


class HealthReporter(Protocol):
    """Service that knows the node's health."""

    def report(self, groups: Iterable[str]) -> HealthReport:
        """Return how the node is."""
        ...


@dataclass(frozen=True, slots=True)
class _Question:
    groups: tuple[str, ...] = ()
    # Asked by commands of older versions, whose agents looked at everything first.
    patience_s: float = 0.0


class HealthServer:
    """Answers on the socket until cancelled; ``ready`` once it can be asked."""

    def __init__(self, path: Path, service: HealthReporter, quota: ConnectionQuota) -> None:
        self.ready = asyncio.Event()
        self._path = path
        self._service = service
        self._quota = quota

    async def run(self) -> None:
        """Serve. Raises OSError when the socket cannot be made."""
        with listening_unix(self._path) as listener:
            self.ready.set()
            await serve_users(listener, "health socket", self._quota, self._serve, _refusal)

    async def _serve(self, asking: GuardedSocket) -> None:
        async with asyncio.timeout(_QUESTION_S + _ANSWER_S):
            async with asyncio.timeout(_QUESTION_S):
                question = _question(await _question_line(asking))
            report = self._service.report(question.groups)
            answer = encode(report).encode() + b"\n"
            await asyncio.get_running_loop().sock_sendall(asking.socket, answer)


def _refusal(sentence: str) -> bytes:
    return json.dumps({_REFUSED: sentence}).encode() + b"\n"


def _refused(line: bytes) -> str:
    """Return why an agent does not answer; "" for an answer."""
    if not line.startswith(f'{{"{_REFUSED}"'.encode()):
        return ""
    return str(json.loads(line)[_REFUSED])


async def _question_line(asking: GuardedSocket) -> bytes:
    line = bytearray()
    while piece := await asking.receive():
        line += piece
        if b"\n" in line:
            break
        if len(line) > _QUESTION_BYTES_MAX:
            raise ValueError("a question without an end")
    return bytes(line.partition(b"\n")[0])


def _question(line: bytes) -> _Question:
    question = from_json(_Question, json.loads(line), "question")
    known = tuple(group for group in question.groups if group in GROUPS)
    return _Question(known)


def ask_agent(paths: Sequence[Path], groups: Sequence[str], deadline_s: float) -> HealthReport:
    """Ask the agent behind the first socket that answers; blocks for at most the deadline.

    Raises OSError when no agent answers, and ValueError when one answers nonsense.
    """
    question = {"groups": list(groups), "patience_s": deadline_s / 2}
    request = json.dumps(question).encode() + b"\n"
    until = time.monotonic() + deadline_s
    wrong: list[OSError] = []
    for path in paths:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            try:
                connect_in_turn(connection, str(path), _left_s(until))
                connection.settimeout(_left_s(until))
                with contextlib.suppress(BrokenPipeError):  # why it is refused can still be read
                    connection.sendall(request)
                line = _line(connection, until)
                if refused := _refused(line):
                    raise PermissionError(errno.EPERM, refused)
                return decode(line)
            except FileNotFoundError:
                continue
            except OSError as error:
                wrong.append(OSError(f"{path}: {error.strerror or error}"))
    raise wrong[0] if wrong else FileNotFoundError("no agent runs here")


def _line(connection: socket.socket, until: float) -> bytes:
    """Return the answer. The whole of it has the deadline: a socket's own is for each piece."""
    line = bytearray()
    while not line.endswith(b"\n"):
        connection.settimeout(_left_s(until))
        piece = connection.recv(_PIECE_BYTES)
        if not piece or len(line) > _ANSWER_BYTES_MAX:
            raise ConnectionError("the connection ended without an answer")
        line += piece
    return bytes(line)


def _left_s(until: float) -> float:
    left_s = until - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("timed out")
    return left_s
