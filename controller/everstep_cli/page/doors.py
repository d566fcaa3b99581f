"""Doors of the page: where it listens, by which names, and whom it knows by a connection. Pure."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from everstep_cli.page.access import Person
from everstep_common.addresses import is_loopback, split_address
from everstep_proto.tls import Role

# By these a browser of this machine asks; a name below localhost leads to no other one either.
_HERE = ("localhost", "127.0.0.1", "[::1]")
_BELOW_HERE = ".localhost"
_FORM = "%b %d %H:%M:%S %Y %Z"


@dataclass(frozen=True, slots=True)
class Peer:
    """Other end of a connection, as the connection itself shows it."""

    # A proxy, whose header names somebody.
    is_proxy: bool = False
    # Whom its certificate names.
    person: Person | None = None
    # When that certificate ends, as Unix time.
    until_s: float = math.inf


NOBODY = Peer()


@dataclass(frozen=True, slots=True, kw_only=True)
class Doors:
    """What an operator has set about who gets in."""

    # HOST:PORT, or unix:/path.
    listen: str
    # Files: what browsers are shown, and the authority of what they, or a proxy, show; "": none.
    certificate: str = ""
    key: str = ""
    client_ca: str = ""
    names: Sequence[str] = ()
    roles: Sequence[Role] = (Role.VIEWER,)
    # Login whose processes are the proxy, at a Unix socket.
    proxy_user: str = ""
    # Common name of the proxy's certificate, elsewhere.
    proxy_certificate: str = ""
    # Header in which the proxy names somebody.
    user_header: str = ""
    # Logins that the proxy may name and that are operators; others are viewers.
    operators: frozenset[str] = field(default_factory=frozenset)

    @property
    def socket(self) -> str:
        """Return the path of the Unix socket that it listens at; "" for a port."""
        return self.listen.removeprefix("unix:") if self.listen.startswith("unix:") else ""

    @property
    def has_tls(self) -> bool:
        """Return whether browsers speak TLS with it."""
        return bool(self.certificate)

    @property
    def has_proxy(self) -> bool:
        """Return whether it is told by a proxy who asks."""
        return bool(self.user_header)

    def problem(self) -> str:
        """Say why it cannot listen so, with the option to change; "" where it can."""
        return next(filter(None, (self._half_told(), self._proxy_problem(), self._exposed())), "")

    def _half_told(self) -> str:
        if bool(self.certificate) != bool(self.key):
            return "--certificate and --key go together"
        if self.client_ca and not self.has_tls:
            return "--client-ca: certificates of browsers need TLS: --certificate and --key"
        if self.socket and self.has_tls:
            return "--certificate: a Unix socket has no TLS; the proxy before it has"
        return ""

    def _proxy_problem(self) -> str:
        if not self.has_proxy:
            told = self.proxy_user or self.proxy_certificate or self.operators
            return (
                "--user-header is missing: it is where the proxy names somebody"
                if told
                else (
                    "--listen: at a Unix socket it hears a proxy alone: add --proxy-user and"
                    " --user-header"
                    if self.socket
                    else ""
                )
            )
        if self.socket:
            return (
                ""
                if self.proxy_user
                else (
                    "--proxy-user is missing: anybody who reaches the socket could send the header"
                )
            )
        if self.proxy_user:
            return "--proxy-user is for a Unix socket: --listen unix:/run/everstep-page/page.sock"
        if not self.proxy_certificate or not self.client_ca:
            return (
                "--user-header: at a port everybody can send a header: listen at a Unix socket, or"
                " know the proxy by --client-ca and --proxy-certificate"
            )
        return ""

    def _exposed(self) -> str:
        if self.socket:
            return "" if self.names else _NAMES_MISSING
        if is_loopback(self.listen):
            return ""
        if not self.has_tls:
            return (
                f"{self.listen} is no address of this machine alone, which needs TLS:"
                " --certificate and --key; or listen on 127.0.0.1, and reach it by"
                " 'ssh -L 7436:127.0.0.1:7436 HOST'"
            )
        return "" if self.names else _NAMES_MISSING

    def is_known(self, host: str) -> bool:
        """Return whether a browser may ask by a name: the header Host, with or without a port."""
        name = host_name(host)
        here = not self.socket and is_loopback(self.listen)
        if here and (name in _HERE or name.endswith(_BELOW_HERE)):
            return True
        return any(name == known.lower() for known in self.names)

    def peer_by_certificate(self, shown: Mapping[str, Any] | None) -> Peer:
        """Return who has shown a certificate, as Python's ssl tells of it, which was verified."""
        if not shown:
            return NOBODY
        parts = [part for group in shown.get("subject", ()) for part in group]
        names = [value for key, value in parts if key == "commonName"]
        units = [value for key, value in parts if key == "organizationalUnitName"]
        until_s = _end_s(str(shown.get("notAfter", "")))
        if len(names) != 1:
            return NOBODY
        if self.has_proxy and names[0] == self.proxy_certificate:
            return Peer(is_proxy=True, until_s=until_s)
        roles = [role for role in (Role.VIEWER, Role.OPERATOR) if role.value in units]
        if len(roles) != 1:
            return NOBODY
        person = Person(names[0], roles[0], f"certificate {names[0]}")
        return Peer(person=person, until_s=until_s)

    def named_by_proxy(self, headers: Iterable[tuple[bytes, bytes]]) -> Person | None:
        """Return whom a proxy names; None where it names nobody, or two."""
        wanted = self.user_header.lower().encode()
        told = [value.decode("latin-1").strip() for key, value in headers if key == wanted]
        if len(told) != 1 or not told[0] or not told[0].isprintable():
            return None
        role = Role.OPERATOR if told[0] in self.operators else Role.VIEWER
        return Person(told[0], role, f"proxy {told[0]}")


_NAMES_MISSING = (
    "--name is missing: the name, or the address, by which browsers ask for the page; by another"
    " one it answers nothing"
)


_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(:[0-9]{1,5})?")


def host_name(host: str) -> str:
    """Return a Host header without its port, in small letters: "[::1]"; "" for what is no host."""
    found = _HOST.fullmatch(host.lower())
    return "" if found is None else found["name"].rstrip(".")


def _end_s(told: str) -> float:
    try:
        return datetime.strptime(told, _FORM).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return 0.0


def shown_host(listen: str, names: Sequence[str]) -> str:
    """Return the host of the address that is printed."""
    if names:
        return names[0]
    host, _ = split_address(listen)
    return f"[{host}]" if ":" in host else host
