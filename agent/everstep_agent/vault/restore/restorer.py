"""Restorer: gets a rank its state back, each shard from the best source that proves to be good."""

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass

from everstep_agent.concurrency.time_slices import run_in_slices
from everstep_agent.vault.job_vault import JobVault
from everstep_agent.vault.memory.allocator import MemoryShortError
from everstep_agent.vault.memory.region import Region
from everstep_agent.vault.restore.fetcher import CopyFetcher
from everstep_agent.vault.restore.plan_contents import PlanContents
from everstep_agent.vault.restore.source_search import SourceSearch
from everstep_agent.vault.restore.sources import (
    CopySource,
    SourceTier,
    best_for_ranks,
    lacking_in_parts,
)
from everstep_agent.vault.slot_preallocation import slot_bytes_for, slot_sizes_of_plan
from everstep_agent.vault.snapshots.manifest import chosen_in_parts
from everstep_agent.vault.snapshots.restore_plan import RestorePlan, SpareRequest
from everstep_agent.vault.transfer.min_rate import SlowSourceError
from everstep_common.rank_messages import Entry

logger = logging.getLogger(__name__)

# The most processes that a node is believed to have: none has more accelerators.
_PROCESSES_MAX = 64


@dataclass(frozen=True, slots=True)
class RestoredPart:
    """Verified memory and the shards to take from it; whoever has it drops the region."""

    entries: tuple[Entry, ...]
    region: Region
    # Where the bytes were when they were asked for: in the tiers' words.
    origin: str


class Restorer:
    """Restores for all local ranks of one job; what one has fetched, the others find here."""

    def __init__(self, vault: JobVault) -> None:
        self._vault = vault
        self._contents = PlanContents(vault)
        self._fetcher = CopyFetcher(vault)

    def prefetch(self, plan: RestorePlan) -> None:
        """Begin to fetch and verify what the ranks of this node snapshotted themselves.

        What other ranks did, a new world size may need; nobody knows before the ranks ask. Then
        make the slots that the ranks will ask for: the state comes first.
        """
        self._contents.reset()
        self._fetcher.reset()
        if plan.restores:
            self._vault.tasks.start_ahead(self._do_ahead(plan), plan.generation)
        else:
            self._vault.release_idle_memory()

    def prepare_spare(self, wanted: SpareRequest) -> None:
        """Make memory ready while the node waits as a spare, and fill it for a silent member.

        New memory takes longer to come than the bytes that a peer sends into it. It is made of what
        nobody else needs, counted like all snapshot memory, and the first that goes when somebody
        does. Left off when the node gets its place; what has come of a copy by then stays for a
        while, and the restore goes on from there.
        """
        self._vault.tasks.start_ahead(self._prepare_spare(wanted), self._vault.fence)

    async def _prepare_spare(self, wanted: SpareRequest) -> None:
        if wanted.ahead:
            await self._prefetch_for_spare(wanted)
        if not wanted.copy_bytes:
            return  # a guard of what one other node has: it gets no ranks for that
        vault, ranks = self._vault, min(len(wanted.ranks), _PROCESSES_MAX)
        try:
            # Copies are fetched first: slots can still be made while the processes start.
            if not wanted.ahead:
                await vault.receive_buffers.prepare_spares(ranks, wanted.copy_bytes)
            await vault.preallocated_slots.prepare_spare(
                vault.slot_request(slot_bytes_for(wanted.copy_bytes)), ranks
            )
        except (OSError, MemoryShortError) as error:
            logger.info("job %s: memory of a spare: %s", vault.job, error)

    async def _prefetch_for_spare(self, wanted: SpareRequest) -> None:
        """Fetch what a silent member had, before it is judged lost; where that fails, it waits."""
        plan = RestorePlan(ranks=wanted.ranks, sources=wanted.ahead)
        sources = SourceSearch(self._vault, self._contents, plan).sources
        await asyncio.gather(*map(self._prefetch_one_early, best_for_ranks(plan.ranks, sources)))

    async def _prefetch_one_early(self, source: CopySource) -> None:
        if await self._prepare(source):
            counts = self._vault.context.counters
            counts.early_copies += 1
            counts.early_bytes += source.copy.size_bytes

    async def restore(
        self, plan: RestorePlan, names: Iterable[str], rank: int
    ) -> list[RestoredPart]:
        """Return to a rank every shard that it named, or all of the plan. Raises RestoreError."""
        search = SourceSearch(self._vault, self._contents, plan, rank)
        missing = set(names) or await search.all_names()
        parts: list[RestoredPart] = []
        try:
            while missing:
                chosen = await search.choose(missing)
                # Ends when all have ended, even when it is cancelled: nothing is added after that.
                results = await asyncio.gather(
                    *(self._add_part(parts, source, missing, search) for source in chosen),
                    return_exceptions=True,
                )
                for result in results:
                    if result is not None:
                        raise result
                brought = [(entry.name for entry in part.entries) for part in parts]
                missing = await run_in_slices(lacking_in_parts(missing, brought))
        except BaseException:
            for part in parts:
                part.region.release()
            raise
        return parts

    async def describe(self, plan: RestorePlan, rank: int | None) -> tuple[Entry, ...]:
        """Return what the plan's step has: of one rank's copy, or (None) each shard once.

        Raises RestoreError. A rank that has no copy of its own, the world being another one now,
        is told everything.
        """
        search = SourceSearch(self._vault, self._contents, plan)
        return await search.entries(rank)

    async def _do_ahead(self, plan: RestorePlan) -> None:
        await self._prefetch(plan)
        vault = self._vault
        sizes = slot_sizes_of_plan(plan, vault.holdings.ranks)
        wanted = {rank: vault.slot_request(size) for rank, size in sizes.items()}
        await vault.preallocated_slots.allocate_for(plan.generation, wanted)
        vault.receive_buffers.expire_spares()

    async def _prefetch(self, plan: RestorePlan) -> None:
        search = SourceSearch(self._vault, self._contents, plan)
        try:
            await search.search_storage_if_alone()
        except OSError as error:
            logger.info("job %s: prefetch: %s", self._vault.job, error or "no answer in time")
        await asyncio.gather(*map(self._prepare, best_for_ranks(plan.ranks, search.sources)))

    async def _prepare(self, source: CopySource) -> bool:
        """Do ahead what a restore would do; return whether a copy was brought here."""
        key = source.copy.key
        try:
            await self._fetcher.prefetch(source)
        except (OSError, MemoryShortError) as error:  # the restore will say so, and go on
            what = (self._vault.job, key, source, error or "no answer in time")
            logger.info("job %s: prefetch of %s from %s: %s", *what)
            return False
        if source.tier is SourceTier.OWN_MEMORY:
            return False
        where = (self._vault.job, key.step, key.rank, source)
        logger.info("job %s: prefetched step %d of rank %d from %s", *where)
        return True

    async def _add_part(
        self, parts: list[RestoredPart], source: CopySource, missing: set[str], search: SourceSearch
    ) -> None:
        try:
            manifest, region = await self._fetcher.fetch(
                source, patient=search.is_last_resort(source)
            )
        except SlowSourceError as error:
            search.mark_slow(source, str(error))
            return
        except (OSError, MemoryShortError) as error:
            search.mark_failed(source, str(error) or "no answer in time")
            return
        entries = await _taken(manifest.entries, missing, region)
        if not entries:
            region.release()
            search.mark_failed(source, "what was wanted is not in it")
            return
        parts.append(RestoredPart(entries, region, str(source)))


async def _taken(entries: tuple[Entry, ...], names: set[str], region: Region) -> tuple[Entry, ...]:
    try:
        return await run_in_slices(chosen_in_parts(entries, names))
    except BaseException:
        region.release()
        raise
