"""Egress of webhooks: which URL and which addresses behind its host may be connected to.

A host has to be named by the operator. What its name resolves to has to be an address of a network:
one of this machine, of its link, or of a cloud's metadata service is refused, for whoever changes
the name's records would have the controller talk to it. The address that was checked is the one
that is connected to; there is no second look at the name.
"""

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from everstep_common.printable import printable

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
_PORTS = {"https": 443, "http": 80}
_URL_MAX = 4096
# What a path is made of, and how long a part is that may be a secret.
_PARTS = re.compile(r"[/?&=]")
_SECRET_MIN = 6
# Metadata services of clouds that are on no link-local address: AWS and Google (IPv6), Alibaba,
# Oracle, Azure's (the wire server).
_METADATA = frozenset(
    map(
        ipaddress.ip_address,
        ("fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "192.0.0.192", "168.63.129.16"),
    )
)
# Addresses "of this network" (RFC 6890) are nobody's; Linux takes some for its own.
_THIS_NETWORK = ipaddress.IPv4Network("0.0.0.0/8")
# IPv6 that stands for IPv4 (RFC 6052, section 2.1): the address behind it is the one that counts.
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


class EgressError(Exception):
    """A webhook may not send there; one sentence says why, without the path, which is a secret."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a webhook sends: a host that the operator named, and the secret rest of its URL."""

    host: str
    port: int
    # Path and query; never shown.
    path: str
    encrypted: bool

    @property
    def named(self) -> str:
        """Return the host as a Host header has it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = self.port == _PORTS["https" if self.encrypted else "http"]
        return host if usual else f"{host}:{self.port}"

    def redacted(self, words: str) -> str:
        """Return words of the receiver without what they repeat of the path: it is a secret."""
        parts = [part for part in _PARTS.split(self.path) if len(part) >= _SECRET_MIN]
        for part in (self.path, *parts) if len(self.path) > 1 else ():
            words = words.replace(part, "…")
        return words


def target_of(url: str, hosts: Sequence[str]) -> Target:
    """Return where a URL leads. Raises EgressError."""
    parts = _split(url)
    host = (parts.hostname or "").rstrip(".")
    if parts.scheme not in _PORTS or not host:
        raise EgressError("expected https://HOST/… in the file with the URL")
    if parts.username is not None or parts.fragment:
        raise EgressError("the URL has a user name or a fragment, which no webhook needs")
    if host not in {named.lower().rstrip(".") for named in hosts}:
        raise EgressError(f"the host {printable(host)!r} of the URL is not among its hosts")
    encrypted, literal = parts.scheme == "https", _literal(host)
    if not encrypted and not (literal is not None and _embedded(literal).is_loopback):
        raise EgressError("http:// is for a loopback address that is named; expected https://")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(host, _port(parts), path, encrypted)


def refused_address(target: Target, address: str) -> str:
    """Return why an address that the host has is not connected to; empty for one that may be.

    A host that is an address itself was named as such, and is what the operator wanted.
    """
    if _literal(target.host) is not None:
        return ""
    found = _embedded(ipaddress.ip_address(address.partition("%")[0]))
    if kind := _kind(found):
        return (
            f"{target.host} resolves to {printable(address)}, {kind}: nothing is sent there; "
            "correct the name's records, or name the address itself in hosts if it is meant"
        )
    return ""


# -------------------------------------------------------------------------------------------------


def _split(url: str) -> SplitResult:
    ascii_only = url.isascii() and url.isprintable() and " " not in url
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise EgressError("the file with the URL has no URL in it") from error
    if not ascii_only or len(url) > _URL_MAX:
        raise EgressError(f"expected a URL of ASCII, without blanks, up to {_URL_MAX} characters")
    return parts


def _port(parts: SplitResult) -> int:
    return parts.port if parts.port is not None else _PORTS[parts.scheme]


def _literal(host: str) -> IpAddress | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _embedded(address: IpAddress) -> IpAddress:
    """Return the IPv4 address for which one of IPv6 stands, else the address."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    teredo = address.teredo[1] if address.teredo is not None else None
    return address.ipv4_mapped or address.sixtofour or teredo or address


def _kind(address: IpAddress) -> str:
    """Return what is wrong with an address, as its name; empty for one of a network."""
    if address in _METADATA:
        return "the metadata service of a cloud"
    kinds = (
        (address.is_loopback, "an address of this machine"),
        (address.is_link_local, "an address of its link, where clouds have their metadata"),
        (address.is_unspecified or address in _THIS_NETWORK, "no address of a machine"),
        (address.is_multicast, "an address of many machines"),
        (address.is_reserved, "a reserved address"),
    )
    return next((name for so, name in kinds if so), "")
