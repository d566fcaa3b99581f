"""Remote agent: connects to another agent's bulk listener, and hears its answers."""

import asyncio
import logging
import socket
from dataclasses import dataclass, field

from everstep_agent.detectors.transfer_refusals import RefusalWatch
from everstep_agent.vault.transfer.certificates import TlsCertificates
from everstep_agent.vault.transfer.connection import BulkConnection, BulkError
from everstep_agent.vault.transfer.messages import Refusal
from everstep_agent.vault.transfer.transport import PlainTransport, TlsError, Transport

logger = logging.getLogger(__name__)


class TransferRefusedError(BulkError):
    """The other agent said no; the sentence is its."""


@dataclass(frozen=True, slots=True)
class RemoteAgent:
    """Another agent's bulk listener, for one lineage.

    ``secrecy`` None is without TLS; with it, the certificate there must be that of ``node``.
    """

    address: str
    lineage: str
    transfer_key: bytes
    node: str = ""
    certificates: TlsCertificates | None = None
    refusals: RefusalWatch = field(default_factory=RefusalWatch, compare=False)

    def open_transport(self, sock: socket.socket) -> Transport:
        """Return what speaks over a connection to it, which it owns from now on."""
        if self.certificates is None:
            return PlainTransport(sock)
        return self.certificates.client_transport(self.node, sock)


async def connect(remote: RemoteAgent, timeout_s: float) -> BulkConnection:
    """Return an authenticated connection, which the caller closes. Raises OSError."""
    name = remote.node or remote.address
    try:
        async with asyncio.timeout(timeout_s):
            connection = await _connected(remote)
    except TlsError as error:
        if remote.refusals.refused(name, str(error)):
            logger.warning("no transfer with %s: %s", name, error)
        raise
    remote.refusals.worked(name)
    return connection


async def _connected(remote: RemoteAgent) -> BulkConnection:
    host, _, port = remote.address.rpartition(":")
    if not host or not port.isdigit():
        raise BulkError(f"not a host:port: {remote.address!r}")
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    family, kind, protocol, _, address = found[0]
    sock = socket.socket(family, kind | socket.SOCK_CLOEXEC, protocol)
    try:
        sock.setblocking(False)
        await loop.sock_connect(sock, address)
        connection = BulkConnection(remote.open_transport(sock))
        await connection.connect(remote.lineage, remote.transfer_key)
    except BaseException:
        sock.close()
        raise
    return connection


async def receive_answer(connection: BulkConnection, timeout_s: float, *known: type) -> object:
    """Return the next message, one of ``known``. Raises OSError.

    TransferRefusedError for a Refusal.
    """
    async with asyncio.timeout(timeout_s):
        said = await connection.receive(*known, Refusal)
    if isinstance(said, Refusal):
        raise TransferRefusedError(said.reason)
    return said
