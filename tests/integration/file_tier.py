"""A file tier (vault/snapshots/file_tier.py) without files: copies in the test's memory."""

import mmap

from everstep_agent.vault.memory.region import Region, allocate_region
from everstep_agent.vault.snapshots.copies import CopyKey, CopyManifest, CopyRef
from everstep_agent.vault.snapshots.file_tier import BadFileError, FileCopy
from everstep_agent.vault.snapshots.hashing import hash_bytes
from everstep_agent.vault.snapshots.manifest import layout_of
from everstep_common.rank_messages import Entry
from everstep_common.reports import StoredStep


class Files:
    """Keeps copies under their keys; ``rot`` changes one without its manifest's knowledge."""

    def __init__(self) -> None:
        self._known: dict[CopyKey, tuple[CopyManifest, bytearray]] = {}
        self.loads: list[CopyKey] = []

    def add(self, key: CopyKey, content: bytes, name: str = "w") -> CopyManifest:
        """Keep a copy of one shard."""
        entries = (Entry(name, 0, len(content)),)
        facts = CopyManifest(key, len(content), hash_bytes(memoryview(content)), entries)
        self._known[key] = (facts, bytearray(content))
        return facts

    def rot(self, key: CopyKey) -> None:
        """Flip a bit of a file."""
        self._known[key][1][0] ^= 1

    async def stored(self, step: StoredStep) -> tuple[FileCopy, ...]:
        """See FileTier."""
        return tuple(
            FileCopy(facts.ref, layout_of(facts.entries))
            for key, (facts, _) in self._known.items()
            if key.step == step.step
        )

    async def manifest(self, copy: CopyRef) -> CopyManifest:
        """See FileTier."""
        if copy.key not in self._known:
            raise FileNotFoundError(f"no file of {copy.key}")
        facts, _ = self._known[copy.key]
        if facts.root_hash != copy.root_hash:
            raise BadFileError("it has another hash")
        return facts

    async def load(self, manifest: CopyManifest) -> Region:
        """See FileTier."""
        self.loads.append(manifest.key)
        region = allocate_region(manifest.size_bytes, "loaded")
        with mmap.mmap(region.fd, region.size_bytes) as target:
            target[: manifest.size_bytes] = self._known[manifest.key][1]
        return region
