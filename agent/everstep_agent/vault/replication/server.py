"""Bulk server: admits agents that have a lineage's key, and hands each request to its service."""

import asyncio
import logging
import socket
from collections.abc import Callable, Iterable
from functools import partial

from everstep_agent.concurrency.generation_tasks import Spawn
from everstep_agent.ipc.message_memory import memory_owner
from everstep_agent.peer_socket import resolve
from everstep_agent.quotas.user_quotas import UserRefusals
from everstep_agent.vault.job_vault import JobVault
from everstep_agent.vault.replication.listener import Arrival, BulkListener
from everstep_agent.vault.replication.receiver import ReplicaReceiver
from everstep_agent.vault.replication.sender import CopySender
from everstep_agent.vault.replication.transfer_registry import TransferRegistry
from everstep_agent.vault.transfer.connection import BulkConnection, BulkError
from everstep_agent.vault.transfer.messages import (
    GetCopy,
    GetManifests,
    JoinTransfer,
    PutCopy,
    Refusal,
    TellSteps,
)
from everstep_agent.vault.transfer.transport import PlainTransport, TlsError, Transport
from everstep_agent.vault.vault_context import VaultContext
from everstep_common.frames import FrameError
from everstep_common.log_limit import by_host

logger = logging.getLogger(__name__)

# What the first words of a connection may take of the event loop: a task, some bytes, a line of the
# log, a close; and inside TLS a handshake.
_UNPROVEN_S = 1e-4
_HANDSHAKE_S = 0.002
# Addresses of peers that are remembered.
_NAMED_MAX = 256


class BulkServer:
    """Server of the bulk connections of all jobs of the node."""

    def __init__(
        self,
        context: VaultContext,
        vault_of: Callable[[str], JobVault | None],
        spawn: Spawn,
        refusals: UserRefusals,
    ) -> None:
        self._context = context
        self._vault_of = vault_of
        self._spawn = spawn
        work_s = _UNPROVEN_S + (_HANDSHAKE_S if context.certificates else 0.0)
        self._listener = BulkListener(refusals, context.incoming.timeout_s, work_s, self._begin)
        self.limits = self._listener.limits
        # By the address that the controller names, the host that connects from it; "" until then.
        self._named: dict[str, str] = {}
        self._transfers = TransferRegistry()
        self._receiver = ReplicaReceiver(context, self._transfers)
        self._sender = CopySender(context, self._transfers)

    async def serve(self, listener: socket.socket) -> None:
        """Accept until cancelled."""
        await self._listener.serve(listener)

    def note_peers(self, addresses: Iterable[str]) -> None:
        """The controller has named the bulk listeners of nodes that exchange replicas with this."""
        for address in filter(None, addresses):
            if address not in self._named:
                if len(self._named) >= _NAMED_MAX:
                    self._named.clear()
                self._named[address] = ""
                self._spawn(self._resolve(address), "address of a peer")
            elif host := self._named[address]:
                self._listener.note_peer(host)

    async def _resolve(self, address: str) -> None:
        if (found := await resolve(address)) is None:
            self._named.pop(address, None)  # it is asked for again
        else:
            self._named[address] = found[0]
            self._listener.note_peer(found[0])

    def _begin(self, arrival: Arrival) -> "asyncio.Task[None] | None":
        connection = BulkConnection(self._transport(arrival.socket))
        work = self._serve(connection, arrival)
        try:
            served = self._spawn(work, "bulk connection")
        except RuntimeError:  # the tasks of this node's jobs end
            work.close()
            return None
        # Not at the end of its own work: one that is cancelled before it has begun does none.
        served.add_done_callback(partial(self._end, connection, arrival))
        return served

    def _end(self, connection: BulkConnection, arrival: Arrival, _: "asyncio.Task[None]") -> None:
        connection.close()
        self._listener.give_up(arrival, connection.transport.handshake_s)

    def _transport(self, sock: socket.socket) -> Transport:
        certificates = self._context.certificates
        return (
            certificates.server_transport(sock)
            if certificates
            else PlainTransport(sock, server_side=True)
        )

    async def _serve(self, connection: BulkConnection, arrival: Arrival) -> None:
        host = arrival.host
        try:
            lineage, request = await self._authenticate(connection, arrival)
            if not self.limits.admit_proven():
                await connection.send(
                    Refusal(f"{self._context.node} has too many transfers; try again")
                )
                return
            try:
                await self._answer(connection, lineage, request)
            finally:
                self.limits.release_proven()
        except TlsError as error:
            logger.warning("bulk connection: %s", error, extra=by_host(host))
        except OSError as error:  # TimeoutError and every error of the wire among them
            text = "bulk connection ended: %s"
            logger.info(text, error or "no answer in time", extra=by_host(host))

    async def _authenticate(
        self, connection: BulkConnection, arrival: Arrival
    ) -> tuple[str, object]:
        """Return the lineage whose key the other end has, and what it wants. Raises OSError."""
        async with asyncio.timeout(self._context.incoming.timeout_s):
            lineage = await connection.accept(self._key_of)
            self._listener.note_proof(arrival)
            vault = self._vault_of(lineage)
            owner = memory_owner(vault.uid if vault else -1, f"replicas of {lineage}")
            connection.use_memory(self._context.message_memories.incoming, owner)
            try:
                return lineage, await connection.receive(
                    PutCopy, GetCopy, JoinTransfer, GetManifests, TellSteps
                )
            except FrameError as error:
                await connection.send(Refusal(f"{self._context.node} does not understand: {error}"))
                raise

    async def _answer(self, connection: BulkConnection, lineage: str, request: object) -> None:
        vault = self._vault_of(lineage)
        if vault is None:
            await connection.send(Refusal(f"nothing of {lineage} is here any more"))
        else:
            await self._dispatch(connection, vault, request)

    async def _dispatch(self, connection: BulkConnection, vault: JobVault, request: object) -> None:
        match request:
            case PutCopy():
                await self._receiver.receive(connection, vault, request)
            case GetCopy():
                await self._sender.send_copy(connection, vault, request)
            case GetManifests():
                await self._sender.send_manifests(connection, vault, request)
            case JoinTransfer():
                await self._join(connection, vault, request)
            case TellSteps():
                await connection.send(vault.hear_member(request))

    async def _join(self, connection: BulkConnection, vault: JobVault, join: JoinTransfer) -> None:
        try:
            transfer = self._transfers.find(vault.lineage, vault.transfer_key, join)
        except BulkError as error:
            await connection.send(Refusal(str(error)))
            return
        await transfer.join_connection(connection)

    def _key_of(self, lineage: str) -> bytes | None:
        vault = self._vault_of(lineage)
        return vault.transfer_key if vault and vault.transfer_key else None
