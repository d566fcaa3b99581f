"""Bulk protocol between agents: frames of strangers, and of who has the key of the job."""

import hmac
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from everstep_agent.vault.transfer.connection import BulkConnection, Proof, TransferHello
from everstep_agent.vault.transfer.messages import (
    CopyStored,
    GetCopy,
    GetManifests,
    HashMismatch,
    JoinTransfer,
    PutCopy,
    Refusal,
    SendStripes,
    TellSteps,
)
from everstep_agent.vault.transfer.transport import PlainTransport
from everstep_common.frames import header
from fuzz.choices import Choices, Maker, option
from fuzz.edits import edited
from fuzz.format import Format, Handler
from fuzz.node_world import JOB_ID, KEY, connected, say_to_end, training
from fuzz.shapes import Known, frames_of, messages_of, payload

_REQUESTS = (PutCopy, GetCopy, JoinTransfer, GetManifests, TellSteps)
_ANSWERS = (SendStripes, CopyStored, HashMismatch, Refusal)
_KNOWN: Known = {
    "lineage": option(JOB_ID),
    "generation": option(1, 1, 0, 2),
    "rank": option(0, 1, 2, 3),
    "step": option(0, 1, 2),
    "size_bytes": option(4096, 0, 1, 65536),
    "protocol": option(2),
    "offset_bytes": option(0),
    "number": option(1, 2, 15),
}


@dataclass(frozen=True, slots=True)
class BulkCase:
    """What one connection says; ``proves``: after it has proven that it has the key."""

    proves: bool
    # Bodies of frames, each with a code over the connection's key behind it.
    bodies: tuple[bytes, ...]
    raw: bytes


def _maker() -> Maker[BulkCase]:
    hello = frames_of(messages_of((TransferHello,), _KNOWN))
    proof = frames_of(messages_of((Proof,), _KNOWN))
    request, answer = messages_of(_REQUESTS, _KNOWN), messages_of(_ANSWERS, _KNOWN)

    def make(choices: Choices) -> BulkCase:
        if choices.rarely(5):
            said = choices.bytes(64) if choices.rarely(4) else hello(choices) + proof(choices)
            return BulkCase(False, (), said)
        bodies = [edited(payload(request(choices)), choices)]
        bodies += [edited(payload(answer(choices)), choices) for _ in range(choices.below(3))]
        # Stripes: a number, then contents.
        stripes = choices.of((b"", b"\0" * 8 + b"x" * 4096)) + choices.bytes(48)
        return BulkCase(True, tuple(bodies), stripes)

    return make


@asynccontextmanager
async def _world(folder: Path) -> AsyncIterator[Handler]:
    async with training(folder) as node:
        host, _, port = node.jobs.bulk_address.rpartition(":")

        async def handle(case: BulkCase) -> None:
            await say_in_bulk((host, int(port)), case)

        yield handle


async def say_in_bulk(address: tuple[str, int], case: BulkCase) -> None:
    """Say a case to the bulk port of a node, and wait until it has hung up."""
    sock = await connected(address)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if not case.proves:
        await say_to_end(sock, case.raw)
        return
    connection = _Proven(sock)
    try:
        await connection.connect(JOB_ID, KEY)
    except OSError:  # it is busy with the connections of cases before
        connection.close()
        return
    content = b"".join(map(connection.frame, case.bodies)) + case.raw
    await say_to_end(sock, content)


class _Proven(BulkConnection):
    """The other end, which can put any body into a frame that is authenticated."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(PlainTransport(sock, server_side=False))

    def frame(self, body: bytes) -> bytes:
        """Return the frame of a body."""
        number, self._sent = self._sent, self._sent + 1
        code = hmac.digest(self._key, self._send_role + number.to_bytes(8, "big") + body, "sha256")
        return header(len(body)) + body + code


BULK = Format(
    _maker(),
    _world,
    (
        "everstep_agent.vault.transfer",
        "everstep_agent.vault.replication",
        "everstep_common.long_frames",
    ),
    500,
)
