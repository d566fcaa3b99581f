"""TLS and identity: who may talk to whom between nodes, by the certificates of both ends."""

import logging
import math
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

import grpc

from everstep_common.addresses import is_loopback
from everstep_common.config import ConfigError, setting

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

logger = logging.getLogger(__name__)


class Role(Enum):
    """Rights of the holder of a certificate; its organizational unit says them."""

    AGENT = "agent"
    VIEWER = "viewer"
    OPERATOR = "operator"
    # Asks for people whom it knows, as viewers or operators may ask, and orders nothing.
    PAGE = "page"


@dataclass(frozen=True, slots=True)
class Identity:
    """Identity of the other end of a connection, as its certificate says."""

    name: str
    role: Role
    # When its certificate ends, as Unix time.
    until_s: float = math.inf
    # Its serial number, in hexadecimal digits, and when it begins; without TLS there is none.
    serial: str = ""
    since_s: float = 0.0
    # What gRPC tells of the other end, as long as the call lasts; without TLS it is nothing.
    shown: Callable[[], Mapping[str, Iterable[bytes]]] = field(default=dict, compare=False)


# Without TLS only who reaches the controller's socket, or knows its secret, gets as far as this:
# the operators of this machine.
LOCAL = Identity("", Role.OPERATOR)


class IdentityError(ValueError):
    """A trusted certificate does not say who its holder is; one sentence says what it lacks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """PEM files, read again at every handshake: replace the files to rotate certificates."""

    ca: Path | None = setting(
        None,
        help="Certificates of the authority that signed the peers' certificates. Set all three"
        " or none: without them only loopback addresses are accepted.",
    )
    certificate: Path | None = setting(
        None,
        help="Own certificate with its chain. Its common name is the name of the node or "
        "operator, its organizational unit the role: agent, viewer, operator or page. Use EC "
        "keys: a fleet reconnects twice as fast as with RSA.",
    )
    key: Path | None = setting(
        None, help="Private key of the certificate; readable by its owner only."
    )
    server_name: str = setting(
        "",
        help="Name in the controller's certificate, if it differs from the address; empty: the"
        " address.",
    )

    @property
    def enabled(self) -> bool:
        """Return whether connections are encrypted and both ends prove who they are."""
        return None not in (self.ca, self.certificate, self.key)

    def problems(self, addresses: Mapping[str, str]) -> list[str]:
        """Say what is wrong; ``addresses`` maps the key of each host:port setting to its value."""
        files = {"ca": self.ca, "certificate": self.certificate, "key": self.key}
        missing = [name for name, path in files.items() if path is None]
        if 0 < len(missing) < len(files):
            return [
                f"tls.{name}: missing; set ca, certificate and key, or none" for name in missing
            ]
        if missing:
            exposed = {key: value for key, value in addresses.items() if not is_loopback(value)}
            return [_exposed(key, value) for key, value in exposed.items()]
        return [
            f"tls.{name}: {path} cannot be read: {reason}"
            for name, path in files.items()
            if path is not None and (reason := _unreadable(path))
        ]


def _exposed(key: str, value: str) -> str:
    return (
        f"{key}: {value!r} is not an address of this machine alone, which needs TLS: set "
        "ca, certificate and key in the table [tls] (docs/installing.md, Certificates), "
        "or use 127.0.0.1"
    )


def _unreadable(path: Path) -> str:
    try:
        path.read_bytes()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _read(settings: TlsSettings) -> tuple[bytes, bytes, bytes]:
    if settings.ca is None or settings.certificate is None or settings.key is None:
        raise ConfigError(["tls: ca, certificate and key are needed"])
    try:
        return (
            settings.ca.read_bytes(),
            settings.certificate.read_bytes(),
            settings.key.read_bytes(),
        )
    except OSError as error:
        raise ConfigError([f"tls: {error.filename} cannot be read: {error.strerror}"]) from error


def _server_configuration(settings: TlsSettings) -> grpc.ServerCertificateConfiguration:
    ca, certificate, key = _read(settings)
    return grpc.ssl_server_certificate_configuration([(key, certificate)], root_certificates=ca)


def server_credentials(settings: TlsSettings) -> grpc.ServerCredentials:
    """Return credentials that demand a client certificate. Raises ConfigError."""
    return grpc.dynamic_ssl_server_credentials(
        _server_configuration(settings),
        _rotation(settings),  # type: ignore[arg-type]  # None is "unchanged", says gRPC
        require_client_authentication=True,
    )


def _rotation(
    settings: TlsSettings,
) -> Callable[[], grpc.ServerCertificateConfiguration | None]:
    """Return what gRPC asks at each handshake: the new files, or None for "as before"."""
    known = [_read(settings)]

    def fetch() -> grpc.ServerCertificateConfiguration | None:
        try:
            files = _read(settings)
        except ConfigError as error:
            logger.warning("keeping the certificate that was read before: %s", error)
            return None
        if files == known[0]:
            return None
        known[0] = files
        return _server_configuration(settings)

    return fetch


def channel_credentials(settings: TlsSettings) -> grpc.ChannelCredentials:
    """Return credentials from the files as they are now. Raises ConfigError."""
    ca, certificate, key = _read(settings)
    return grpc.ssl_channel_credentials(
        root_certificates=ca, private_key=key, certificate_chain=certificate
    )


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return the same for a server that is not gRPC. Raises OSError."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=settings.ca)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(str(settings.certificate), settings.key)
    return context


class RefreshedContext:
    """Context of a server that is not gRPC, with the certificate that the files have by now.

    One that cannot be used leaves the one before it; authorities are read at the start only.
    """

    def __init__(self, settings: TlsSettings, context: ssl.SSLContext | None = None) -> None:
        """Read the files. Raises OSError."""
        self._settings = settings
        self.context = context or server_context(settings)
        self._marks = self._now()

    def refresh(self) -> ssl.SSLContext:
        """Return the context; new handshakes show the newest certificate."""
        marks = self._now()
        if marks and marks != self._marks:
            self._marks = marks
            try:
                self.context.load_cert_chain(str(self._settings.certificate), self._settings.key)
            except (OSError, ValueError) as error:
                logger.warning("keeping the certificate that was read before: %s", error)
        return self.context

    def _now(self) -> tuple[tuple[int, int], ...]:
        files = [path for path in (self._settings.certificate, self._settings.key) if path]
        try:
            found = [path.stat() for path in files]
        except OSError:  # they are being replaced
            return ()
        return tuple((one.st_mtime_ns, one.st_ino) for one in found)


ChannelOptions = Sequence[tuple[str, str | int]]


def channel_options(
    settings: TlsSettings, options: ChannelOptions = ()
) -> list[tuple[str, str | int]]:
    """Return channel options, with the expected name where the configuration sets one."""
    name = settings.server_name
    return [*options, *([("grpc.ssl_target_name_override", name)] if name else [])]


def aio_channel(
    address: str, settings: TlsSettings, options: ChannelOptions = ()
) -> grpc.aio.Channel:
    """Return a channel to the controller; open a new one per connection to rotate certificates."""
    if not settings.enabled:
        return grpc.aio.insecure_channel(address, options=list(options))
    return grpc.aio.secure_channel(
        address, channel_credentials(settings), options=channel_options(settings, options)
    )


def peer_identity(auth_context: Mapping[str, Iterable[bytes]]) -> Identity:
    """Return who is on the other end; without TLS, a user of this machine. Raises IdentityError."""
    certificates = list(auth_context.get("x509_pem_cert", ()))
    if not certificates:
        return LOCAL
    # Imported only here: only the controller asks who its peer is, and the import is slow.
    from cryptography import x509

    return identity_of(x509.load_pem_x509_certificate(certificates[0]))


def identity_of(certificate: "Certificate") -> Identity:
    """Return who the holder of a certificate is. Raises IdentityError."""
    from cryptography.x509.oid import NameOID

    subject = certificate.subject
    names = [str(name.value) for name in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    units = [
        str(unit.value) for unit in subject.get_attributes_for_oid(NameOID.ORGANIZATIONAL_UNIT_NAME)
    ]
    roles = [role for role in Role if role.value in units]
    if len(names) != 1 or len(roles) != 1:
        raise IdentityError(
            "the certificate needs one common name and one organizational unit out of "
            f"{', '.join(role.value for role in Role)}; it has {names} and {units}"
        )
    return Identity(
        names[0],
        roles[0],
        certificate.not_valid_after_utc.timestamp(),
        f"{certificate.serial_number:x}",
        certificate.not_valid_before_utc.timestamp(),
    )
