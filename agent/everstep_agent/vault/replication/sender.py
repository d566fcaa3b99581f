"""Gives copies, and what is known of them, to other agents."""

import asyncio
import logging

from everstep_agent.vault.job_vault import JobVault
from everstep_agent.vault.memory.allocator import MemoryShortError
from everstep_agent.vault.replication.transfer_registry import Meeting, Meetings
from everstep_agent.vault.snapshots.copies import CopyFacts, CopyKey
from everstep_agent.vault.snapshots.file_tier import FileName
from everstep_agent.vault.snapshots.holdings import Held
from everstep_agent.vault.transfer.connection import Wire
from everstep_agent.vault.transfer.engine import Departure, Queue
from everstep_agent.vault.transfer.messages import (
    Accept,
    Get,
    Manifest,
    Manifests,
    Mismatch,
    Offer,
    Sorry,
    Stored,
)
from everstep_agent.vault.transfer.receive_buffers import Expected
from everstep_agent.vault.transfer.stripes import absent
from everstep_agent.vault.vault_context import Site

logger = logging.getLogger(__name__)
# Shards of one answer are bounded by the frame; copies of one request by what a node can hold.
_MANIFESTS_MAX = 4096


class Serving:
    """Gets of all jobs."""

    def __init__(self, site: Site, meetings: Meetings) -> None:
        self._site = site
        self._meetings = meetings

    async def manifests(self, wire: Wire, vault: JobVault, request: Manifests) -> None:
        """Say what is in each copy. Raises OSError."""
        for wanted in request.copies[:_MANIFESTS_MAX]:
            facts = await self._facts(vault, _expected(wanted))
            if facts is None:
                await wire.send(Sorry(f"{self._site.node} has no such copy"))
            else:
                await wire.send(Manifest(facts.size_bytes, facts.root_hash, facts.entries))

    async def get(self, wire: Wire, vault: JobVault, get: Get) -> None:
        """Send a copy from memory, or from this node's own disk. Raises OSError."""
        expected = _expected(get)
        held = vault.holdings.pin(expected.key)
        if held is not None and held.facts.root_hash != expected.root_hash:
            held.release()
            held = None
        held = held or await self._loaded(vault, expected)
        if held is None:
            await wire.send(Sorry(f"{self._site.node} has no copy of that step"))
            return
        try:
            await self._send(wire, vault, held)
        finally:
            held.release()

    async def _send(self, wire: Wire, vault: JobVault, held: Held) -> None:
        facts, patience_s = held.facts, 4 * self._site.outgoing.timeout_s
        departure = Departure(held.region, Queue(()))
        meeting = Meeting(
            vault.job, facts.key, lambda one: self._site.outgoing.send(one, departure)
        )
        await wire.send(Offer(facts.size_bytes, facts.root_hash, facts.entries, meeting.nonce))
        async with asyncio.timeout(patience_s):
            accept = await wire.receive(Accept)  # when the other end has the memory
        assert isinstance(accept, Accept)
        departure.stripes.add(absent(accept.present, facts.size_bytes))
        self._meetings.open(meeting)
        try:
            await meeting.run(wire)
        finally:
            self._meetings.close(meeting)
        async with asyncio.timeout(patience_s):
            answer = await wire.receive(Stored, Mismatch)
        if isinstance(answer, Mismatch):
            await vault.verifier.verify_again(held)

    async def _facts(self, vault: JobVault, expected: Expected) -> CopyFacts | None:
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

    async def _loaded(self, vault: JobVault, expected: Expected) -> Held | None:
        """Return what is in a file of this node; whoever gets it verifies it."""
        facts = await self._facts(vault, expected)
        if facts is None or vault.files is None:
            return None
        try:
            region = await vault.files.load(facts)
        except (OSError, MemoryShortError) as error:
            logger.warning("file of %s: %s", expected.key, error or "no answer")
            return None
        return Held(facts, region, True, True, region.drop)


def _expected(get: Get) -> Expected:
    key = CopyKey(get.generation, get.rank, get.step)
    return Expected(key, get.size_bytes, get.root_hash)
