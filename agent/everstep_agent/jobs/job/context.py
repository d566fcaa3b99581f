"""Job context: the parts of the agent that every job on the node uses."""

import itertools
import os
import random
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Protocol

from everstep_agent.concurrency.generation_tasks import Spawn
from everstep_agent.concurrency.thread_pool import ThreadPool
from everstep_agent.detectors.snapshot_skips import SkipWatch
from everstep_agent.ipc.message_memory import message_memories
from everstep_agent.jobs.job.device_release import DeviceRelease, Gpus, NoGpus
from everstep_agent.jobs.job.output import OutputMemory
from everstep_agent.jobs.state.remembered_ends import RememberedEnds, no_ends
from everstep_agent.jobs.state.settings import JobsSettings
from everstep_agent.jobs.state.store import JobStore
from everstep_agent.quotas.user_quotas import UserRefusals
from everstep_agent.vault.memory.allocator import Allocator
from everstep_agent.vault.memory.capacity import MemoryLimits
from everstep_agent.vault.memory.gauges import HugePagePool, MemoryGauge, NodeMemory
from everstep_agent.vault.memory.quota import EvictableMemory, Promises
from everstep_agent.vault.snapshots.descriptor_store import (
    DescriptorStore,
    RegionStore,
    SystemdDescriptorStore,
)
from everstep_agent.vault.transfer.certificates import TlsCertificates
from everstep_agent.vault.transfer.engine import TransferEngine
from everstep_agent.vault.transfer.min_rate import MinRate
from everstep_agent.vault.transfer.rate_limit import RateLimiter
from everstep_agent.vault.transfer.stripes import STREAMS_DEFAULT, streams_for
from everstep_agent.vault.vault_context import VaultContext
from everstep_common import clock
from everstep_proto.generated import fleet_pb2
from everstep_proto.tls import TlsSettings


class Outlet(Protocol):
    """Outlet of the agent's parts to the controller. Only to be called on the event loop."""

    def record(self, record: fleet_pb2.Record) -> None:
        """Have this journaled by the controller; sequence and stamp are filled in."""
        ...

    def vault_report(self, report: fleet_pb2.VaultReport) -> None:
        """Tell the copies of one job; the newest report of a job replaces the ones before it."""
        ...


def _at_hand() -> str:
    return ""


def _counts(_: Mapping[str, object]) -> str:
    return ""


def _not_away() -> float:
    return 0.0


def _do_nothing() -> None:
    """Nobody is told."""


def _heard() -> bool:
    return False


def user_refusals() -> UserRefusals:
    """Return the counts of an agent that begins."""
    return UserRefusals(lambda: clock.boot_ns() / 1e9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What of the world the jobs of a node touch; the defaults are the real one."""

    # Descriptors that outlived the agent's restart; None takes those of the service manager.
    stored_fds: Mapping[str, int] | None = None
    keeper: DescriptorStore = field(default_factory=SystemdDescriptorStore)
    gauge: MemoryGauge = field(default_factory=NodeMemory)
    pool: MemoryGauge = field(default_factory=HugePagePool)
    boot_ns: Callable[[], int] = clock.boot_ns
    jitter: random.Random | None = None
    # The certificate that this node shows to other agents, and what theirs must be signed by.
    tls: TlsSettings = field(default_factory=TlsSettings)
    # Says of a peer's certificate, as `ssl` tells it, why it counts no more; "" where it does.
    revoked: Callable[[Mapping[str, object]], str] = _counts
    # Why the controller is not there, and what happens then; "" while it is.
    controller_away: Callable[[], str] = _at_hand
    # For how many seconds the controller has been away or halted; 0 while one is there that acts.
    controller_away_s: Callable[[], float] = _not_away
    # Has a halted controller hear what Hello says now.
    tell_halted: Callable[[], None] = _do_nothing
    # Whether neither the controller nor any peer has been heard for a few seconds.
    cut_off: Callable[[], bool] = _heard
    # Id of the cluster that the agent belongs to; "" before it belongs to one.
    cluster_id: Callable[[], str] = _at_hand
    # Which jobs have ended lately, and the term of the newest controller that was heard.
    ends: RememberedEnds = field(default_factory=no_ends)
    term: Callable[[], int] = lambda: 0
    # Users that a quota refused, on all sockets of the agent.
    refusals: UserRefusals = field(default_factory=user_refusals)
    # Those that ranks use, and from how much on memory without an owner is taken for theirs.
    gpus: Gpus = field(default_factory=NoGpus)
    gpu_memory_unowned_bytes: int = 1 << 30


@dataclass(slots=True)
class StopCounts:
    """Counters since the agent started."""

    launchers_overruled: int = 0


@dataclass(frozen=True, slots=True)
class JobContext:
    """The agent, as a job sees it. ``boot_ns`` is CLOCK_BOOTTIME."""

    settings: JobsSettings
    outlet: Outlet
    vault_context: VaultContext
    store: JobStore
    spawn: Spawn
    boot_ns: Callable[[], int]
    jitter: random.Random
    stop_counts: StopCounts
    skips: SkipWatch
    # For how many seconds the controller has been away or halted; 0 while one is there that acts.
    away_s: Callable[[], float]
    # Has a halted controller hear what Hello says now.
    tell_halted: Callable[[], None]
    # Whether neither the controller nor any peer has been heard for a few seconds.
    cut_off: Callable[[], bool]
    refusals: UserRefusals
    devices: DeviceRelease
    # Id of the cluster that the agent belongs to; "" before it belongs to one.
    cluster_id: Callable[[], str] = _at_hand
    output_memory: OutputMemory = field(default_factory=OutputMemory)


@dataclass(frozen=True, slots=True)
class ContextParts:
    """The agent around the context. ``stack`` ends what the context begins."""

    settings: JobsSettings
    outlet: Outlet
    node: str
    world: Environment
    spawn: Spawn
    kept: EvictableMemory
    promises: Promises
    stack: ExitStack


def open_context(parts: ContextParts, database: sqlite3.Connection) -> JobContext:
    """Return a context with threads and an allocator of its own."""
    settings, world = parts.settings, parts.world
    store = JobStore(database)
    vault_context = _make_vault_context(parts, database, store.next_incarnation())
    return JobContext(
        settings,
        parts.outlet,
        vault_context,
        store,
        parts.spawn,
        world.boot_ns,
        world.jitter or random.Random(),
        StopCounts(),
        SkipWatch(),
        world.controller_away_s,
        world.tell_halted,
        world.cut_off,
        world.refusals,
        DeviceRelease(
            world.gpus, settings.device_release_timeout_s, world.gpu_memory_unowned_bytes
        ),
        world.cluster_id,
    )


def _make_vault_context(
    parts: ContextParts, database: sqlite3.Connection, incarnation: int
) -> VaultContext:
    settings, world = parts.settings, parts.world
    threads = _pool("vault-work", settings.worker_threads, parts.stack)
    outgoing, incoming = _make_transfer_engines(parts)
    return VaultContext(
        node=parts.node,
        slots_per_rank=settings.slots_per_rank,
        threads=threads,
        outgoing=outgoing,
        incoming=incoming,
        allocator=_make_allocator(parts),
        region_store=RegionStore(database, world.keeper),
        # Slot epochs begin at the number of this agent process, so none of an earlier one returns.
        next_epoch=itertools.count(incarnation << 32).__next__,
        message_memories=message_memories(
            settings.message_memory_bytes, settings.message_timeout_s
        ),
        partial_kept_s=settings.partial_transfer_kept_s,
        certificates=TlsCertificates(world.tls, parts.node, world.revoked)
        if settings.bulk_tls
        else None,
    )


def _make_allocator(parts: ContextParts) -> Allocator:
    settings, world = parts.settings, parts.world
    # Threads of its own: to take the pages of one user's memory from the kernel takes seconds, in
    # which the copies of all others would wait to be verified, and their ranks for a free slot.
    threads = _pool("vault-memory", settings.worker_threads, parts.stack)
    limits = MemoryLimits(
        settings.memory_reserve_bytes,
        settings.memory_bytes_max,
        settings.memory_per_user_bytes_max,
        settings.memory_per_user_max_ratio,
    )
    allocator = Allocator(threads, world.gauge, limits, settings.huge_pages, world.pool)
    allocator.evictable, allocator.promises = parts.kept, parts.promises
    return allocator


def _make_transfer_engines(parts: ContextParts) -> tuple[TransferEngine, TransferEngine]:
    """Return what sends copies to other nodes, and what fetches them from there."""
    settings, now_ns = parts.settings, parts.world.boot_ns
    outgoing = _pool("vault-out", settings.transfers_max, parts.stack)
    incoming = _pool("vault-in", settings.transfers_max, parts.stack)
    timeout_s, streams = settings.transfer_timeout_s, settings.transfer_streams
    for_replicas = streams or streams_for(len(os.sched_getaffinity(0)))
    least = settings.restore_bytes_per_s_min
    min_rate = MinRate(least, int(timeout_s * 1e9), now_ns) if least else None
    limit = RateLimiter(settings.replication_bytes_per_s_max, now_ns)
    return (
        TransferEngine(outgoing, timeout_s, limit, for_replicas),
        TransferEngine(
            incoming, timeout_s, RateLimiter(0, now_ns), streams or STREAMS_DEFAULT, min_rate
        ),
    )


def _pool(name: str, threads: int, stack: ExitStack) -> ThreadPool:
    workers = ThreadPool(name, threads)
    stack.callback(workers.close)
    return workers
