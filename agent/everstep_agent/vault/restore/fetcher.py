"""Copy fetcher: one copy into this node's memory, verified, and immutable from then on."""

import asyncio
import logging
from collections import defaultdict
from dataclasses import replace

from everstep_agent.vault.job_vault import JobVault
from everstep_agent.vault.memory.region import Region
from everstep_agent.vault.restore.sources import CopySource, SourceTier
from everstep_agent.vault.snapshots.copies import CopyManifest, CopyRef
from everstep_agent.vault.snapshots.file_tier import BadFileError
from everstep_agent.vault.transfer.client import MismatchError, get_copy
from everstep_agent.vault.transfer.min_rate import SlowSourceError
from everstep_agent.vault.verification import hash_in_parallel

logger = logging.getLogger(__name__)


class CopyGoneError(OSError):
    """The copy is not in this node's memory (any more), or was bad."""


class CopyFetcher:
    """Each copy is fetched once for all ranks of the node; what has come is kept as a replica.

    Until the new generation has a recoverable step of its own, it may be one of only two copies.
    """

    def __init__(self, vault: JobVault) -> None:
        self._vault = vault
        self._one_fetch: defaultdict[CopyRef, asyncio.Lock] = defaultdict(asyncio.Lock)

    def reset(self) -> None:
        """Another plan begins."""
        self._one_fetch.clear()

    async def fetch(
        self, source: CopySource, *, patient: bool = False
    ) -> tuple[CopyManifest, Region]:
        """Return the copy; the caller releases the region. Raises OSError and MemoryShortError.

        SlowSourceError for a source that brings too little, unless ``patient``.
        """
        async with self._one_fetch[source.copy]:
            here = await self._from_own_memory(source.copy)
            if not isinstance(here, str):
                return here
            if source.tier is SourceTier.OWN_MEMORY:
                raise CopyGoneError(here)
            manifest, region = await self._from_elsewhere(source, patient=patient)
            try:
                await self._vault.keep_replica(manifest, region.retain())
            except BaseException:
                region.release()
                raise
            return manifest, region

    async def prefetch(self, source: CopySource) -> None:
        """Do ahead what ``get`` would do, without memory that is not needed in the end."""
        if source.tier is not SourceTier.OWN_MEMORY:
            _, region = await self.fetch(source)
            region.release()
            return
        pinned = self._vault.holdings.pin(source.copy.key)
        if pinned is not None:
            try:
                await self._vault.verifier.freeze(pinned)
            finally:
                pinned.release()

    async def _from_own_memory(self, wanted: CopyRef) -> tuple[CopyManifest, Region] | str:
        """Return the copy from this node's memory, own slots before replicas; or why not."""
        problem = f"the copy of {wanted.key} is not here any more"
        while True:
            pinned = self._vault.holdings.pin(wanted.key)
            if pinned is None:
                return problem
            try:
                if pinned.manifest.root_hash != wanted.root_hash:
                    return problem
                region = await self._vault.verifier.immutable_region(pinned)
                if region is not None:
                    return pinned.manifest, region
            finally:
                pinned.release()
            # The node's own copy is dropped; a replica of the same step may be here as well.
            problem = f"its copy of {wanted.key} is bad"

    async def _from_elsewhere(
        self, source: CopySource, *, patient: bool
    ) -> tuple[CopyManifest, Region]:
        vault = self._vault
        if not source.address:
            return await self._from_file(source)
        remote = vault.context.remote_agent(
            source.node, source.address, vault.lineage, vault.transfer_key
        )
        incoming = vault.context.incoming
        engine = replace(incoming, min_rate=None) if patient else incoming
        while True:
            before = vault.receive_buffers.received_bytes(source.copy)
            try:
                return await get_copy(remote, source.copy, vault.receive_buffers, engine)
            except MismatchError as error:
                vault.report_bad_copy(f"{error} from {source.node}")
                raise
            except SlowSourceError:
                raise  # it may go on for ever like this: others first
            except OSError as error:
                # A source that was cut in the middle is asked to go on, if it brought anything.
                if vault.receive_buffers.received_bytes(source.copy) <= before:
                    raise
                what = (vault.job, source.copy.key, source, error)
                logger.info("job %s: %s from %s goes on after: %s", *what)

    async def _from_file(self, source: CopySource) -> tuple[CopyManifest, Region]:
        vault = self._vault
        if vault.files is None:
            raise FileNotFoundError("this node has no storage for the job")
        try:
            manifest = await vault.files.manifest(source.copy)
            region = await vault.files.load(manifest)
        except BadFileError as error:
            vault.report_bad_copy(f"{source.copy.key} in {source} is bad: {error}")
            raise
        try:
            await self._verify(source, manifest, region)
        except BaseException:
            region.release()
            raise
        return manifest, region

    async def _verify(self, source: CopySource, manifest: CopyManifest, region: Region) -> None:
        vault = self._vault
        if not await vault.context.threads.run(region.freeze):
            raise BadFileError("a process still writes to the memory that the file was read into")
        found = await hash_in_parallel(vault.context.threads, region, manifest.size_bytes)
        if found != manifest.root_hash:
            vault.report_bad_copy(f"{source.copy.key} in {source} is not what was verified before")
            raise BadFileError("its bytes are not what was verified before")
        region.verified_hash = found
