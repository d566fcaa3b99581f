"""Gets a rank its state back: each shard from the best source that proves to be good."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from everstep_agent.vault.allocator import MemoryShortError
from everstep_agent.vault.bulk_client import MismatchError, Remote, get
from everstep_agent.vault.copies import CopyFacts, CopyKey
from everstep_agent.vault.job_vault import JobVault
from everstep_agent.vault.memory import Region
from everstep_agent.vault.recheck import immutable
from everstep_common.trainer_messages import Entry
from everstep_proto.generated import fleet_pb2

logger = logging.getLogger(__name__)


class RestoreError(Exception):
    """Some shard has no good source that can be reached; the sentence says which, and why."""


@dataclass(frozen=True, slots=True)
class Source:
    """A copy that the plan names. Its manifest comes with the copy."""

    node: str
    address: str
    wanted: CopyFacts
    shards: frozenset[str]


@dataclass(frozen=True, slots=True)
class RestoredPart:
    """Verified memory and the shards to take from it; whoever has it drops the region."""

    entries: tuple[Entry, ...]
    region: Region
    # Whose memory the bytes came from: in the plan, also where it sent them ahead of being asked.
    node: str


def source_from_wire(wire: fleet_pb2.ShardSource) -> Source:
    """Return a source of the plan."""
    key = CopyKey(wire.generation, wire.rank, wire.step)
    wanted = CopyFacts(key, wire.size_bytes, wire.root_hash, ())
    return Source(wire.node, wire.bulk_address, wanted, frozenset(wire.shards))


class Restorer:
    """Restores for all local ranks of one job; what one has fetched, the others find here."""

    def __init__(self, vault: JobVault) -> None:
        self._vault = vault
        self._one_fetch: dict[CopyKey, asyncio.Lock] = {}

    async def restore(self, sources: Sequence[Source], names: Iterable[str]) -> list[RestoredPart]:
        """Return every shard that was named, or all of the plan. Raises RestoreError."""
        missing = set(names) or {shard for source in sources for shard in source.shards}
        parts: list[RestoredPart] = []
        problems: list[str] = []
        try:
            for source in self._best_first(sources):
                if not missing & source.shards:
                    continue
                part = await self._from(source, missing, problems)
                if part is not None:
                    parts.append(part)
                    missing -= {entry.name for entry in part.entries}
            if missing:
                raise RestoreError(_explain(missing, problems))
        except BaseException:
            for part in parts:
                part.region.drop()
            raise
        return parts

    def _best_first(self, sources: Sequence[Source]) -> list[Source]:
        held = {(facts.key, facts.root_hash) for facts, _ in self._vault.holdings.facts()}
        here = self._vault.site.node
        return sorted(
            sources,
            key=lambda source: (
                (source.wanted.key, source.wanted.root_hash) not in held,
                source.node != here,
            ),
        )

    async def _from(
        self, source: Source, missing: set[str], problems: list[str]
    ) -> RestoredPart | None:
        try:
            found = await self._local(source) or await self._fetched(source)
        except (OSError, MemoryShortError) as error:
            reason = str(error) or "no answer in time"
            problems.append(f"{source.node}: {reason}")
            logger.warning("restore of %s from %s: %s", source.wanted.key, source.node, reason)
            return None
        if found is None:
            problems.append(f"{source.node}: its copy of {source.wanted.key} is bad")
            return None
        facts, region = found
        entries = tuple(entry for entry in facts.entries if entry.name in missing)
        if not entries:
            region.drop()
            return None
        return RestoredPart(entries, region, source.node)

    async def _local(self, source: Source) -> tuple[CopyFacts, Region] | None:
        """Return the copy from this node's memory, own slots before replicas."""
        while True:
            held = self._vault.holdings.pin(source.wanted.key)
            if held is None:
                return None
            try:
                if held.facts.root_hash != source.wanted.root_hash:
                    return None
                region = await immutable(self._vault, held)
                if region is not None:
                    return held.facts, region
            finally:
                held.release()
            # It was bad and is gone; a replica of the same step may be here as well.

    async def _fetched(self, source: Source) -> tuple[CopyFacts, Region] | None:
        vault = self._vault
        if source.node == vault.site.node or not source.address:
            return None
        async with self._one_fetch.setdefault(source.wanted.key, asyncio.Lock()):
            here = await self._local(source)
            if here is not None:
                return here
            remote = Remote(source.address, vault.job, vault.transfer_key)
            site = vault.site
            try:
                facts, region = await get(
                    remote, source.wanted, site.allocator, site.incoming, vault.uid
                )
            except MismatchError as error:
                vault.bad(str(error))
                raise
            # Kept as a replica too: until the new generation has a recoverable step of its own,
            # this may be one of only two copies.
            await vault.keep_replica(facts, region.hold())
            return facts, region


def _explain(missing: set[str], problems: list[str]) -> str:
    some = ", ".join(sorted(missing)[:3]) + (" …" if len(missing) > 3 else "")
    why = "; ".join(problems) or "no source in the plan holds it"
    return f"no good copy of {some} could be reached ({why})"
