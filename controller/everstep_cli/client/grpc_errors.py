"""Failed gRPC calls as sentences that name the next command to type."""

from collections.abc import Callable

import grpc

from everstep_cli.client.admin import (
    AdminError,
    DeniedError,
    NameNotFoundError,
    RefusedError,
    StandbyError,
    UnreachableError,
    UnusableError,
)
from everstep_cli.client.connection import Connection
from everstep_common.printable import printable
from everstep_proto.call_failures import SAID_KEY, in_words
from everstep_proto.controllers import named_active
from everstep_proto.web_server import is_web_server

# What gRPC says when a server took a connection and did not begin the handshake in time.
_SILENT = "endpoint closing"
# What it says of a failed handshake; the last is a server with TLS to a client without.
_DISTRUST = ("handshake", "ssl", "socket closed", "connection reset")
# What it says where this end refuses: a controller that refuses, or goes away, only closes.
_REFUSED = "ssl_error"


def status(error: grpc.RpcError) -> tuple[grpc.StatusCode, str]:
    """Return code and details of a failed call."""
    # Every error of a call is a grpc.Call too; the stubs do not know it.
    code, details = getattr(error, "code", None), getattr(error, "details", None)
    if code is None or details is None:
        return grpc.StatusCode.UNKNOWN, printable(str(error))
    return code(), printable(details() or "")


def sentence(
    connection: Connection, error: grpc.RpcError, name: str, nearest: Callable[[str], str]
) -> AdminError:
    """Return what to tell of a failed call about a name; ``nearest`` says which names there are."""
    code, details = status(error)
    if is_web_server(details):
        return AdminError(
            f"what answers at {connection.address} is no controller but a web server, or the port "
            "of its /metrics; name its gRPC port with --controller HOST:PORT (7433 as shipped)"
        )
    if code is grpc.StatusCode.NOT_FOUND:
        return NameNotFoundError(f"{details or f'no {name!r} here'}; {nearest(name)}")
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
        return _unavailable(connection, error)
    if code in (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED):
        return DeniedError(_not_allowed(connection, code, details), details)
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return AdminError(
            f"the controller at {connection.address} does not know this command, for it is of "
            "another version; compare with 'everstep version'"
        )
    if code is grpc.StatusCode.FAILED_PRECONDITION and details:
        return RefusedError(details)
    if code is grpc.StatusCode.INVALID_ARGUMENT:
        return UnusableError(f"{details or 'not understood'}; --help of the command tells more")
    return AdminError(f"{in_words(code.name, details)}; try 'everstep version'")


def active_told(call: object) -> str | None:
    """Return the active one's address as a standby names it; None where none was asked."""
    trailing = getattr(call, "trailing_metadata", None)  # the stubs do not know it of an error
    return None if trailing is None else named_active(trailing())


def is_said(call: object) -> bool:
    """Return whether the controller itself has said why a call failed."""
    trailing = getattr(call, "trailing_metadata", None)  # the stubs do not know it of an error
    return trailing is not None and SAID_KEY in dict(trailing() or ())


def _unavailable(connection: Connection, error: grpc.RpcError) -> AdminError:
    code, details = status(error)
    if is_said(error):
        return RefusedError(details)
    active = active_told(error)
    if active is not None:
        return _standby(connection, details, active)
    late = code is grpc.StatusCode.DEADLINE_EXCEEDED
    why = in_words(code.name, details)
    return UnreachableError(unreachable(connection, code, details), why, is_late=late)


def _standby(connection: Connection, details: str, active: str) -> StandbyError:
    said = details or f"the controller at {connection.address} is a standby"
    if not active:
        return StandbyError(
            f"{said}; which one is active it does not know: name the other one with "
            "--controller HOST:PORT",
            active,
        )
    both = f"{active},{connection.address}"
    return StandbyError(
        f"{said}; name the active one with --controller {active}, or both with --controller {both}",
        active,
    )


def _not_allowed(connection: Connection, code: grpc.StatusCode, details: str) -> str:
    if code is grpc.StatusCode.UNAUTHENTICATED and connection.access.needs_secret and details:
        return details
    return (
        f"{details or 'not allowed'}; ask again with the certificate of an operator: "
        "--tls-ca FILE --tls-certificate FILE --tls-key FILE"
    )


def unreachable(connection: Connection, code: grpc.StatusCode, details: str) -> str:
    """Return why a controller could not be asked, and what to try, as one sentence."""
    address = connection.address
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return (
            f"the controller at {address} did not answer within {connection.timeout_s:g} s; "
            "try again with --timeout, or look at 'systemctl status everstep-controller'"
        )
    if "hostname verification" in details.lower():
        return (
            f"the certificate of the controller at {address} is for another name; "
            "give the name in it with --tls-server-name, or connect to that name"
        )
    if _SILENT in details.lower():
        return (
            f"the controller at {address} took the connection and said nothing: it is stopped or "
            "overloaded; try again, or look at 'systemctl status everstep-controller'"
        )
    distrust = any(word in details.lower() for word in _DISTRUST)
    if distrust and not connection.tls.enabled:
        return (
            f"the controller at {address} closed the connection: it went away, or it wants "
            "certificates; try again, or give --tls-ca, --tls-certificate and --tls-key"
        )
    if distrust and _REFUSED not in details.lower():
        return (
            f"the controller at {address} closed the connection: it went away, or it does not "
            "trust this command's certificate; try again, or give --tls-ca, --tls-certificate "
            "and --tls-key of the controller's authority"
        )
    if distrust:
        return (
            f"the controller at {address} and this command do not trust each other; "
            "give --tls-ca, --tls-certificate and --tls-key of the controller's authority"
        )
    return no_controller(connection)


def no_controller(connection: Connection) -> str:
    """Return that nobody answers, and what to try."""
    return (
        f"no controller answers at {connection.address}; start one with 'everstep-controller', "
        "or name another with --controller HOST:PORT or unix:/path; a job of 'everstep run "
        "--standalone' has its own, which its output names after 'to ask them'"
    )
