"""Nodes for tests of the vault: the real NodeJobs over real sockets and memory, no controller."""

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ParamSpec

from google.protobuf.message import Message

from everstep_agent.jobs.job.context import Environment
from everstep_agent.jobs.node_jobs import NodeJobs
from everstep_agent.jobs.state.settings import JobsSettings
from everstep_common.launcher_messages import TO_LAUNCHER, Joined, Start
from everstep_common.orders import (
    ClearInjection,
    Inject,
    JobOrder,
    RunCheck,
    RunPairTest,
    VaultDirective,
)
from everstep_common.rank_messages import TO_TRAINER, Attached, Refused, RefusedForNow
from everstep_proto.generated import fleet_pb2
from everstep_proto.orders import order_from_wire
from everstep_proto.record_codec import from_wire
from fakes.waits import PATIENCE_S, eventually
from integration.storage_processes import storage_processes_end
from integration.vault_clients import TIMEOUT_S, Client, attach_message, join_message
from integration.vault_outlet import Kept, Outlet

__all__ = [
    "JOB_ID",
    "KEY",
    "TIMEOUT_S",
    "Client",
    "Kept",
    "Node",
    "Outlet",
    "attach_message",
    "join_message",
    "launcher",
    "lived",
    "plan",
    "running",
    "settings",
    "trainer",
    "training",
]

KEY = b"k" * 32
# The id of a job that is called "demo", and of the lineage that began with it.
JOB_ID = "demo-1"
P = ParamSpec("P")
# What an agent says that has not seen yet that the one before has hung up.
_STILL_THERE = ("is attached already", "has a launcher on this node already")


def lived(scenario: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Make a test of a scenario: pytest calls it, and it runs on a loop of its own."""

    @functools.wraps(scenario)
    def test(*args: P.args, **kwargs: P.kwargs) -> None:
        async def life() -> None:
            await scenario(*args, **kwargs)
            await storage_processes_end()

        asyncio.run(life())

    return test


@dataclass
class Node:
    """One running NodeJobs and what it said."""

    name: str
    jobs: NodeJobs
    outlet: Outlet
    settings: JobsSettings

    def order(self, **body: object) -> None:
        told = fleet_pb2.Order(order_id="o", term=1, reason="test", **body)  # type: ignore[arg-type]
        name = told.WhichOneof("body")
        assert name is not None
        identify(getattr(told, name))
        self.jobs.on_order(job_order(told))

    def direct(
        self,
        generation: int,
        step: int | None = None,
        target: "Node | None" = None,
        dead: tuple[int, ...] = (),
        collector: "Node | None" = None,
        **more: object,
    ) -> None:
        directive = fleet_pb2.VaultDirective(
            job="demo",
            generation=generation,
            recoverable_step=step,
            dead_steps=dead,
            transfer_key=KEY,
            term=1,
            **more,  # type: ignore[arg-type]
        )
        identify(directive)
        if target is not None:
            directive.replica_target = target.name
            directive.replica_bulk_address = target.jobs.bulk_address
        if collector is not None:
            directive.collector = collector.name
            directive.collector_bulk_address = collector.jobs.bulk_address
        self.jobs.on_directive(from_wire(VaultDirective, directive))

    async def until_memory_is(self, size_bytes: int) -> None:
        """Wait for so much in use: what is made or freed beside a report is so a moment later."""
        await eventually(lambda: self.jobs.metrics().vault_memory_bytes == size_bytes)

    def source(
        self, of: "Node", step: int, rank: int = 0, generation: int = 1
    ) -> fleet_pb2.ShardSource:
        """The source that a controller would name for a copy that ``of`` reported."""
        for copy in (one for told in of.outlet.lineages.values() for one in told.copies):
            if (copy.generation, copy.rank, copy.step) == (generation, rank, step):
                return fleet_pb2.ShardSource(
                    node=of.name,
                    bulk_address=of.jobs.bulk_address,
                    generation=generation,
                    rank=rank,
                    step=step,
                    root_hash=copy.root_hash,
                    size_bytes=copy.size_bytes,
                    layout=copy.layout,
                )
        raise AssertionError(f"{of.name} has no copy of step {step}")


def identify(told: Message) -> None:
    """Say the ids of a job where a test says its name only."""
    fields = told.DESCRIPTOR.fields_by_name
    if "job_id" in fields and not told.job_id:  # type: ignore[attr-defined]
        told.job_id = f"{told.job}-1"  # type: ignore[attr-defined]
    if "lineage_id" in fields and not told.lineage_id:  # type: ignore[attr-defined]
        told.lineage_id = told.job_id  # type: ignore[attr-defined]


def job_order(message: fleet_pb2.Order) -> JobOrder:
    """Return the order about a job in a message of the controller."""
    order = order_from_wire(message)
    assert not isinstance(order, RunCheck | RunPairTest | Inject | ClearInjection)
    return order


def plan(
    generation: int = 1,
    sources: tuple[fleet_pb2.ShardSource, ...] = (),
    *,
    step: int | None = None,
    processes: int = 1,
    first_rank: int = 0,
    node_count: int = 1,
    job_id: str = "",
    lineage_id: str = "",
) -> fleet_pb2.StartGeneration:
    return fleet_pb2.StartGeneration(
        job="demo",
        job_id=job_id,
        lineage_id=lineage_id,
        generation=generation,
        node_count=node_count,
        processes=processes,
        first_rank=first_rank,
        world_size=node_count * processes,
        master_address="127.0.0.1",
        master_port=1,
        restore_step=step,
        sources=sources,
        transfer_key=KEY,
    )


def settings(folder: Path, **values: object) -> JobsSettings:
    base = JobsSettings(
        runtime_folder=folder,
        bulk_port=0,
        memory_reserve_bytes=0,
        slot_wait_s=TIMEOUT_S,
        transfer_timeout_s=TIMEOUT_S,
        settle_timeout_s=TIMEOUT_S,
        # The processes that the agent would kill in a launcher's place are the test itself.
        stop_patience_s=TIMEOUT_S,
        # What a test asserts is told in the turn of the loop in which it happens.
        report_delay_s=0.0,
        # On a busy machine a storage process may take ten seconds to begin.
        storage_list_timeout_s=PATIENCE_S,
        # All that tests do is of one user.
        memory_per_user_max_ratio=1.0,
    )
    return replace(base, **values)  # type: ignore[arg-type]


@asynccontextmanager
async def running(
    chosen: JobsSettings, name: str = "node-1", world: Environment | None = None
) -> AsyncIterator[Node]:
    """A node that serves for as long as the context is open."""
    outlet = Outlet()
    jobs = NodeJobs(chosen, outlet, name, world or Environment(stored_fds={}, keeper=Kept()))
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


async def _let_in(node: Node, known: tuple[type, ...], first: object) -> tuple[Client, object]:
    """Say who it is; return the answer, the first one after the place is free."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            client = await Client.connect(node, known)
            try:
                answer = await client.ask(first)
            except BaseException:
                client.close()
                raise
            if not (isinstance(answer, Refused | RefusedForNow) and _still_there(answer.reason)):
                return client, answer
            client.close()
            await asyncio.sleep(0.02)


def _still_there(reason: str) -> bool:
    return any(words in reason for words in _STILL_THERE)


@asynccontextmanager
async def launcher(node: Node, **values: object) -> AsyncIterator[Client]:
    """A launcher that has joined."""
    client, answer = await _let_in(node, TO_LAUNCHER, join_message(**values))
    try:
        assert answer == Joined(node.name)
        yield client
    finally:
        client.close()


@asynccontextmanager
async def trainer(node: Node, size_bytes: int = 4096, **values: object) -> AsyncIterator[Client]:
    """A training process that is attached, with slots (unless 0 bytes are wanted)."""
    client, answer = await _let_in(node, TO_TRAINER, attach_message(**values))
    try:
        assert isinstance(answer, Attached), answer
        if size_bytes:
            await client.reserve(size_bytes)
        yield client
    finally:
        client.close()


@asynccontextmanager
async def training(node: Node, generation: int = 1, node_count: int = 1) -> AsyncIterator[Client]:
    """A launcher and one attached rank of a generation; the rank."""
    async with launcher(node) as control:
        node.order(start_generation=plan(generation, node_count=node_count))
        started = await control.hear()
        assert isinstance(started, Start)
        async with trainer(node, generation=generation) as rank:
            yield rank
