"""Takes replicas from other agents."""

import asyncio
from collections import defaultdict

from everstep_agent.concurrency.time_slices import run_in_slices
from everstep_agent.vault.job_vault import JobVault
from everstep_agent.vault.memory.allocator import MemoryShortError
from everstep_agent.vault.replication.replica_admission import (
    admission_refusal,
    exceeds_one_member,
    report_shortage,
)
from everstep_agent.vault.replication.transfer_registry import ServedTransfer, TransferRegistry
from everstep_agent.vault.snapshots.copies import CopyKey, CopyManifest
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
from everstep_agent.vault.transfer.receive_buffers import CopyRef
from everstep_agent.vault.vault_context import VaultContext

# What the controller takes in 32 bits, and what leaves room to count on in 64.
_RANK_MAX = 2**31 - 1
_STEP_MAX = 10**18 - 1


class ReplicaReceiver:
    """Puts of all jobs. Two of the same copy come one after the other: the first may be cut."""

    def __init__(self, site: VaultContext, meetings: TransferRegistry) -> None:
        self._site = site
        self._meetings = meetings
        self._turns: defaultdict[tuple[str, CopyKey], _Turn] = defaultdict(_Turn)

    async def put(self, wire: BulkConnection, vault: JobVault, put: PutCopy) -> None:
        """Take a replica, or say why not. Raises OSError."""
        key = CopyKey(put.generation, put.rank, put.step)
        turn = self._turns[vault.job, key]
        turn.waiting += 1
        try:
            async with turn.lock:
                await self._put(wire, vault, put)
        finally:
            turn.waiting -= 1
            if not turn.waiting:
                self._turns.pop((vault.job, key), None)

    async def _put(self, wire: BulkConnection, vault: JobVault, put: PutCopy) -> None:
        key = CopyKey(put.generation, put.rank, put.step)
        reason = _problem(put) or vault.refuses(key) or await _wrong_manifest(put)
        if reason:
            await wire.send(Refusal(reason))
            return
        present = vault.holdings.replicas.get(key)
        if present is not None and present.facts.root_hash == put.root_hash:
            await wire.send(CopyStored(put.root_hash))
            return
        expected = CopyRef(key, put.size_bytes, put.root_hash)
        if reason := await admission_refusal(vault, expected):
            await wire.send(Refusal(reason))
            return
        vault.ongoing.moving(put.generation)
        facts = CopyManifest(key, put.size_bytes, put.root_hash, put.entries)
        try:
            arrival = await vault.arrivals.open(expected, f"everstep-replica-{put.rank}")
        except MemoryShortError as error:
            if exceeds_one_member(vault, key):
                report_shortage(vault)
            await wire.send(Refusal(str(error)))
            return
        await wire.send(await self._receive(wire, vault, facts, arrival))

    async def _receive(
        self, wire: BulkConnection, vault: JobVault, facts: CopyManifest, arrival: IncomingCopy
    ) -> CopyStored | HashMismatch | Refusal:
        """Take the stripes of a replica; return what to answer."""
        before = arrival.received_bytes
        meeting = ServedTransfer(
            vault.job, facts.key, lambda one: self._site.incoming.receive(one, arrival)
        )
        self._meetings.open(meeting)
        try:
            await wire.send(SendStripes(arrival.present(), meeting.nonce))
            await meeting.run(wire)
            if not arrival.complete():
                raise BulkError("the copy was cut short")
        except BaseException:
            vault.arrivals.put_by(arrival)
            raise
        finally:
            self._site.counts.received_bytes += arrival.received_bytes - before
            self._meetings.close(meeting)
        return await self._keep(vault, facts, arrival)

    async def _keep(
        self, vault: JobVault, facts: CopyManifest, arrival: IncomingCopy
    ) -> CopyStored | HashMismatch | Refusal:
        root_hash = arrival.root()
        region = vault.arrivals.take(arrival)
        try:
            if root_hash != facts.root_hash:
                vault.bad(f"the replica of {facts.key} arrived changed at {self._site.node}")
                return HashMismatch(root_hash)
            reason = vault.refuses(facts.key)
            if reason:
                return Refusal(reason)
            await vault.keep_replica(facts, region.hold())
            return CopyStored(root_hash)
        finally:
            region.drop()


def _problem(put: PutCopy) -> str | None:
    if put.protocol != PROTOCOL:
        return f"transfers of version {put.protocol} are not taken here, only {PROTOCOL}; upgrade"
    most = ((put.rank, _RANK_MAX), (put.generation, _STEP_MAX), (put.step, _STEP_MAX))
    if not all(0 <= number <= limit for number, limit in most):
        return "a replica of a rank, step or generation that cannot be"
    return None


async def _wrong_manifest(put: PutCopy) -> str | None:
    return (await run_in_slices(check_in_parts(put.entries, put.size_bytes))).problem


class _Turn:
    """Those who wait to put the same copy."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.waiting = 0
