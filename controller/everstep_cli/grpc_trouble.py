"""Calls that failed: what gRPC says of them, as sentences that name the next command."""

import grpc

from everstep_cli.connection import Connection

# What gRPC says of a failed handshake; the last is a server with TLS to a client without.
_DISTRUST = ("handshake", "ssl", "socket closed", "connection reset")


def status(error: grpc.RpcError) -> tuple[grpc.StatusCode, str]:
    """Return code and details of a failed call."""
    # Every error of a call is a grpc.Call too; the stubs do not know it.
    code, details = getattr(error, "code", None), getattr(error, "details", None)
    if code is None or details is None:
        return grpc.StatusCode.UNKNOWN, str(error)
    return code(), details() or ""


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
    distrust = any(word in details.lower() for word in _DISTRUST)
    if distrust and not connection.tls.enabled:
        return (
            f"the controller at {address} closed the connection: it went away, or it wants "
            "certificates; try again, or give --tls-ca, --tls-certificate and --tls-key"
        )
    if distrust:
        return (
            f"the controller at {address} and this command do not trust each other; "
            "give --tls-ca, --tls-certificate and --tls-key of the controller's authority"
        )
    return (
        f"no controller answers at {address}; start one with 'everstep-controller', "
        "or name another with --controller HOST:PORT"
    )
