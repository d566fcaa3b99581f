"""Connects to another agent's bulk listener, and hears its answers."""

import asyncio
import logging
import socket
from dataclasses import dataclass, field

from everstep_agent.detectors.transfers import RefusalWatch
from everstep_agent.vault.transfer.certificates import Secrecy
from everstep_agent.vault.transfer.connection import BulkError, Wire
from everstep_agent.vault.transfer.messages import Sorry
from everstep_agent.vault.transfer.transport import Channel, Plain, TlsError

logger = logging.getLogger(__name__)


class RefusedError(BulkError):
    """The other agent said no; the sentence is its."""


@dataclass(frozen=True, slots=True)
class Remote:
    """Another agent's bulk listener, for one job.

    ``secrecy`` None is without TLS; with it, the certificate there must be that of ``node``.
    """

    address: str
    job: str
    transfer_key: bytes
    node: str = ""
    secrecy: Secrecy | None = None
    refusals: RefusalWatch = field(default_factory=RefusalWatch, compare=False)

    def channel(self, connection: socket.socket) -> Channel:
        """Return what speaks over a connection to it, which it owns from now on."""
        if self.secrecy is None:
            return Plain(connection)
        return self.secrecy.to(self.node, connection)


async def connect(remote: Remote, timeout_s: float) -> Wire:
    """Return an authenticated connection, which the caller closes. Raises OSError."""
    name = remote.node or remote.address
    try:
        async with asyncio.timeout(timeout_s):
            wire = await _connected(remote)
    except TlsError as error:
        if remote.refusals.refused(name, str(error)):
            logger.warning("no transfer with %s: %s", name, error)
        raise
    remote.refusals.worked(name)
    return wire


async def _connected(remote: Remote) -> Wire:
    host, _, port = remote.address.rpartition(":")
    if not host or not port.isdigit():
        raise BulkError(f"not a host:port: {remote.address!r}")
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    family, kind, protocol, _, address = found[0]
    connection = socket.socket(family, kind | socket.SOCK_CLOEXEC, protocol)
    try:
        connection.setblocking(False)
        await loop.sock_connect(connection, address)
        wire = Wire(remote.channel(connection))
        await wire.connect(remote.job, remote.transfer_key)
    except BaseException:
        connection.close()
        raise
    return wire


async def answer(wire: Wire, timeout_s: float, *known: type) -> object:
    """Return the next message, one of ``known``. Raises OSError; RefusedError for a Sorry."""
    async with asyncio.timeout(timeout_s):
        said = await wire.receive(*known, Sorry)
    if isinstance(said, Sorry):
        raise RefusedError(said.reason)
    return said
