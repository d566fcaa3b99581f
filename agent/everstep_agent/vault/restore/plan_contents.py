"""Plan contents: which shards the copies of a restore plan hold, asked once for equal copies."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence

from everstep_agent.concurrency.time_slices import run_in_slices
from everstep_agent.vault.job_vault import JobVault
from everstep_agent.vault.restore.sources import CopySource
from everstep_agent.vault.snapshots.copies import CopyManifest
from everstep_agent.vault.snapshots.manifest import names_in_parts
from everstep_agent.vault.transfer.client import get_manifests
from everstep_common.rank_messages import Entry

logger = logging.getLogger(__name__)


class PlanContents:
    """Manifests of one job's plan; what one rank has asked for, the others find here."""

    def __init__(self, vault: JobVault) -> None:
        self._vault = vault
        self._parts: dict[bytes, tuple[Entry, ...]] = {}
        self._names: dict[bytes, frozenset[str]] = {}
        self._one_at_a_time = asyncio.Lock()

    def entries_of(self, source: CopySource) -> tuple[Entry, ...] | None:
        """Return the shards of a source, if they are known; offsets are those of an equal copy."""
        return self._parts.get(source.part)

    def names_of(self, source: CopySource) -> frozenset[str] | None:
        """Return the names of a source's shards, if they are known."""
        return self._names.get(source.part)

    def unknown(self, sources: Iterable[CopySource]) -> list[CopySource]:
        """Return those whose shards are not known."""
        return [source for source in sources if source.part not in self._names]

    def reset(self) -> None:
        """Another plan begins."""
        self._parts.clear()
        self._names.clear()

    async def learn(self, sources: Sequence[CopySource]) -> list[str]:
        """Ask for what is not known, from the best source of each part; return what went wrong."""
        problems: list[str] = []
        async with self._one_at_a_time:
            self._learn_own(sources)
            await self._index_names()
            asked: set[CopySource] = set()
            while True:
                first: dict[bytes, CopySource] = {}
                for source in self.unknown(sources):
                    if source not in asked:
                        first.setdefault(source.part, source)
                if not first:
                    return problems
                asked.update(first.values())
                problems += await self._ask(first.values())
                await self._index_names()

    def _learn_own(self, sources: Sequence[CopySource]) -> None:
        held = {
            (manifest.key, manifest.root_hash): manifest
            for manifest, _ in self._vault.holdings.manifests()
        }
        for source in sources:
            manifest = held.get((source.copy.key, source.copy.root_hash))
            if manifest is not None:
                self._parts[source.part] = manifest.entries

    async def _ask(self, sources: Iterable[CopySource]) -> list[str]:
        """Ask every node once for all that it has; return what went wrong."""
        nodes: defaultdict[tuple[str, str], list[CopySource]] = defaultdict(list)
        for source in sources:
            nodes[source.node, source.address].append(source)
        asked = [
            self._ask_node(address, of_node) if address else self._ask_files(of_node)
            for (_, address), of_node in nodes.items()
        ]
        problems = await asyncio.gather(*asked)
        return [problem for some in problems for problem in some]

    async def _ask_node(self, address: str, sources: list[CopySource]) -> list[str]:
        vault = self._vault
        node = sources[0].node
        remote = vault.context.remote_agent(node, address, vault.lineage, vault.transfer_key)
        wanted = [source.copy for source in sources]
        try:
            found = await get_manifests(remote, wanted, vault.context.incoming.timeout_s)
        except OSError as error:
            return [f"{sources[0]}: {error or 'no answer in time'}"]
        return [
            f"{source} has no copy of {source.copy.key}"
            for source in sources
            if not self._note(source, found.get(source.copy.key))
        ]

    async def _ask_files(self, sources: list[CopySource]) -> list[str]:
        problems = []
        for source in sources:
            try:
                self._note(source, await self._read_manifest(source))
            except OSError as error:
                problems.append(f"{source}: {error or 'no answer in time'}")
        return problems

    async def _read_manifest(self, source: CopySource) -> CopyManifest | None:
        files = self._vault.files
        if files is None:
            raise FileNotFoundError("this node has no storage for the job")
        return await files.manifest(source.copy)

    async def _index_names(self) -> None:
        """What is known counts from now on."""
        for part in self._parts.keys() - self._names.keys():
            entries = self._parts[part]
            names = await run_in_slices(names_in_parts(entries))
            # Another plan may have begun meanwhile.
            if self._parts.get(part) is entries:
                self._names[part] = names

    def _note(self, source: CopySource, manifest: CopyManifest | None) -> bool:
        if manifest is not None:
            self._parts[source.part] = manifest.entries
        return manifest is not None
