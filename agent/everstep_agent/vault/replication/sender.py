"""Gives copies, and what is known of them, to other agents."""

import asyncio
import logging

from everstep_agent.vault.job_vault import JobVault
from everstep_agent.vault.memory.allocator import MemoryShortError
from everstep_agent.vault.replication.transfer_registry import ServedTransfer, TransferRegistry
from everstep_agent.vault.snapshots.copies import CopyKey, CopyManifest
from everstep_agent.vault.snapshots.file_tier import FileName
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
from everstep_agent.vault.transfer.receive_buffers import CopyRef
from everstep_agent.vault.transfer.stripes import missing_stripes
from everstep_agent.vault.vault_context import VaultContext

logger = logging.getLogger(__name__)
# Shards of one answer are bounded by the frame; copies of one request by what a node can hold.
_MANIFESTS_MAX = 4096


class CopySender:
    """Gets of all jobs."""

    def __init__(self, site: VaultContext, meetings: TransferRegistry) -> None:
        self._site = site
        self._meetings = meetings

    async def manifests(self, wire: BulkConnection, vault: JobVault, request: GetManifests) -> None:
        """Say what is in each copy. Raises OSError."""
        for wanted in request.copies[:_MANIFESTS_MAX]:
            facts = await self._facts(vault, _expected(wanted))
            if facts is None:
                await wire.send(Refusal(f"{self._site.node} has no such copy"))
            else:
                await wire.send(ManifestReply(facts.size_bytes, facts.root_hash, facts.entries))

    async def get(self, wire: BulkConnection, vault: JobVault, get: GetCopy) -> None:
        """Send a copy from memory, or from this node's own disk. Raises OSError."""
        expected = _expected(get)
        held = vault.holdings.pin(expected.key)
        if held is not None and held.facts.root_hash != expected.root_hash:
            held.release()
            held = None
        held = held or await self._loaded(vault, expected)
        if held is None:
            await wire.send(Refusal(f"{self._site.node} has no copy of that step"))
            return
        try:
            await self._send(wire, vault, held)
        finally:
            held.release()

    async def _send(self, wire: BulkConnection, vault: JobVault, held: PinnedCopy) -> None:
        facts, patience_s = held.facts, 4 * self._site.outgoing.timeout_s
        departure = OutgoingCopy(held.region, StripeQueue(()))
        meeting = ServedTransfer(
            vault.job, facts.key, lambda one: self._site.outgoing.send(one, departure)
        )
        await wire.send(CopyOffer(facts.size_bytes, facts.root_hash, facts.entries, meeting.nonce))
        async with asyncio.timeout(patience_s):
            accept = await wire.receive(SendStripes)  # when the other end has the memory
        assert isinstance(accept, SendStripes)
        departure.stripes.add(missing_stripes(accept.present, facts.size_bytes))
        self._meetings.open(meeting)
        try:
            await meeting.run(wire)
        finally:
            self._meetings.close(meeting)
        async with asyncio.timeout(patience_s):
            answer = await wire.receive(CopyStored, HashMismatch)
        if isinstance(answer, HashMismatch):
            await vault.verifier.verify_again(held)

    async def _facts(self, vault: JobVault, expected: CopyRef) -> CopyManifest | None:
        for facts, _ in vault.holdings.facts():
            if (facts.key, facts.root_hash) == (expected.key, expected.root_hash):
                return facts
        if vault.files is None:
            return None
        name = FileName(expected.key, expected.size_bytes, expected.root_hash)
        try:
            return await vault.files.manifest(name)
        except OSError as error:
            logger.info("file of %s: %s", expected.key, error or "no answer")
            return None

    async def _loaded(self, vault: JobVault, expected: CopyRef) -> PinnedCopy | None:
        """Return what is in a file of this node; whoever gets it verifies it."""
        facts = await self._facts(vault, expected)
        if facts is None or vault.files is None:
            return None
        try:
            region = await vault.files.load(facts)
        except (OSError, MemoryShortError) as error:
            logger.warning("file of %s: %s", expected.key, error or "no answer")
            return None
        return PinnedCopy(facts, region, True, True, region.drop)


def _expected(get: GetCopy) -> CopyRef:
    key = CopyKey(get.generation, get.rank, get.step)
    return CopyRef(key, get.size_bytes, get.root_hash)
