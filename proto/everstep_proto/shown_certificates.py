"""Certificates that were shown when a channel opened: whether they still count."""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from everstep_proto.tls import IdentityError, identity_of

# Returns why a certificate of a name was revoked, by its serial and beginning; "" where not.
Revoked = Callable[[str, str, float], str]
# What gRPC tells of the other end of a channel.
Shown = Mapping[str, Iterable[bytes]]
# Longer chains are nobody's.
_CHAIN_MAX = 8


class Authorities:
    """Certificates of the authorities in a file, as it is at each look."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read: tuple[bytes, list[x509.Certificate]] = (b"", [])
        self._looked_at = b""

    def newest(self) -> list[x509.Certificate]:
        """Return those in the file; those that were read before, where it cannot be read now."""
        try:
            content = self._path.read_bytes()
            if content != self._read[0]:
                self._read = (content, x509.load_pem_x509_certificates(content))
        except (OSError, ValueError):
            return self._read[1]
        return self._read[1]

    def text(self) -> str:
        """Return what the file had when it was read last, in PEM."""
        return self._read[0].decode()

    def changed(self) -> bool:
        """Return whether the file has others than at the last look; not where it cannot be read."""
        self.newest()
        before, self._looked_at = self._looked_at, self._read[0]
        return self._looked_at != before


class ShownCertificates:
    """Judge of what was shown when a channel opened, by the authorities in a file."""

    def __init__(
        self,
        authority: Path,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        revoked: Revoked = lambda _, __, ___: "",
    ) -> None:
        self._authorities, self._now, self._revoked = Authorities(authority), now, revoked

    def changed(self) -> bool:
        """Return whether there are other authorities than at the last look."""
        return self._authorities.changed()

    def trouble(self, shown: Shown) -> str:
        """Return why a certificate counts no more; "" while it does, and where there is none."""
        leaf = _certificates(shown, "x509_pem_cert")
        if not leaf:
            return ""  # who comes without one is refused by its lack of an identity
        if why := self._revocation(leaf[0]):
            return why
        chain = _certificates(shown, "x509_pem_cert_chain")
        return trouble(leaf[0], chain, self._authorities.newest(), self._now())

    def _revocation(self, leaf: x509.Certificate) -> str:
        try:
            who = identity_of(leaf)
        except IdentityError:  # refused for that
            return ""
        return self._revoked(who.name, who.serial, who.since_s)


def trouble(
    certificate: x509.Certificate,
    chain: Iterable[x509.Certificate],
    authorities: Iterable[x509.Certificate],
    now: datetime,
) -> str:
    """Return why a certificate counts no more; empty while it counts."""
    if now > certificate.not_valid_after_utc:
        ended = certificate.not_valid_after_utc.isoformat(timespec="seconds")
        return f"the certificate ended at {ended}"
    if leads_to(certificate, chain, authorities):
        return ""
    return "the authority of the certificate was replaced"


def leads_to(
    certificate: x509.Certificate,
    chain: Iterable[x509.Certificate],
    authorities: Iterable[x509.Certificate],
) -> bool:
    """Return whether one of the authorities signed a certificate, or one above it in its chain."""
    known, links = list(authorities), list(chain)
    below: x509.Certificate | None = certificate
    for _ in range(_CHAIN_MAX):
        if below is None:
            break
        child = below
        if any(child == one or _has_issued(one, child) for one in known):
            return True
        below = next((one for one in links if one != child and _has_issued(one, child)), None)
    return False


def _has_issued(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _certificates(shown: Shown, name: str) -> list[x509.Certificate]:
    found = b"".join(shown.get(name, ()))
    return x509.load_pem_x509_certificates(found) if found else []
