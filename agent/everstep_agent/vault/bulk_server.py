"""The bulk listener: takes replicas from other agents and gives copies to them."""

import asyncio
import logging
import socket
from collections.abc import Callable

from everstep_agent.vault.allocator import Demand, MemoryShortError
from everstep_agent.vault.copies import CopyFacts, CopyKey, entries_problem
from everstep_agent.vault.job_vault import JobVault
from everstep_agent.vault.memory import Region
from everstep_agent.vault.ongoing import Spawn
from everstep_agent.vault.recheck import recheck
from everstep_agent.vault.site import Site
from everstep_agent.vault.wire import Accept, Get, Mismatch, Offer, Put, Sorry, Stored, Wire

logger = logging.getLogger(__name__)
# Connections at once, proven or not; each costs a descriptor and a task.
_CONNECTIONS_MAX = 64


class BulkServer:
    """Serves the bulk connections of all jobs of the node."""

    def __init__(
        self, site: Site, vault_of: Callable[[str], JobVault | None], spawn: Spawn
    ) -> None:
        self._site = site
        self._vault_of = vault_of
        self._spawn = spawn
        self._connections = 0

    async def serve(self, listener: socket.socket) -> None:
        """Accept until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listener)
            except OSError as error:  # out of descriptors: the backlog waits, nothing is lost
                logger.warning("bulk listener: %s", error)
                await asyncio.sleep(0.2)
                continue
            if self._connections >= _CONNECTIONS_MAX:
                connection.close()
                continue
            self._connections += 1
            self._spawn(self._serve(Wire(connection)), "bulk connection")

    async def _serve(self, wire: Wire) -> None:
        timeout_s = self._site.incoming.timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                job = await wire.accept(self._key_of)
                request = await wire.receive(Put, Get)
            vault = self._vault_of(job)
            if vault is None:
                await wire.send(Sorry(f"job {job} is not here any more"))
            elif isinstance(request, Put):
                await self._put(wire, vault, request)
            elif isinstance(request, Get):
                await self._get(wire, vault, request)
        except OSError as error:  # TimeoutError and every error of the wire among them
            logger.info("bulk connection ended: %s", error or "no answer in time")
        finally:
            self._connections -= 1
            wire.close()

    def _key_of(self, job: str) -> bytes | None:
        vault = self._vault_of(job)
        return vault.transfer_key if vault and vault.transfer_key else None

    async def _put(self, wire: Wire, vault: JobVault, put: Put) -> None:
        key = CopyKey(put.generation, put.rank, put.step)
        reason = vault.refuses(key) or entries_problem(put.entries, put.size_bytes)
        if reason:
            await wire.send(Sorry(reason))
            return
        present = vault.holdings.replicas.get(key)
        if present is not None and present.facts.root_hash == put.root_hash:
            await wire.send(Stored(put.root_hash))
            return
        vault.ongoing.moving(put.generation)
        demand = Demand(vault.uid, 1, put.size_bytes, f"everstep-replica-{put.rank}")
        try:
            (region,) = await self._site.allocator.allocate(demand)
        except MemoryShortError as error:
            await wire.send(Sorry(str(error)))
            return
        facts = CopyFacts(key, put.size_bytes, put.root_hash, put.entries)
        await wire.send(await self._receive(wire, vault, facts, region))

    async def _receive(
        self, wire: Wire, vault: JobVault, facts: CopyFacts, region: Region
    ) -> Stored | Mismatch | Sorry:
        """Take the bytes of a replica into the region; return what to answer."""
        try:
            await wire.send(Accept())
            root_hash = await self._site.incoming.receive(wire, region, facts.size_bytes)
            self._site.counts.received_bytes += facts.size_bytes
            if root_hash != facts.root_hash:
                vault.bad(f"the replica of {facts.key} arrived changed at {self._site.node}")
                return Mismatch(root_hash)
            reason = vault.refuses(facts.key)
            if reason:
                return Sorry(reason)
            await vault.keep_replica(facts, region.hold())
            return Stored(root_hash)
        finally:
            region.drop()

    async def _get(self, wire: Wire, vault: JobVault, get: Get) -> None:
        held = vault.holdings.pin(CopyKey(get.generation, get.rank, get.step))
        if held is None:
            await wire.send(Sorry(f"{self._site.node} has no copy of that step"))
            return
        facts = held.facts
        try:
            await wire.send(Offer(facts.size_bytes, facts.root_hash, facts.entries))
            async with asyncio.timeout(4 * self._site.outgoing.timeout_s):
                await wire.receive(Accept)  # after it has allocated and pre-faulted
            await self._site.outgoing.send(wire, held.region, facts.size_bytes)
            async with asyncio.timeout(4 * self._site.outgoing.timeout_s):
                answer = await wire.receive(Stored, Mismatch)
            if isinstance(answer, Mismatch):
                await recheck(vault, held)
        finally:
            held.release()
