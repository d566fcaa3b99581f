"""Own certificate: the controller signs its own anew when a third of its life is over.

Only the one that `everstep-controller init` made, with its key in the same file: a certificate that
somebody brings is his to renew.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from cryptography import x509

from everstep_controller.core.fleet.enrolment import CLOCK_APART_MAX_S
from everstep_controller.enrolment.signer import Authority, Signed, SigningError, Wanted
from everstep_proto.enrolment.certificate_requests import make_request, new_key, read_request
from everstep_proto.enrolment.owned_files import replace_file
from everstep_proto.enrolment.validity import NoCertificateError, validity
from everstep_proto.tls import IdentityError, Role, TlsSettings, identity_of

logger = logging.getLogger(__name__)

_LOOK_S = 3600.0


class OwnCertificate:
    """The controller's certificate, as far as it is signed here."""

    def __init__(
        self,
        tls: TlsSettings,
        authority: Authority,
        certificate_s: float,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self._path = tls.certificate if tls.certificate == tls.key else None
        self._authority, self._certificate_s, self._wall_s = authority, certificate_s, wall_s

    async def run(self) -> None:
        """Look now and then, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            await asyncio.to_thread(self.renew_if_due)

    def renew_if_due(self) -> None:
        """Sign another one where a third of its life is over; what fails is logged."""
        if self._path is None:
            return
        try:
            pem = self._path.read_bytes()
            known = validity(pem)
            if self._wall_s() < known.since_s + (known.ends_s - known.since_s) / 3:
                return
            self._renew(self._path, x509.load_pem_x509_certificate(pem))
        except (OSError, NoCertificateError, IdentityError, SigningError, ValueError) as error:
            logger.warning(
                "%s: the controller's certificate was not renewed: %s", self._path, error
            )

    def _renew(self, path: Path, own: x509.Certificate) -> None:
        if own.issuer != self._authority.certificate.subject:
            return
        who, now_s = identity_of(own), self._wall_s()
        wanted = own_wanted(who.name, hosts_of(own), now_s, self._certificate_s)
        signed, pem = sign_with_key(self._authority, wanted)
        replace_file(path, pem)
        logger.info("%s: renewed until Unix time %d", path, signed.ends_s)


def own_wanted(name: str, hosts: Sequence[str], wall_s: float, lasts_s: float) -> Wanted:
    """Return what the controller's own certificate is to be."""
    since_s = int(wall_s) - CLOCK_APART_MAX_S
    ends_s = int(wall_s + lasts_s)
    return Wanted(name=name, role=Role.OPERATOR, since_s=since_s, ends_s=ends_s, hosts=hosts)


def sign_with_key(authority: Authority, wanted: Wanted) -> tuple[Signed, bytes]:
    """Return a certificate with a new key, and both in one PEM file."""
    key = new_key()
    public = read_request(make_request(key, wanted.name).decode()).key
    signed = authority.sign(public, wanted)
    return signed, key + signed.pem.encode()


def hosts_of(certificate: x509.Certificate) -> list[str]:
    """Return the names and addresses in a certificate."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return []
    return [str(one.value) for one in found.value]
