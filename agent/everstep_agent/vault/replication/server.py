"""Bulk server: admits agents that have a lineage's key, and hands each request to its service."""

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Callable

from everstep_agent.concurrency.generation_tasks import Spawn
from everstep_agent.vault.job_vault import JobVault
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
)
from everstep_agent.vault.transfer.transport import PlainTransport, TlsError, Transport
from everstep_agent.vault.vault_context import VaultContext
from everstep_common.frames import FrameError

logger = logging.getLogger(__name__)

# Connections that have proven a lineage's key; each costs a descriptor and a task, and a thread
# while it moves bytes.
CONNECTIONS_MAX = 64
# Connections of one host that have proven nothing yet: any process may have opened them, and those
# of one host keep out no other's. A peer begins at most two streams for each of its ranks at once.
UNPROVEN_MAX = 512
UNPROVEN_OF_HOST_MAX = 32

# How many hosts are remembered for the log: a fleet's, and no more however many strangers connect.
_LOGGED_HOSTS_MAX = 4096


class ConnectionLimits:
    """Counts of connections, and whether one more is admitted."""

    def __init__(self) -> None:
        self._unproven: Counter[str] = Counter()
        self._proven = 0

    def admit_unproven(self, host: str) -> bool:
        """Count a connection that has proven nothing yet; False for one too many."""
        if self._unproven.total() >= UNPROVEN_MAX or self._unproven[host] >= UNPROVEN_OF_HOST_MAX:
            return False
        self._unproven[host] += 1
        return True

    def release_unproven(self, host: str) -> None:
        """A connection that had entered has ended, or has proven itself."""
        self._unproven[host] -= 1
        if not self._unproven[host]:
            del self._unproven[host]

    def admit_proven(self) -> bool:
        """Count a connection that has proven itself; False for one too many."""
        if self._proven >= CONNECTIONS_MAX:
            return False
        self._proven += 1
        return True

    def release_proven(self) -> None:
        """A connection that was admitted has ended."""
        self._proven -= 1


class BulkServer:
    """Server of the bulk connections of all jobs of the node."""

    def __init__(
        self, context: VaultContext, vault_of: Callable[[str], JobVault | None], spawn: Spawn
    ) -> None:
        self._context = context
        self._vault_of = vault_of
        self._spawn = spawn
        self._limits = ConnectionLimits()
        # The refusal that was logged last for each host.
        self._logged: dict[str, str] = {}
        self._transfers = TransferRegistry()
        self._receiver = ReplicaReceiver(context, self._transfers)
        self._sender = CopySender(context, self._transfers)

    async def serve(self, listener: socket.socket) -> None:
        """Accept until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, address = await loop.sock_accept(listener)
            except OSError as error:  # out of descriptors: the backlog waits, nothing is lost
                logger.warning("bulk listener: %s", error)
                await asyncio.sleep(0.2)
                continue
            host = str(address[0])
            if not self._limits.admit_unproven(host):
                sock.close()
                continue
            connection = BulkConnection(self._transport(sock))
            self._spawn(self._serve(connection, host), "bulk connection")

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
            if not self._limits.admit_proven():
                await connection.send(
                    Refusal(f"{self._context.node} has too many transfers; try again")
                )
                return
            try:
                await self._answer(connection, lineage, request)
            finally:
                self._limits.release_proven()
        except TlsError as error:
            self._log_refusal(host, str(error))
        except OSError as error:  # TimeoutError and every error of the wire among them
            logger.info("bulk connection ended: %s", error or "no answer in time")
        finally:
            connection.close()

    def _log_refusal(self, host: str, sentence: str) -> None:
        """Log what was refused to a host, once while it is the same."""
        news = self._logged.get(host) != sentence
        if len(self._logged) >= _LOGGED_HOSTS_MAX:
            self._logged.clear()
        self._logged[host] = sentence
        logger.log(logging.WARNING if news else logging.DEBUG, "bulk connection: %s", sentence)

    async def _authenticate(self, connection: BulkConnection, host: str) -> tuple[str, object]:
        """Return the lineage whose key the other end has, and what it wants. Raises OSError."""
        try:
            async with asyncio.timeout(self._context.incoming.timeout_s):
                lineage = await connection.accept(self._key_of)
                connection.use_memory(
                    self._context.message_memories.incoming, f"replicas of {lineage}"
                )
                try:
                    return lineage, await connection.receive(
                        PutCopy, GetCopy, JoinTransfer, GetManifests
                    )
                except FrameError as error:
                    await connection.send(
                        Refusal(f"{self._context.node} does not understand: {error}")
                    )
                    raise
        finally:
            self._limits.release_unproven(host)

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
