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
from everstep_agent.vault.slot_preallocation import slot_sizes_of_plan
from everstep_agent.vault.snapshots.manifest import chosen_in_parts
from everstep_agent.vault.snapshots.restore_plan import RestorePlan
from everstep_agent.vault.transfer.min_rate import SlowSourceError
from everstep_agent.vault.wire import sources_from_wire
from everstep_common.trainer_messages import Entry
from everstep_proto.generated import fleet_pb2

logger = logging.getLogger(__name__)


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

    async def prefetch_for_spare(self, wanted: fleet_pb2.SpareMemory) -> None:
        """Fetch what a silent member had, before it is judged lost; where that fails, it waits."""
        ranks = range(wanted.first_rank, wanted.first_rank + wanted.processes)
        plan = RestorePlan(sources=sources_from_wire(wanted.ahead))
        sources = SourceSearch(self._vault, self._contents, plan).sources
        await asyncio.gather(*map(self._prefetch_one_early, best_for_ranks(ranks, sources)))

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
            logger.info("prefetch of job %s: %s", self._vault.job, error or "no answer in time")
        await asyncio.gather(*map(self._prepare, best_for_ranks(plan.ranks, search.sources)))

    async def _prepare(self, source: CopySource) -> bool:
        """Do ahead what a restore would do; return whether a copy was brought here."""
        key = source.copy.key
        try:
            await self._fetcher.prefetch(source)
        except (OSError, MemoryShortError) as error:  # the restore will say so, and go on
            logger.info("prefetch of %s from %s: %s", key, source, error or "no answer in time")
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
