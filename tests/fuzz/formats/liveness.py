"""Datagrams between agents over UDP: questions and answers about who is alive."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from everstep_agent.peer_socket import PeerSocket, name_tag
from fuzz.choices import Choices
from fuzz.edits import edited
from fuzz.format import Format, FormatError, Handler

_NODE = "node-1"
_MAGICS = (b"ESP1", b"ESP1", b"ESP1", b"ESP2", b"\0\0\0\0")
_KINDS = (b"ask\0", b"answ", b"ask\0", b"\0\0\0\0", b"asks")
_TAGS = (name_tag(_NODE), name_tag(_NODE), name_tag("other"), b"\0" * 8)
_DATAGRAMS_MAX = 4


class _Asker:
    """Whoever asked a question; any answer is right."""

    def answered(self) -> None:
        """See Asker."""

    def unreachable(self, *, by_network: bool) -> None:
        """See Asker."""


def _make(choices: Choices) -> tuple[bytes, ...]:
    return tuple(_datagram(choices) for _ in range(1 + choices.below(_DATAGRAMS_MAX)))


def _datagram(choices: Choices) -> bytes:
    if choices.rarely(8):
        return choices.bytes(64)
    parts = choices.of(_MAGICS), choices.of(_KINDS), choices.of(_TAGS), choices.bytes(8)
    return edited(b"".join(parts[:3]) + parts[3].ljust(8, b"\0"), choices)


@asynccontextmanager
async def _world(_: Path) -> AsyncIterator[Handler]:
    peer = await PeerSocket.open(_NODE, "127.0.0.1", 0)
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    sock.bind(("127.0.0.1", 0))
    target = ("127.0.0.1", peer.port)

    async def handle(case: tuple[bytes, ...]) -> None:
        question = peer.ask("other", ("127.0.0.1", sock.getsockname()[1]), _Asker())
        for datagram in (*case, case[0][:20] + question.nonce):
            sock.sendto(datagram, target)
        peer.drain()
        peer.forget(question.nonce)
        _check_answers(sock, max(map(len, case)) + len(question.nonce) + 24)
        await asyncio.sleep(0)

    try:
        yield handle
    finally:
        peer.close()
        sock.close()


def _check_answers(sock: socket.socket, longest: int) -> None:
    """Take the answers: none may be longer than what was asked."""
    while True:
        try:
            answer = sock.recv(65536)
        except BlockingIOError:
            return
        if len(answer) > longest:
            raise FormatError(f"an answer of {len(answer)} bytes is longer than its question")


LIVENESS = Format(_make, _world, ("everstep_agent.peer_socket",), 5000)
