"""Certificate files of a node that has joined: its key and certificate in one, the authorities.

One file has both, so that no reader ever sees a new key beside an old certificate.
"""

import os
import pwd
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from everstep_proto.enrolment.certificate_requests import (
    RequestError,
    key_hash,
    make_request,
    new_key,
    prove,
)
from everstep_proto.enrolment.messages import CertificateReply, RenewRequest
from everstep_proto.enrolment.owned_files import replace_file
from everstep_proto.enrolment.validity import Validity, validity

_SERVICE_USER = "everstep-agent"


class FilesError(Exception):
    """A certificate or key cannot be used; one sentence."""


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """The files, below the agent's data folder."""

    folder: Path

    @classmethod
    def below(cls, data_folder: Path) -> "CertificateFiles":
        """Return those of an agent."""
        return cls(data_folder / "tls")

    @property
    def own(self) -> Path:
        """Return the file of key and certificate."""
        return self.folder / "agent.pem"

    @property
    def authorities(self) -> Path:
        """Return the file of the authorities."""
        return self.folder / "ca.pem"

    @property
    def _joining(self) -> Path:
        return self.folder / "joining.key"

    def prepare(self) -> None:
        """Make the folder, for the agent's user where this is root. Raises OSError."""
        data = self.folder.parent
        if not data.exists():
            data.mkdir(mode=0o750, parents=True)
            if os.geteuid() == 0 and (user := _service_user()) is not None:
                os.chown(data, user.pw_uid, user.pw_gid)
        self.folder.mkdir(mode=0o700, exist_ok=True)
        owner, made = self._owner(), self.folder.stat()
        if os.geteuid() == 0 and (owner.st_uid, owner.st_gid) != (made.st_uid, made.st_gid):
            os.chown(self.folder, owner.st_uid, owner.st_gid)

    def joining_key(self) -> bytes:
        """Return the key of a join, the same until it is done: an answer may be lost on its way."""
        if self._joining.exists():
            return self._joining.read_bytes()
        key = new_key()
        replace_file(self._joining, key, owner=self._owner())
        return key

    def abandon(self) -> None:
        """Leave nothing of a join that was refused. Raises OSError."""
        self._joining.unlink(missing_ok=True)
        with suppress(OSError):  # it has the files of an earlier one
            self.folder.rmdir()

    def install(self, key: bytes, reply: CertificateReply, node: str) -> Validity:
        """Put a new certificate in place. Raises FilesError, OSError."""
        check(key, reply.certificate, node)
        owner = self._owner()
        replace_file(self.authorities, reply.authorities.encode(), 0o644, owner)
        replace_file(self.own, key + reply.certificate.encode(), owner=owner)
        self._joining.unlink(missing_ok=True)
        return validity(reply.certificate.encode())

    def renewal(self, key: bytes, node: str, clock_s: float) -> RenewRequest:
        """Return the request for a certificate of a new key. Raises RequestError, OSError."""
        own = self.own.read_bytes()
        request = make_request(key, node)
        return RenewRequest(
            certificate=own[own.index(b"-----BEGIN CERTIFICATE") :].decode(),
            request=request.decode(),
            proof=prove(own, request),
            clock_s=clock_s,
        )

    def _owner(self) -> os.stat_result:
        return self.folder.parent.stat()


def check(key: bytes, certificate: str, node: str) -> None:
    """See that a certificate is of a node and its key. Raises FilesError."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    from everstep_proto.tls import IdentityError, Role, identity_of

    try:
        found = x509.load_pem_x509_certificate(certificate.encode())
        who = identity_of(found)
        same = key_hash(found.public_key()) == key_hash(
            load_pem_private_key(key, None).public_key()
        )
    except (ValueError, IdentityError, RequestError) as error:
        raise FilesError(
            f"the controller sent a certificate that cannot be used: {error}"
        ) from error
    if not same or who.name != node or who.role is not Role.AGENT:
        raise FilesError(
            f"the controller sent a certificate of {who.name!r} ({who.role.value}) for another "
            f"key or name than {node!r}'s: look at enrolment.sign_command there"
        )


def _service_user() -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(_SERVICE_USER)
    except KeyError:
        return None
