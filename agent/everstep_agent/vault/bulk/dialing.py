"""Connects to another agent's bulk listener, and hears its answers."""

import asyncio
import socket
from dataclasses import dataclass

from everstep_agent.vault.bulk.messages import Sorry
from everstep_agent.vault.bulk.wire import BulkError, Wire


class RefusedError(BulkError):
    """The other agent said no; the sentence is its."""


@dataclass(frozen=True, slots=True)
class Remote:
    """Another agent's bulk listener, for one job."""

    address: str
    job: str
    transfer_key: bytes


async def connect(remote: Remote, timeout_s: float) -> Wire:
    """Return an authenticated connection, which the caller closes. Raises OSError."""
    host, _, port = remote.address.rpartition(":")
    if not host or not port.isdigit():
        raise BulkError(f"not a host:port: {remote.address!r}")
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(timeout_s):
        found = await loop.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = found[0]
        connection = socket.socket(family, kind | socket.SOCK_CLOEXEC, protocol)
        wire = Wire(connection)
        try:
            await loop.sock_connect(connection, address)
            await wire.connect(remote.job, remote.transfer_key)
        except BaseException:
            wire.close()
            raise
    return wire


async def answer(wire: Wire, timeout_s: float, *known: type) -> object:
    """Return the next message, one of ``known``. Raises OSError; RefusedError for a Sorry."""
    async with asyncio.timeout(timeout_s):
        said = await wire.receive(*known, Sorry)
    if isinstance(said, Sorry):
        raise RefusedError(said.reason)
    return said
