"""Replica receiver: takes copies from other agents as far as this node has memory for them.

Where most members are in one failure domain, those outside it keep several ones' replicas. What a
job was promised counts one member's: the others' are taken only while the slots of the next
generation still fit beside them. Where they do not, the controller hears of it, and has the node
keep one member's again.
"""

import asyncio
import logging
from collections import defaultdict

from everstep_agent.concurrency.time_slices import run_in_slices
from everstep_agent.vault.job_vault import JobVault
from everstep_agent.vault.memory.allocator import AllocationRequest, MemoryShortError
from everstep_agent.vault.replication.transfer_registry import ServedTransfer, TransferRegistry
from everstep_agent.vault.snapshots.copies import CopyKey, CopyManifest, CopyRef
from everstep_agent.vault.snapshots.holdings import RankMemory
from everstep_agent.vault.snapshots.manifest import check_in_parts
from everstep_agent.vault.transfer.connection import BulkConnection, BulkError
from everstep_agent.vault.transfer.incoming_copy import IncomingCopy
from everstep_agent.vault.transfer.messages import (
    PROTOCOL,
    CopyStored,
    HashMismatch,
    PutCopy,
    Refusal,
    SendStripes,
)
from everstep_agent.vault.vault_context import VaultContext

logger = logging.getLogger(__name__)

# The largest rank (a signed 32-bit integer) and the largest step that are accepted.
_RANK_MAX = 2**31 - 1
_STEP_MAX = 10**18 - 1


async def _admission_refusal(vault: JobVault, expected: CopyRef) -> str | None:
    """Return why a replica is not taken, or None: it is the one member's, or there is room.

    Refused only until the controller knows: whose replicas stay here is its word, and may be those
    that were refused. What is held of the others is freed when these have come.
    """
    if vault.replicas_short or not _exceeds_one_member(vault, expected.key):
        return None
    slots = sum(region.size_bytes for memory in _slots(vault) for region in memory.live_regions())
    wanted = slots + expected.size_bytes
    request = AllocationRequest(vault.uid, 1, wanted, "", vault.job, after_promises=True)
    if await vault.context.allocator.fits(request):
        return None
    _report_shortage(vault)
    return f"{vault.context.node} has no memory for the replicas of more than one node"


def _exceeds_one_member(vault: JobVault, key: CopyKey) -> bool:
    """Return whether, with this one, there are replicas of more ranks than one member has.

    All members have as many as this one; who has none (a spare) keeps those of one member only.
    """
    own = {memory.table.rank for memory in _slots(vault)}
    ranks = {one.rank for one in vault.holdings.replicas if one.generation == key.generation}
    return bool(own) and len((ranks | {key.rank}) - own) > len(own)


def _report_shortage(vault: JobVault) -> None:
    """Let the controller know, once for all generations of the job."""
    if not vault.replicas_short:
        logger.warning("job %s: memory for the replicas of one node only", vault.job)
        vault.replicas_short = True
        vault.notify_change()


def _slots(vault: JobVault) -> list[RankMemory]:
    return [memory for memory in vault.holdings.ranks if not memory.retired]


class ReplicaReceiver:
    """Puts of all jobs. Two of the same copy come one after the other: the first may be cut."""

    def __init__(self, context: VaultContext, transfers: TransferRegistry) -> None:
        self._context = context
        self._transfers = transfers
        self._turns: defaultdict[tuple[str, CopyKey], _Turn] = defaultdict(_Turn)

    async def receive(self, connection: BulkConnection, vault: JobVault, put: PutCopy) -> None:
        """Take a replica, or say why not. Raises OSError."""
        key = put.copy.key
        turn = self._turns[vault.lineage, key]
        turn.waiting += 1
        try:
            async with turn.lock:
                await self._receive_one(connection, vault, put)
        finally:
            turn.waiting -= 1
            if not turn.waiting:
                self._turns.pop((vault.lineage, key), None)

    async def _receive_one(self, connection: BulkConnection, vault: JobVault, put: PutCopy) -> None:
        copy, key = put.copy, put.copy.key
        reason = _problem(put) or vault.replica_refusal(key) or await _wrong_manifest(put)
        if reason:
            await connection.send(Refusal(reason))
            return
        present = vault.holdings.replicas.get(key)
        if present is not None and present.manifest.root_hash == copy.root_hash:
            await connection.send(CopyStored(copy.root_hash))
            return
        if reason := await _admission_refusal(vault, copy):
            await connection.send(Refusal(reason))
            return
        vault.tasks.track_transfer(key.generation)
        manifest = CopyManifest(key, copy.size_bytes, copy.root_hash, put.entries)
        try:
            incoming = await vault.receive_buffers.open_copy(copy, f"everstep-replica-{key.rank}")
        except MemoryShortError as error:
            if _exceeds_one_member(vault, key):
                _report_shortage(vault)
            await connection.send(Refusal(str(error)))
            return
        await connection.send(await self._receive_stripes(connection, vault, manifest, incoming))

    async def _receive_stripes(
        self,
        connection: BulkConnection,
        vault: JobVault,
        manifest: CopyManifest,
        incoming: IncomingCopy,
    ) -> CopyStored | HashMismatch | Refusal:
        """Take the stripes of a replica; return what to answer."""
        before = incoming.received_bytes
        transfer = ServedTransfer(
            vault.lineage, manifest.key, lambda one: self._context.incoming.receive(one, incoming)
        )
        self._transfers.open(transfer)
        try:
            await connection.send(SendStripes(incoming.received_bitmap(), transfer.nonce))
            await transfer.run(connection)
            if not incoming.is_complete():
                raise BulkError("the copy was cut short")
        except BaseException:
            vault.receive_buffers.keep_partial(incoming)
            raise
        finally:
            self._context.counters.received_bytes += incoming.received_bytes - before
            self._transfers.close(transfer)
        return await self._keep(vault, manifest, incoming)

    async def _keep(
        self, vault: JobVault, manifest: CopyManifest, incoming: IncomingCopy
    ) -> CopyStored | HashMismatch | Refusal:
        root_hash = incoming.received_root_hash()
        region = vault.receive_buffers.take_region(incoming)
        try:
            if root_hash != manifest.root_hash:
                vault.report_bad_copy(
                    f"the replica of {manifest.key} arrived changed at {self._context.node}"
                )
                return HashMismatch(root_hash)
            reason = vault.replica_refusal(manifest.key)
            if reason:
                return Refusal(reason)
            await vault.keep_replica(manifest, region.retain())
            return CopyStored(root_hash)
        finally:
            region.release()


def _problem(put: PutCopy) -> str | None:
    if put.protocol != PROTOCOL:
        return f"transfers of version {put.protocol} are not taken here, only {PROTOCOL}; upgrade"
    key = put.copy.key
    most = ((key.rank, _RANK_MAX), (key.generation, _STEP_MAX), (key.step, _STEP_MAX))
    if not all(0 <= number <= limit for number, limit in most):
        return "a replica of a rank, step or generation that cannot be"
    return None


async def _wrong_manifest(put: PutCopy) -> str | None:
    return (await run_in_slices(check_in_parts(put.entries, put.copy.size_bytes))).problem


class _Turn:
    """Those who wait to put the same copy."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.waiting = 0
