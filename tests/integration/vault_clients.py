"""A launcher or a training process in the test's own process, message by message."""

import asyncio
import mmap
import os
from dataclasses import replace
from typing import Protocol

from everstep_agent.jobs.state.settings import JobsSettings
from everstep_common.frames import Channel
from everstep_common.launcher_messages import Identified, Join, Settled
from everstep_common.rank_messages import (
    CARRIERS_TO_TRAINER,
    Attach,
    Await,
    Begin,
    Commit,
    Committed,
    Entry,
    Pending,
    Reserve,
    Reserved,
    Restore,
    RestoredCopies,
    RestoreFailed,
    Slot,
)
from everstep_common.version import TRAINER_PROTOCOL, VERSION

# No test comes near it; a busy machine does to less.
TIMEOUT_S = 60.0


class Reachable(Protocol):
    """Whatever listens at the socket of these settings."""

    settings: JobsSettings


def receive_answer(channel: Channel) -> tuple[object, list[int]]:
    """Return the agent's next message, however long it works on it."""
    while isinstance((received := channel.receive(TIMEOUT_S))[0], Pending):
        channel.send(Await())
    return received


class Client:
    """A launcher or trainer in this process."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.maps: list[mmap.mmap] = []
        self.fds: list[int] = []

    @classmethod
    async def connect(cls, node: Reachable, known: tuple[type, ...]) -> "Client":
        path = str(node.settings.socket_path)
        return cls(
            await asyncio.to_thread(Channel.connect, path, known, TIMEOUT_S, CARRIERS_TO_TRAINER)
        )

    async def ask(self, message: object) -> object:
        await self.tell(message)
        return await self.hear()

    async def tell(self, message: object) -> None:
        await asyncio.to_thread(self._channel.send, message)

    async def hear(self) -> object:
        """Return the next message but those that few tests wait for: ids, and that all is well."""
        while isinstance(answer := await self.hear_any(), Settled | Identified):
            continue
        return answer

    async def hear_any(self) -> object:
        """Return the next message."""
        answer, fds = await asyncio.to_thread(receive_answer, self._channel)
        self.fds += fds
        return answer

    async def save(self, step: int, content: bytes, name: str = "w", digest: bytes = b"") -> None:
        """Snapshot a step."""
        slot = await self.begin(step, content)
        entry = Entry(name, 0, len(content), digest=digest)
        committed = await self.ask(Commit(step, slot.slot, slot.epoch, (entry,)))
        assert committed == Committed(step)

    async def begin(self, step: int, content: bytes) -> Slot:
        """Begin a step and copy into its slot."""
        slot = await self.ask(Begin(step))
        assert isinstance(slot, Slot), slot
        self.maps[slot.slot][: len(content)] = content
        return slot

    async def reserve(self, size_bytes: int = 4096) -> None:
        known = len(self.fds)
        answer = await self.ask(Reserve(size_bytes))
        assert isinstance(answer, Reserved), answer
        for opened in self.maps:
            opened.close()
        self.maps = [mmap.mmap(fd, answer.slot_bytes) for fd in self.fds[known:]]

    async def restore(self, *names: str) -> bytes:
        """Return the bytes of all shards that were handed back, in order."""
        known = len(self.fds)
        answer = await self.ask(Restore(names))
        assert isinstance(answer, RestoredCopies), answer
        assert not answer.left
        found = b""
        for copy, fd in zip(answer.copies, self.fds[known:], strict=True):
            for entry in copy.entries:
                found += os.pread(fd, entry.size_bytes, entry.offset_bytes)
        return found

    async def ask_restore(self, *names: str) -> str:
        """Return why nothing was handed back."""
        answer = await self.ask(Restore(names))
        assert isinstance(answer, RestoreFailed), answer
        return answer.reason

    def close(self) -> None:
        self._channel.close()
        for opened in self.maps:
            opened.close()
        for fd in self.fds:
            os.close(fd)
        self.maps, self.fds = [], []


def join_message(**values: object) -> Join:
    base = Join(
        protocol=TRAINER_PROTOCOL,
        version=VERSION,
        job="demo",
        token="secret",
        nodes_min=1,
        nodes_max=1,
        processes_per_node=1,
        reform=True,
        restarts_max=3,
        free_port=29500,
    )
    return replace(base, **values)  # type: ignore[arg-type]


def attach_message(**values: object) -> Attach:
    base = Attach(
        protocol=TRAINER_PROTOCOL, version=VERSION, job="demo", token="secret", generation=1, rank=0
    )
    return replace(base, **values)  # type: ignore[arg-type]
