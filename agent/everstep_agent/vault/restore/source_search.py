"""Source search: which sources a state has, what is in them, and which have failed."""

import logging
from collections.abc import Iterable, Sequence, Set

from everstep_agent.concurrency.time_slices import run_in_slices
from everstep_agent.vault.job_vault import JobVault
from everstep_agent.vault.restore.plan_contents import PlanContents
from everstep_agent.vault.restore.sources import (
    CopySource,
    choose_in_parts,
    lacking_in_parts,
    own_parts,
    sources_in_storage,
    sources_of_plan,
    without_other_ranks,
)
from everstep_agent.vault.snapshots.file_tier import BadFileError
from everstep_agent.vault.snapshots.manifest import names_in_parts
from everstep_agent.vault.snapshots.restore_plan import RestorePlan
from everstep_common.long_frames import Parts
from everstep_common.rank_messages import Entry

logger = logging.getLogger(__name__)


class RestoreError(Exception):
    """Some shard has no good source that can be reached; the sentence says which, and why."""


class SourceSearch:
    """The sources of one plan, for one question of one rank."""

    def __init__(
        self,
        vault: JobVault,
        contents: PlanContents,
        plan: RestorePlan,
        rank: int | None = None,
    ) -> None:
        self._vault = vault
        # The rank that restores: it gets no other rank's shards of the same names while its own can
        # be had.
        self._rank = rank
        # The root hash of what that rank saved itself, by part; also when no good copy is left.
        self._own: dict[bytes, bytes] = {}
        self._contents = contents
        self._plan = plan
        held = [manifest.ref for manifest, _ in vault.holdings.manifests()]
        self.sources = sources_of_plan(plan.sources, held, vault.context.node)
        self._storage_asked = False
        self._problems: list[str] = []
        # Slow sources, asked only for what no other source has.
        self._slow: list[CopySource] = []

    async def choose(self, missing: Set[str]) -> list[CopySource]:
        """Return sources for all of it. Raises RestoreError.

        Asks as few as it can: nobody for what is known, then for what the ranks of this node
        wrote, then for everything; and shared storage only for what nobody has in memory.
        """
        chosen, lacking = await self._choose(missing)
        for widen in (
            self._learn_local_ranks,
            self._learn_all,
            self._search_storage,
            self._learn_local_ranks,
            self._learn_all,
        ):
            if not lacking:
                break
            await widen()
            chosen, lacking = await self._choose(missing)
        if self._slow and lacking:
            self.sources += [source for source in self._slow if source not in self.sources]
            chosen, lacking = await self._choose(missing)
        if lacking and self._rank is not None:
            chosen, lacking = await self._choose_of_others(missing)
        if lacking:
            raise RestoreError(_explain(lacking, self._problems))
        return chosen

    async def _choose_of_others(self, missing: Set[str]) -> tuple[list[CopySource], set[str]]:
        """Take what other ranks saved under the same names, though it is not the same."""
        rank, self._rank, self._own = self._rank, None, {}
        chosen, lacking = await self._choose(missing)
        if not lacking:
            logger.warning(
                "job %s: what rank %d saved under its names is lost; it gets what rank %d did",
                self._vault.job,
                rank,
                chosen[-1].copy.key.rank,
            )
        return chosen, lacking

    async def all_names(self) -> set[str]:
        """Return the names of all shards. Raises RestoreError when some part is not known."""
        return set(await run_in_slices(names_in_parts(await self.entries(None))))

    async def entries(self, rank: int | None) -> tuple[Entry, ...]:
        """Return the shards of one rank's copy, or of all; each name once. Raises RestoreError."""
        await self.search_storage_if_alone()
        own = [source for source in self.sources if source.copy.key.rank == rank]
        return await run_in_slices(_merged(await self._entries_of_parts(own or self.sources)))

    def mark_failed(self, source: CopySource, reason: str) -> None:
        """Do not take this source again."""
        self.sources = [other for other in self.sources if other != source]
        self._problems.append(f"{source}: {reason}")
        what = (self._vault.job, source.copy.key, source, reason)
        logger.warning("job %s: restore of %s from %s: %s", *what)

    def mark_slow(self, source: CopySource, reason: str) -> None:
        """Take this source only for what no other one has."""
        self.mark_failed(source, reason)
        self._slow.append(source)

    def is_last_resort(self, source: CopySource) -> bool:
        """Return whether the source is slow, and there is no better one."""
        return source in self._slow

    async def search_storage_if_alone(self) -> None:
        """Look in shared storage when the plan names nothing else."""
        if not self.sources:
            await self._search_storage()

    async def _learn_local_ranks(self) -> None:
        ranks = self._plan.ranks
        await self._learn([one for one in self.sources if one.copy.key.rank in ranks])

    async def _learn_all(self) -> None:
        await self._learn(self.sources)

    async def _learn(self, sources: Sequence[CopySource]) -> None:
        self._problems += await self._contents.learn(sources)

    async def _search_storage(self) -> None:
        files = self._vault.files
        step = self._plan.stored
        if self._storage_asked or files is None or step is None:
            return
        self._storage_asked = True
        try:
            self.sources = [
                *self.sources,
                *sources_in_storage(await files.stored(step)),
            ]
        except OSError as error:
            self._problems.append(f"shared storage: {error or 'no answer in time'}")
            if isinstance(error, BadFileError):
                self._vault.report_bad_copy(self._problems[-1])

    async def _entries_of_parts(self, sources: Sequence[CopySource]) -> list[tuple[Entry, ...]]:
        """Return what is in each part of these. Raises RestoreError when that of one is unknown."""
        await self._learn(sources)
        unknown = {source.part for source in self._contents.unknown(sources)}
        if unknown:
            await self._search_storage()
            await self._learn([one for one in self.sources if one.part in unknown])
        if not sources or self._contents.unknown(sources):
            why = "; ".join(self._problems) or "the plan names no source"
            raise RestoreError(f"what is in a part of the state is not known ({why})")
        parts = {source.part: self._contents.entries_of(source) or () for source in sources}
        return list(parts.values())

    async def _choose(self, missing: Set[str]) -> tuple[list[CopySource], set[str]]:
        """Return the best sources that are known, and what is in none of them."""
        if self._rank is not None:
            self._own = own_parts(self.sources, self._rank) | self._own
        known = {
            source: names
            for source in without_other_ranks(self.sources, self._own)
            if (names := self._contents.names_of(source)) is not None
        }
        chosen = await run_in_slices(choose_in_parts(list(known.items()), missing))
        return chosen, await run_in_slices(
            lacking_in_parts(missing, [known[one] for one in chosen])
        )


def _merged(contents: Iterable[tuple[Entry, ...]]) -> Parts[tuple[Entry, ...]]:
    """Return each shard once."""
    found: dict[str, Entry] = {}
    for entries in contents:
        for entry in entries:
            found.setdefault(entry.name, entry)
            yield
    return tuple(found.values())


def _explain(missing: set[str], problems: Sequence[str]) -> str:
    some = ", ".join(sorted(missing)[:3]) + (" …" if len(missing) > 3 else "")
    why = "; ".join(problems) or "no source in the plan holds it"
    return f"no good copy of {some} could be reached ({why})"
