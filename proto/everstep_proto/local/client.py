"""Local access to a controller without certificates: it is looked at before it is trusted.

A Unix socket has to lie in a folder of somebody trusted. On TCP the secret is read and sent only
when the other end of the connection belongs to root, to the user of this process, or to the owner
of the secret's file: whoever else took the port while the controller was away is told nothing.
"""

import asyncio
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import grpc

from everstep_common.addresses import split_address
from everstep_proto.local.address import default_secret_file, socket_path
from everstep_proto.local.connections import owners_of_far_ends
from everstep_proto.local.ownership import (
    UntrustedError,
    closed_to_us,
    trusted_owner,
    user_name,
)
from everstep_proto.local.secret import Secret, read_secret
from everstep_proto.tls import TlsSettings
from everstep_proto.web_server import is_web_server

Metadata = tuple[tuple[str, str], ...]
_AioProbe: TypeAlias = "grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]"
_Probe: TypeAlias = "grpc.UnaryUnaryMultiCallable[bytes, bytes]"

# A call that no server knows: its answer shows a connection, and it tells nobody anything.
PROBE = "/everstep.local.v1.Probe/Probe"
_NO_CONNECTION = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


class NoControllerError(Exception):
    """Nobody listens; one sentence says where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalAccess:
    """What a controller at an address has to be, and what it is shown."""

    address: str
    tls: TlsSettings = field(default_factory=TlsSettings)
    secret_file: Path = field(default_factory=default_secret_file)

    def check_socket(self) -> None:
        """Look at a Unix socket before connecting. Raises UntrustedError, NoControllerError."""
        path = socket_path(self.address)
        if path is not None:
            _check_socket(path)

    @property
    def needs_secret(self) -> bool:
        """Return whether the other end has to be looked at, and is shown the secret."""
        return not self.tls.enabled and socket_path(self.address) is None

    def secret(self) -> Secret:
        """Return the secret, once the other ends of all connections there are trusted.

        Raises UntrustedError.
        """
        secret = read_secret(self.secret_file)
        self._check_far_ends(secret.owner)
        return secret

    async def aio_metadata(self, channel: grpc.aio.Channel) -> Metadata:
        """Connect, and return what a call carries. Raises UntrustedError, grpc.RpcError.

        Until cancelled it waits for a server that accepts and says nothing.
        """
        if not self.needs_secret:
            return ()
        probe: _AioProbe = channel.unary_unary(PROBE)
        try:
            await probe(b"")
        except grpc.RpcError as error:
            _raise_unless_connected(error)
        return (await asyncio.to_thread(self.secret)).metadata()

    def metadata(self, channel: grpc.Channel, timeout_s: float) -> Metadata:
        """Do the same for a channel without an event loop."""
        if not self.needs_secret:
            return ()
        probe: _Probe = channel.unary_unary(PROBE)
        try:
            probe(b"", timeout=timeout_s)
        except grpc.RpcError as error:
            _raise_unless_connected(error)
        return self.secret().metadata()

    async def check_again(self) -> None:
        """Look again at who answered, before acting on it. Raises UntrustedError."""
        if self.needs_secret:
            await asyncio.to_thread(self.secret)

    def _check_far_ends(self, owner: int) -> None:
        host, port = split_address(self.address)
        try:
            found = owners_of_far_ends(host, int(port))
        except OSError as error:
            raise UntrustedError(
                f"who listens at {self.address} cannot be found out: {error}; use a Unix socket"
            ) from error
        strangers = found - {0, os.geteuid(), owner}
        if strangers:
            names = ", ".join(map(user_name, sorted(strangers)))
            raise UntrustedError(
                f"what answers at {self.address} belongs to {names}, and not to the owner of "
                f"{self.secret_file} ({user_name(owner)}): it is told nothing; "
                f"'ss -ltnp sport = :{port}' shows it, and a Unix socket cannot be taken like that"
            )
        if not found:
            raise UntrustedError(f"the connection to {self.address} ended before it was used")


def _check_socket(path: Path) -> None:
    try:
        owner = trusted_owner(path.parent)
        status = path.lstat()
    except PermissionError as error:
        raise closed_to_us(path) from error
    except OSError as error:
        raise NoControllerError(f"no controller listens at {path}: {error.strerror}") from error
    if not stat.S_ISSOCK(status.st_mode):
        raise UntrustedError(f"{path} is not a socket; name the one of the controller")
    if status.st_uid not in (0, os.geteuid(), owner):
        raise UntrustedError(
            f"the socket {path} belongs to {user_name(status.st_uid)}, and not to the owner of its "
            f"folder ({user_name(owner)}); remove it and restart the controller"
        )
    if not os.access(path, os.W_OK):
        raise closed_to_us(path)


def _raise_unless_connected(error: grpc.RpcError) -> None:
    """Take an answer to the probe for a connection, but that of a web server."""
    # Every error of a call has both; the stubs do not know them.
    code, details = getattr(error, "code", None), getattr(error, "details", None)
    if code is None or details is None or code() in _NO_CONNECTION or is_web_server(details()):
        raise error
