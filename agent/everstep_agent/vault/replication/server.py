"""Bulk server: admits agents that have a lineage's key, and hands each request to its service."""

import asyncio
import logging
import socket
from collections.abc import Callable
from functools import partial

from everstep_agent.concurrency.generation_tasks import Spawn
from everstep_agent.ipc.accept_pace import AcceptPace
from everstep_agent.ipc.message_memory import memory_owner
from everstep_agent.vault.job_vault import JobVault
from everstep_agent.vault.replication.connection_limits import ConnectionLimits
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

# The share of the event loop that connections may take which come to nothing, and what each of them
# takes of it: a task, its first bytes, a line of the log, a close.
_ACCEPT_SHARE = 0.15
_UNPROVEN_S = 0.0003


class BulkServer:
    """Server of the bulk connections of all jobs of the node."""

    def __init__(
        self, context: VaultContext, vault_of: Callable[[str], JobVault | None], spawn: Spawn
    ) -> None:
        self._context = context
        self._vault_of = vault_of
        self._spawn = spawn
        self.limits: ConnectionLimits[asyncio.Task[None]] = ConnectionLimits()
        self._pace = AcceptPace(_ACCEPT_SHARE)
        self._transfers = TransferRegistry()
        self._receiver = ReplicaReceiver(context, self._transfers)
        self._sender = CopySender(context, self._transfers)

    async def serve(self, listener: socket.socket) -> None:
        """Accept until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await self._pace.rest_if_due()
            try:
                sock, address = await loop.sock_accept(listener)
            except OSError as error:  # out of descriptors: the backlog waits, nothing is lost
                logger.warning("bulk listener: %s", error)
                await asyncio.sleep(0.2)
                continue
            self._admit(sock, str(address[0]))

    def _admit(self, sock: socket.socket, host: str) -> None:
        connection = BulkConnection(self._transport(sock))
        served = self._spawn(self._serve(connection, host), "bulk connection")
        # Not at the end of its own work: one that is cancelled before it has begun does none.
        served.add_done_callback(partial(self._end, connection))
        if (evicted := self.limits.admit_unproven(served, host)) is not None:
            evicted.cancel()

    def _end(self, connection: BulkConnection, served: "asyncio.Task[None]") -> None:
        connection.close()
        if self.limits.release_unproven(served):
            self._pace.count_work(_UNPROVEN_S + connection.transport.handshake_s)

    def _transport(self, sock: socket.socket) -> Transport:
        certificates = self._context.certificates
        return (
            certificates.server_transport(sock)
            if certificates
            else PlainTransport(sock, server_side=True)
        )

    async def _serve(self, connection: BulkConnection, host: str) -> None:
        try:
            lineage, request = await self._authenticate(connection, host)
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

    async def _authenticate(self, connection: BulkConnection, host: str) -> tuple[str, object]:
        """Return the lineage whose key the other end has, and what it wants. Raises OSError."""
        async with asyncio.timeout(self._context.incoming.timeout_s):
            lineage = await connection.accept(self._key_of)
            self._note_proof(host)
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

    def _note_proof(self, host: str) -> None:
        served = asyncio.current_task()
        assert served is not None
        self.limits.release_unproven(served)
        self.limits.note_proof(host)

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
