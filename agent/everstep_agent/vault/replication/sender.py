"""Copy sender: sends copies and their manifests to agents that ask for them."""

import asyncio
import logging

from everstep_agent.vault.job_vault import JobVault
from everstep_agent.vault.memory.allocator import MemoryShortError
from everstep_agent.vault.replication.transfer_registry import ServedTransfer, TransferRegistry
from everstep_agent.vault.snapshots.copies import CopyManifest, CopyRef
from everstep_agent.vault.snapshots.holdings import PinnedCopy
from everstep_agent.vault.transfer.connection import BulkConnection
from everstep_agent.vault.transfer.engine import OutgoingCopy, StripeQueue
from everstep_agent.vault.transfer.messages import (
    CopyOffer,
    CopyStored,
    GetCopy,
    GetManifests,
    HashMismatch,
    ManifestReply,
    Refusal,
    SendStripes,
)
from everstep_agent.vault.transfer.stripes import missing_stripes
from everstep_agent.vault.vault_context import VaultContext

logger = logging.getLogger(__name__)
# How many manifests one request may ask for: more than the copies that a node can hold.
_MANIFESTS_MAX = 4096


class CopySender:
    """Gets of all jobs."""

    def __init__(self, context: VaultContext, transfers: TransferRegistry) -> None:
        self._context = context
        self._transfers = transfers

    async def send_manifests(
        self, connection: BulkConnection, vault: JobVault, request: GetManifests
    ) -> None:
        """Say what is in each copy. Raises OSError."""
        for wanted in request.copies[:_MANIFESTS_MAX]:
            manifest = await self._find_manifest(vault, wanted)
            if manifest is None:
                await connection.send(Refusal(f"{self._context.node} has no such copy"))
            else:
                await connection.send(ManifestReply(manifest.ref, manifest.entries))

    async def send_copy(self, connection: BulkConnection, vault: JobVault, get: GetCopy) -> None:
        """Send a copy from memory, or from this node's own disk. Raises OSError."""
        expected = get.copy
        pinned = vault.holdings.pin(expected.key)
        if pinned is not None and pinned.manifest.root_hash != expected.root_hash:
            pinned.release()
            pinned = None
        pinned = pinned or await self._load_from_file(vault, expected)
        if pinned is None:
            await connection.send(Refusal(f"{self._context.node} has no copy of that step"))
            return
        try:
            await self._send(connection, vault, pinned)
        finally:
            pinned.release()

    async def _send(self, connection: BulkConnection, vault: JobVault, pinned: PinnedCopy) -> None:
        manifest, patience_s = pinned.manifest, 4 * self._context.outgoing.timeout_s
        outgoing = OutgoingCopy(pinned.region, StripeQueue(()))
        transfer = ServedTransfer(
            vault.lineage, manifest.key, lambda one: self._context.outgoing.send(one, outgoing)
        )
        await connection.send(CopyOffer(manifest.ref, manifest.entries, transfer.nonce))
        async with asyncio.timeout(patience_s):
            accept = await connection.receive(SendStripes)  # when the other end has the memory
        assert isinstance(accept, SendStripes)
        outgoing.stripes.add_stripes(missing_stripes(accept.present, manifest.size_bytes))
        self._transfers.open(transfer)
        try:
            await transfer.run(connection)
        finally:
            self._transfers.close(transfer)
        async with asyncio.timeout(patience_s):
            answer = await connection.receive(CopyStored, HashMismatch)
        if isinstance(answer, HashMismatch):
            await vault.verifier.verify_again(pinned)

    async def _find_manifest(self, vault: JobVault, expected: CopyRef) -> CopyManifest | None:
        for manifest, _ in vault.holdings.manifests():
            if (manifest.key, manifest.root_hash) == (expected.key, expected.root_hash):
                return manifest
        if vault.files is None:
            return None
        try:
            return await vault.files.manifest(expected)
        except OSError as error:
            logger.info("job %s: file of %s: %s", vault.job, expected.key, error or "no answer")
            return None

    async def _load_from_file(self, vault: JobVault, expected: CopyRef) -> PinnedCopy | None:
        """Return what is in a file of this node; whoever gets it verifies it."""
        manifest = await self._find_manifest(vault, expected)
        if manifest is None or vault.files is None:
            return None
        try:
            region = await vault.files.load(manifest)
        except (OSError, MemoryShortError) as error:
            logger.warning("job %s: file of %s: %s", vault.job, expected.key, error or "no answer")
            return None
        return PinnedCopy(manifest, region, True, True, region.release)
