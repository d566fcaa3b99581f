"""Nodes for tests of the vault: the real NodeJobs over real sockets and memory, no controller."""

import asyncio
import mmap
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from everstep_agent.jobs.node_jobs import NodeJobs
from everstep_agent.jobs.settings import JobsSettings
from everstep_agent.jobs.surroundings import Surroundings
from everstep_common.frames import Channel
from everstep_common.trainer_messages import (
    TO_LAUNCHER,
    TO_TRAINER,
    Attach,
    Attached,
    Begin,
    Commit,
    Committed,
    Entry,
    Join,
    Joined,
    Reserve,
    Reserved,
    Restore,
    Restored,
    RestoreFailed,
    Slot,
    Start,
)
from everstep_common.version import TRAINER_PROTOCOL, VERSION
from everstep_proto.generated import fleet_pb2

KEY = b"k" * 32
TIMEOUT_S = 20.0


class Outlet:
    """Keeps what the node says, and lets a test wait for it."""

    def __init__(self) -> None:
        self.records: list[fleet_pb2.Record] = []
        self.reports: dict[str, fleet_pb2.VaultReport] = {}
        self.bad: list[str] = []
        self._news = asyncio.Event()

    def record(self, record: fleet_pb2.Record) -> None:
        self.records.append(record)
        self._news.set()

    def vault_report(self, report: fleet_pb2.VaultReport) -> None:
        self.reports[report.job] = report
        self.bad += report.bad_copies
        self._news.set()

    async def until(self, true: Callable[[], object]) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while not true():
                self._news.clear()
                await self._news.wait()

    def copies(self, job: str = "demo") -> set[tuple[int, int, int, bool]]:
        report = self.reports.get(job)
        copies = report.copies if report else ()
        return {(copy.generation, copy.rank, copy.step, copy.replica) for copy in copies}

    def bodies(self, kind: str) -> list[fleet_pb2.Record]:
        return [record for record in self.records if record.WhichOneof("body") == kind]


class Kept:
    """A service manager in memory: keeps duplicates of descriptors."""

    def __init__(self) -> None:
        self.fds: dict[str, int] = {}

    def store(self, name: str, fd: int) -> bool:
        self.fds[name] = os.dup(fd)
        return True

    def remove(self, name: str) -> bool:
        fd = self.fds.pop(name, None)
        if fd is not None:
            os.close(fd)
        return fd is not None

    def hand_over(self) -> dict[str, int]:
        return {name: os.dup(fd) for name, fd in self.fds.items()}

    def close(self) -> None:
        for name in list(self.fds):
            self.remove(name)


@dataclass
class Node:
    """One running NodeJobs and what it said."""

    name: str
    jobs: NodeJobs
    outlet: Outlet
    settings: JobsSettings

    def order(self, **body: object) -> None:
        self.jobs.on_order(fleet_pb2.Order(order_id="o", term=1, reason="test", **body))  # type: ignore[arg-type]

    def direct(
        self,
        generation: int,
        step: int | None = None,
        target: "Node | None" = None,
        dead: tuple[int, ...] = (),
    ) -> None:
        directive = fleet_pb2.VaultDirective(
            job="demo",
            generation=generation,
            has_recoverable=step is not None,
            recoverable_step=step or 0,
            dead_steps=dead,
            transfer_key=KEY,
            term=1,
        )
        if target is not None:
            directive.replica_target.node = target.name
            directive.replica_bulk_address = target.jobs.bulk_address
        self.jobs.on_directive(directive)

    def source(
        self, of: "Node", step: int, rank: int = 0, generation: int = 1
    ) -> fleet_pb2.ShardSource:
        """The source that a controller would name for a copy that ``of`` reported."""
        for copy in of.outlet.reports["demo"].copies:
            if (copy.generation, copy.rank, copy.step) == (generation, rank, step):
                return fleet_pb2.ShardSource(
                    node=of.name,
                    bulk_address=of.jobs.bulk_address,
                    generation=generation,
                    rank=rank,
                    step=step,
                    root_hash=copy.root_hash,
                    size_bytes=copy.size_bytes,
                    shards=copy.shards,
                )
        raise AssertionError(f"{of.name} has no copy of step {step}")


def plan(
    generation: int = 1,
    sources: tuple[fleet_pb2.ShardSource, ...] = (),
    *,
    step: int | None = None,
    processes: int = 1,
    first_rank: int = 0,
) -> fleet_pb2.StartGeneration:
    return fleet_pb2.StartGeneration(
        job="demo",
        generation=generation,
        node_count=1,
        processes=processes,
        first_rank=first_rank,
        world_size=processes,
        master_address="127.0.0.1",
        master_port=1,
        restore=step is not None,
        restore_step=step or 0,
        sources=sources,
        transfer_key=KEY,
    )


def settings(folder: Path, **values: object) -> JobsSettings:
    base = JobsSettings(
        runtime_folder=folder,
        bulk_port=0,
        memory_reserve_bytes=0,
        begin_wait_s=TIMEOUT_S,
        transfer_timeout_s=TIMEOUT_S,
        settle_timeout_s=TIMEOUT_S,
        # The processes that the agent would kill in a launcher's place are the test itself.
        stop_patience_s=TIMEOUT_S,
    )
    return replace(base, **values)  # type: ignore[arg-type]


@asynccontextmanager
async def running(
    chosen: JobsSettings, name: str = "node-1", world: Surroundings | None = None
) -> AsyncIterator[Node]:
    """A node that serves for as long as the context is open."""
    outlet = Outlet()
    jobs = NodeJobs(chosen, outlet, name, world or Surroundings(stored_fds={}, keeper=Kept()))
    task = asyncio.create_task(jobs.run())
    ready = asyncio.create_task(jobs.ready.wait())
    await asyncio.wait([task, ready], return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        ready.cancel()
        task.result()
    try:
        yield Node(name, jobs, outlet, chosen)
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled() and (error := task.exception()):
            raise error


class Client:
    """A launcher or trainer in this process."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.maps: list[mmap.mmap] = []
        self.fds: list[int] = []

    @classmethod
    async def connect(cls, node: Node, known: tuple[type, ...]) -> "Client":
        path = str(node.settings.socket_path)
        return cls(await asyncio.to_thread(Channel.connect, path, known, TIMEOUT_S))

    async def ask(self, message: object) -> object:
        await self.tell(message)
        return await self.hear()

    async def tell(self, message: object) -> None:
        await asyncio.to_thread(self._channel.send, message)

    async def hear(self) -> object:
        answer, fds = await asyncio.to_thread(self._channel.receive, TIMEOUT_S)
        self.fds += fds
        return answer

    async def save(self, step: int, content: bytes, name: str = "w") -> None:
        """Snapshot a step."""
        slot = await self.begin(step, content)
        committed = await self.ask(
            Commit(step, slot.slot, slot.epoch, (Entry(name, 0, len(content)),))
        )
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
        assert isinstance(answer, Restored), answer
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


@asynccontextmanager
async def launcher(node: Node, **values: object) -> AsyncIterator[Client]:
    """A launcher that has joined."""
    client = await Client.connect(node, TO_LAUNCHER)
    try:
        assert await client.ask(join_message(**values)) == Joined(node.name)
        yield client
    finally:
        client.close()


@asynccontextmanager
async def trainer(node: Node, size_bytes: int = 4096, **values: object) -> AsyncIterator[Client]:
    """A training process that is attached, with slots (unless 0 bytes are wanted)."""
    client = await Client.connect(node, TO_TRAINER)
    try:
        answer = await client.ask(attach_message(**values))
        assert isinstance(answer, Attached), answer
        if size_bytes:
            await client.reserve(size_bytes)
        yield client
    finally:
        client.close()


@asynccontextmanager
async def training(node: Node, generation: int = 1) -> AsyncIterator[Client]:
    """A launcher and one attached rank of a generation; the rank."""
    async with launcher(node) as control:
        node.order(start_generation=plan(generation))
        started = await control.hear()
        assert isinstance(started, Start)
        async with trainer(node, generation=generation) as rank:
            yield rank
