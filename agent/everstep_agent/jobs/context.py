"""Job context: what every job on the node needs of the agent around it."""

import itertools
import os
import random
import sqlite3
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from everstep_agent.concurrency.generation_tasks import Spawn
from everstep_agent.concurrency.thread_pool import ThreadPool
from everstep_agent.detectors.jobs import SkipWatch
from everstep_agent.ipc.message_memory import message_memories
from everstep_agent.jobs.environment import Environment
from everstep_agent.jobs.settings import JobsSettings
from everstep_agent.jobs.store import JobStore
from everstep_agent.outlet import Outlet
from everstep_agent.vault.memory.allocator import Allocator
from everstep_agent.vault.memory.capacity import MemoryLimits
from everstep_agent.vault.memory.quota import EvictableMemory, Promises
from everstep_agent.vault.snapshots.descriptor_store import RegionStore
from everstep_agent.vault.transfer.certificates import TlsCertificates
from everstep_agent.vault.transfer.engine import TransferEngine
from everstep_agent.vault.transfer.min_rate import MinRate
from everstep_agent.vault.transfer.rate_limit import RateLimiter
from everstep_agent.vault.transfer.stripes import STREAMS_DEFAULT, streams_for
from everstep_agent.vault.vault_context import VaultContext


@dataclass(slots=True)
class StopCounts:
    """Counters since the agent started."""

    launchers_overruled: int = 0


@dataclass(frozen=True, slots=True)
class JobContext:
    """The agent, as a job sees it. ``boot_ns`` is CLOCK_BOOTTIME."""

    settings: JobsSettings
    outlet: Outlet
    site: VaultContext
    store: JobStore
    spawn: Spawn
    boot_ns: Callable[[], int]
    jitter: random.Random
    stop_counts: StopCounts
    skips: SkipWatch
    # For how many seconds the controller has been away; 0 while it is there.
    away_s: Callable[[], float]


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
    site = _make_site(parts, database, store.next_incarnation())
    return JobContext(
        settings,
        parts.outlet,
        site,
        store,
        parts.spawn,
        world.boot_ns,
        world.jitter or random.Random(),
        StopCounts(),
        SkipWatch(),
        world.controller_away_s,
    )


def _make_site(parts: ContextParts, database: sqlite3.Connection, incarnation: int) -> VaultContext:
    settings, world, stack = parts.settings, parts.world, parts.stack
    workers = _pool("vault-work", settings.worker_threads, stack)
    outgoing = _pool("vault-out", settings.transfers_max, stack)
    incoming = _pool("vault-in", settings.transfers_max, stack)
    limits = MemoryLimits(
        settings.memory_reserve_bytes,
        settings.memory_bytes_max,
        settings.memory_per_user_bytes_max,
    )
    allocator = Allocator(workers, world.gauge, limits, settings.huge_pages, world.pool)
    allocator.evictable, allocator.promises = parts.kept, parts.promises
    timeout_s = settings.transfer_timeout_s
    asked = settings.transfer_streams
    for_replicas = asked or streams_for(len(os.sched_getaffinity(0)))
    least = settings.transfer_bytes_per_s_min
    min_rate = MinRate(least, int(timeout_s * 1e9), world.boot_ns) if least else None
    rate_limiter = RateLimiter(settings.replicate_bytes_per_s_max, world.boot_ns)
    return VaultContext(
        node=parts.node,
        slots_per_rank=settings.slots_per_rank,
        threads=workers,
        outgoing=TransferEngine(outgoing, timeout_s, rate_limiter, for_replicas),
        incoming=TransferEngine(
            incoming, timeout_s, RateLimiter(0, world.boot_ns), asked or STREAMS_DEFAULT, min_rate
        ),
        allocator=allocator,
        region_store=RegionStore(database, world.keeper),
        # Epochs of an earlier agent process never come again.
        next_epoch=itertools.count(incarnation << 32).__next__,
        message_memories=message_memories(settings.long_frames_bytes_max, settings.long_frame_s),
        partial_kept_s=settings.transfer_kept_s,
        certificates=TlsCertificates(world.tls, parts.node) if settings.bulk_tls else None,
    )


def _pool(name: str, threads: int, stack: ExitStack) -> ThreadPool:
    workers = ThreadPool(name, threads)
    stack.callback(workers.close)
    return workers
