"""gRPC server of the controller: agents' streams and the command line at one address."""

import socket
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import grpc

from everstep_controller.api.admin.servicer import AdminServicer
from everstep_controller.api.fleet.servicer import FleetServicer
from everstep_controller.api.request_parsing import RequestParsing
from everstep_controller.api.secret_guard import SecretGuard
from everstep_proto.generated import admin_pb2_grpc, fleet_pb2
from everstep_proto.keepalive import keepalive, permitted_pings
from everstep_proto.local.address import socket_path
from everstep_proto.local.ownership import (
    UntrustedError,
    open_to_others,
    share_with_group,
    trusted_owner,
)
from everstep_proto.message_sizes import TO_CONTROLLER_BYTES_MAX
from everstep_proto.tls import TlsSettings, server_credentials

if TYPE_CHECKING:
    from everstep_proto.shown_certificates import Revoked

HANDSHAKE_S = 30
# Certificates with their chain, as a door forwards them.
_FORWARDED_METADATA_BYTES = 64 * 1024
# Measured with 12,500 streams: the bandwidth probe costs 43 % CPU at 1 Hz streams, and with default
# limits a ramp of agents that all come at once is refused in part.
SERVER_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.http2.bdp_probe", 0),
    ("grpc.server.max_pending_requests", 100_000),
    ("grpc.server.max_pending_requests_hard_limit", 100_000),
    ("grpc.max_receive_message_length", TO_CONTROLLER_BYTES_MAX),
    # The stream of an agent that is stopped, or whose machine vanished, ends within 15 s. Samples
    # come every 5 s, so that no such ping is needed while all is well.
    *keepalive(idle_s=7.0, timeout_s=5.0),
    *permitted_pings(),
    # A connection that does not speak TLS is ended; gRPC's own limit is two minutes. It also bounds
    # how long agents that all come back at once may queue, a millisecond or two each with EC keys.
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_S * 1_000),
    ("grpc.so_reuseport", 0),
)
FLEET = "everstep.fleet.v1.Fleet"


class ListenError(Exception):
    """The address cannot be listened on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where the controller listens, and by what it knows who may speak to it."""

    listen: str
    tls: TlsSettings
    secret_file: Path
    # Says which certificates count no more.
    revoked: "Revoked" = lambda _, __, ___: ""
    # What else looks at each call, behind those that know who makes it.
    gates: tuple[grpc.aio.ServerInterceptor, ...] = ()

    def guard(self) -> SecretGuard | None:
        """Return what asks for the secret; None where a folder or certificates keep others out.

        Raises ListenError.
        """
        if self.tls.enabled or socket_path(self.listen) is not None:
            return None
        try:
            return SecretGuard(self.secret_file)
        except UntrustedError as error:
            raise ListenError(f"secret_file: {error}") from error


def make_server(
    endpoint: Endpoint, guard: SecretGuard | None, fleet: FleetServicer, admin: AdminServicer
) -> tuple[grpc.aio.Server, int]:
    """Return a server that is not started, and its port. Raises ListenError."""
    # A message of a peer without the right to speak is not parsed.
    guards: list[grpc.aio.ServerInterceptor] = [] if guard is None else [guard]
    if endpoint.tls.ca is not None:
        guards.append(_certificate_guard(endpoint.tls.ca, endpoint.revoked))
    interceptors = [*guards, *endpoint.gates, RequestParsing()]
    server = grpc.aio.server(options=SERVER_OPTIONS, interceptors=interceptors)
    # Requests stay bytes here, so that the servicer answers what is no message with a sentence.
    connect: grpc.RpcMethodHandler[bytes, fleet_pb2.ControllerMessage] = (
        grpc.stream_stream_rpc_method_handler(
            fleet.connect, response_serializer=fleet_pb2.ControllerMessage.SerializeToString
        )
    )
    handlers = grpc.method_handlers_generic_handler(FLEET, {"Connect": connect})
    server.add_generic_rpc_handlers((handlers,))
    admin_pb2_grpc.add_AdminServicer_to_server(admin, server)
    path = socket_path(endpoint.listen)
    return server, _listen(server, endpoint) if path is None else _listen_at(server, endpoint, path)


def _certificate_guard(authority: Path, revoked: "Revoked") -> grpc.aio.ServerInterceptor:
    # What reads certificates takes 0.2 s to import, which a controller without TLS need not wait.
    from everstep_controller.api.certificate_guard import CertificateGuard

    return CertificateGuard(authority, revoked=revoked)


def make_services(
    endpoint: Endpoint, forwarded: grpc.aio.ServerInterceptor, admin: AdminServicer, path: Path
) -> grpc.aio.Server:
    """Return a server of people's calls alone, at a socket that only doors reach, not started.

    ``forwarded`` says who has called a door. Raises ListenError.
    """
    guards: list[grpc.aio.ServerInterceptor] = [forwarded]
    if endpoint.tls.ca is not None:
        guards.append(_certificate_guard(endpoint.tls.ca, endpoint.revoked))
    interceptors = [*guards, *endpoint.gates, RequestParsing()]
    options = [*SERVER_OPTIONS, ("grpc.max_metadata_size", _FORWARDED_METADATA_BYTES)]
    server = grpc.aio.server(options=options, interceptors=interceptors)
    admin_pb2_grpc.add_AdminServicer_to_server(admin, server)
    add_port(server, f"unix:{path}", TlsSettings())
    return server


def _listen(server: grpc.aio.Server, endpoint: Endpoint) -> int:
    return add_port(server, endpoint.listen, endpoint.tls)


def add_port(server: grpc.aio.Server, listen: str, tls: TlsSettings) -> int:
    """Have a server listen at an address; return the port. Raises ListenError."""
    try:
        if tls.enabled:
            return server.add_secure_port(listen, server_credentials(tls))
        return server.add_insecure_port(listen)
    except RuntimeError as error:
        raise ListenError(
            f"listen: {listen} cannot be listened on; is it an address of this machine, "
            "and does nothing else use the port? 'ss -ltnp' shows who does"
        ) from error


def _listen_at(server: grpc.aio.Server, endpoint: Endpoint, path: Path) -> int:
    """Listen on a Unix socket that only the owner and the group of its folder reach."""
    folder = path.parent
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check(folder)
        _make_room(path)
        port = _listen(server, endpoint)
        # Connecting takes the right to write, which a umask of 027 takes from the group.
        path.chmod(0o600)
        share_with_group(path, stat.S_IRGRP | stat.S_IWGRP)
    except UntrustedError as error:
        raise ListenError(f"listen: {error}") from error
    except OSError as error:
        raise ListenError(f"listen: {path} cannot be made: {error.strerror or error}") from error
    return port


def _check(folder: Path) -> None:
    """Raise UntrustedError for a folder that others may enter."""
    trusted_owner(folder)
    if open_to_others(folder):
        raise UntrustedError(
            f"every user may enter {folder}, and would be an operator; 'chmod o= {folder}' ends "
            "that, or name a socket in a folder of its own"
        )


def _make_room(path: Path) -> None:
    """See that nobody listens at a path: gRPC would take it from another server unasked."""
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise UntrustedError(f"{path} is there already, and not a socket; name another path")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as one:
            one.settimeout(1.0)
            try:
                one.connect(str(path))
            except (ConnectionRefusedError, TimeoutError):
                return
        raise UntrustedError(f"another controller listens at {path}; stop it, or name another path")
