"""Frames of a training process that has a slot: manifests of any shape, and what follows them."""

import asyncio
import json
import mmap
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from everstep_common.frames import FDS_MAX, HEADER_BYTES, body_length, encode, header
from everstep_common.orders import VaultDirective
from everstep_common.rank_messages import FROM_TRAINER, Attach, Await, Begin, Commit, Reserve
from everstep_common.version import TRAINER_PROTOCOL, VERSION
from fuzz.choices import Choices, Maker, option
from fuzz.edits import edited
from fuzz.format import Format, FormatError, Handler
from fuzz.formats.job_frames import KNOWN, TESTED
from fuzz.node_world import JOB, JOB_ID, KEY, TOKEN, Node, connected, say_to_end, training
from fuzz.shapes import Known, frames_of, messages_of, payload, record_of

_SLOT_BYTES = 4096
_RANK = 0
_PATIENCE_S = 10.0
_MORE_MAX = 4
_COMMIT_KNOWN: Known = {
    **KNOWN,
    "name": option("w", "b", "layers.0", "w/0"),
    "offset_bytes": option(0, 0, 1024, 2048, 4096, 1),
    "size_bytes": option(1024, 512, 4096, 0, 1),
    "format": option("F32", "", "BF16", "other"),
    "as_before": option(False, False, True),
    "tensor": option("", "w"),
    "digest": option(""),
    "shape": option([], [256], [16, 16]),
    "begins": option([], [0], [0, 0]),
    "whole": option([], [256], [16, 16]),
}


@dataclass(frozen=True, slots=True)
class SnapshotCase:
    """A commit, in which slot and epoch are what the agent lent; what is written; what follows."""

    commit: dict[str, object]
    # Whether slot and epoch stay as they were made.
    forged: bool
    content: bytes
    more: bytes
    choices: Choices


def _maker() -> Maker[SnapshotCase]:
    commit = record_of(Commit, _COMMIT_KNOWN, Commit.__name__)
    go_on = frames_of(messages_of(FROM_TRAINER, _COMMIT_KNOWN))

    def make(choices: Choices) -> SnapshotCase:
        fields, forged, content = commit(choices), choices.rarely(16), choices.bytes(32)
        more = b"".join(go_on(choices) for _ in range(choices.below(_MORE_MAX)))
        return SnapshotCase(fields, forged, content, more, choices)

    return make


@asynccontextmanager
async def _world(folder: Path) -> AsyncIterator[Handler]:
    async with training(folder) as node:
        step = 0

        async def handle(case: SnapshotCase) -> None:
            nonlocal step
            step += 1
            await _save(node, case, step)
            # What was saved before is freed.
            freed = dict(job=JOB, job_id=JOB_ID, lineage_id=JOB_ID, transfer_key=KEY)
            node.jobs.on_directive(
                VaultDirective(**freed, generation=1, term=1, recoverable_step=step)  # type: ignore[arg-type]
            )

        yield handle


async def _save(node: Node, case: SnapshotCase, step: int) -> None:
    sock = await connected(str(node.path))
    rank = _Rank(sock)
    try:
        async with asyncio.timeout(_PATIENCE_S):
            attach = Attach(
                protocol=TRAINER_PROTOCOL,
                version=VERSION,
                job=JOB,
                token=TOKEN,
                generation=1,
                rank=_RANK,
            )
            if (await rank.ask(attach))["type"] != "Attached":
                return  # the process of the case before is not gone yet
            await rank.ask(Reserve(_SLOT_BYTES))
            lent = await rank.ask(Begin(step))
        if lent["type"] == "Slot":
            rank.write(int(str(lent["slot"])), case.content)
        await say_to_end(sock, _frame(case, lent, step) + case.more)
    except TimeoutError as error:
        raise FormatError(f"no answer within {_PATIENCE_S:g} s") from error
    finally:
        rank.close()


def _frame(case: SnapshotCase, lent: dict[str, object], step: int) -> bytes:
    fields = dict(case.commit)
    if not case.forged and lent["type"] == "Slot":
        fields |= {"step": step, "slot": lent["slot"], "epoch": lent["epoch"]}
    content = edited(payload(fields), case.choices)
    return header(len(content)) + content


class _Rank:
    """A training process that is honest until it has a slot."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._received = b""
        self._slots: list[int] = []

    def close(self) -> None:
        """Close what came."""
        self._sock.close()
        for fd in self._slots:
            os.close(fd)

    def write(self, slot: int, content: bytes) -> None:
        """Write into a slot, as a copy of the state would be."""
        if content and slot < len(self._slots):
            with mmap.mmap(self._slots[slot], _SLOT_BYTES) as memory:
                memory[: len(content)] = content

    async def ask(self, question: object) -> dict[str, object]:
        """Return the fields of the answer."""
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(self._sock, encode(question))
        while (answer := await self._receive())["type"] == "Pending":
            await loop.sock_sendall(self._sock, encode(Await()))
        return answer

    async def _receive(self) -> dict[str, object]:
        while True:
            if len(self._received) >= HEADER_BYTES:
                end = HEADER_BYTES + body_length(self._received[:HEADER_BYTES])
                if len(self._received) >= end:
                    body, self._received = self._received[HEADER_BYTES:end], self._received[end:]
                    return dict(json.loads(body))
            await self._take()

    async def _take(self) -> None:
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        loop.add_reader(self._sock, readable.set)
        try:
            await readable.wait()
        finally:
            loop.remove_reader(self._sock)
        data, fds, _, _ = socket.recv_fds(self._sock, 65536, FDS_MAX)
        self._slots += fds
        if not data:
            raise FormatError("the agent hung up on an honest process")
        self._received += data


SNAPSHOT_FRAMES = Format(
    _maker(),
    _world,
    (*TESTED, "everstep_agent.vault.snapshots", "everstep_agent.vault.verification"),
    300,
)
