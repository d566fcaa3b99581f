"""TLS certificates between agents: loaded from this node's files, again when they change."""

import logging
import os
import socket
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import cast

from everstep_agent.vault.transfer.tls_transport import TlsTransport
from everstep_agent.vault.transfer.transport import TlsError
from everstep_common.config import ConfigError
from everstep_proto.tls import Role, TlsSettings

logger = logging.getLogger(__name__)

# X509_V_ERR_CERT_NOT_YET_VALID and _HAS_EXPIRED: new files, or a correct clock, cure them later.
_ONLY_NOW = frozenset({9, 10})
_Subject = tuple[tuple[tuple[str, str], ...], ...]
# For each file: when it was written, and which one it is.
_Marks = list[tuple[int, int, int]]


@dataclass(frozen=True, slots=True)
class _Ends:
    """What both sides of a connection show and demand."""

    client: ssl.SSLContext
    server: ssl.SSLContext


class TlsCertificates:
    """Certificates from files, looked at for each connection: new ones need no restart.

    New ones that cannot be used are reported once, and those before them stay.
    """

    def __init__(
        self,
        settings: TlsSettings,
        node: str,
        revoked: Callable[[Mapping[str, object]], str] = lambda _: "",
    ) -> None:
        """Read the files; ``revoked`` says why a peer's certificate counts no more.

        Raises ConfigError when they are of no use.
        """
        self._settings = settings
        self._revoked = revoked
        self._node = node
        try:
            self._file_stamps = _marks(settings)
            self._ends = _checked(settings, node)
        except OSError as error:
            raise ConfigError([_useless(error)]) from error

    def client_transport(self, node: str, sock: socket.socket) -> TlsTransport:
        """Return the client's end of a connection to the agent of a node ("": of any node)."""
        return TlsTransport(sock, self._current().client, partial(self._peer_problem, node))

    def server_transport(self, sock: socket.socket) -> TlsTransport:
        """Return the server's end of a connection from any agent."""
        return TlsTransport(
            sock, self._current().server, partial(self._peer_problem, ""), server_side=True
        )

    def _peer_problem(self, node: str, end: ssl.SSLObject) -> str:
        shown = cast("Mapping[str, object]", end.getpeercert() or {})
        return _problem(node, end) or self._revoked(shown)

    def _current(self) -> _Ends:
        try:
            marks = _marks(self._settings)
        except OSError:  # they are being replaced
            return self._ends
        if marks != self._file_stamps:
            # Not read again until they change, which files that were only half written will do.
            self._file_stamps = marks
            try:
                self._ends = _checked(self._settings, self._node)
                logger.info("transfers: the certificate of [tls] was read again")
            except OSError as error:
                logger.warning("keeping the certificate that was read before: %s", _useless(error))
        return self._ends


def _checked(settings: TlsSettings, node: str) -> _Ends:
    """Return both ends, after they have met each other. Raises OSError when others would refuse."""
    ends = _Ends(
        _context(settings, ssl.PROTOCOL_TLS_CLIENT), _context(settings, ssl.PROTOCOL_TLS_SERVER)
    )
    # Tickets would only be sent to be thrown away: every connection shows its certificate.
    ends.server.num_tickets = 0
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ends.client.wrap_bio(back, there)
    server = ends.server.wrap_bio(there, back, server_side=True)
    try:
        for end in (client, server, client, server):
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
    except ssl.SSLCertVerificationError as error:
        if error.verify_code not in _ONLY_NOW:
            raise
        logger.warning("no other node will take this one's certificate: %s", error.verify_message)
        return ends
    problem = _problem(node, client)
    if problem:
        raise TlsError(problem)
    return ends


def _context(settings: TlsSettings, protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # Agents are known by the name of their node, not by addresses of a network for copies.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(settings.ca)
    # An encrypted key is an error: without a password given, OpenSSL would ask the terminal.
    context.load_cert_chain(str(settings.certificate), settings.key, password="")
    return context


def _problem(node: str, end: ssl.SSLObject) -> str:
    """Return what is wrong with the other end's certificate, which the authority did sign."""
    found = cast("Mapping[str, object]", end.getpeercert() or {})
    subject = cast("_Subject", found.get("subject", ()))
    said = [attribute for part in subject for attribute in part]
    if ("organizationalUnitName", Role.AGENT.value) not in said:
        return "the certificate is no agent's: its organizational unit must be agent"
    if node and ("commonName", node) not in said:
        names = ", ".join(value for name, value in said if name == "commonName")
        return f"the certificate is of {names or 'nobody'}, and not of {node}"
    return ""


def _marks(settings: TlsSettings) -> _Marks:
    files = [path for path in (settings.ca, settings.certificate, settings.key) if path]
    found = map(os.stat, files)
    return [(one.st_mtime_ns, one.st_ino, one.st_size) for one in found]


def _useless(error: OSError) -> str:
    reason = getattr(error, "verify_message", "") or getattr(error, "reason", "") or str(error)
    return (
        f"jobs.bulk_tls: the certificate in [tls] cannot be used between agents: {reason}; issue "
        "one for this node (docs/installing.md, Certificates), or set jobs.bulk_tls = false"
    )
