"""Signers: what turns a key and a name into a certificate, with a key file or by a command."""

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Protocol, TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from everstep_proto.enrolment.certificate_requests import (
    KeyRequest,
    PublicKey,
    RequestError,
    key_hash,
    read_request,
    subject_of,
)
from everstep_proto.enrolment.validity import serial_text
from everstep_proto.tls import Role

T = TypeVar("T")
_COMMAND_S = 30.0
_COMMANDS_MAX = 8
_OUTPUT_BYTES_MAX = 64 << 10
PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey


class SigningError(Exception):
    """No certificate was signed; one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A certificate that is to be signed: for whom, and how long."""

    name: str
    role: Role
    since_s: int
    ends_s: int
    # Names and addresses under which the holder is reached; "": its own name alone.
    hosts: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Signed:
    """A certificate that was signed."""

    pem: str
    serial: str
    since_s: int
    ends_s: int


class Signer(Protocol):
    """Signer of agents' certificates."""

    async def read(self, request: str) -> KeyRequest:
        """Return what is in a request, verified. Raises RequestError."""
        ...

    async def sign(self, request: str, wanted: Wanted) -> Signed:
        """Sign a certificate for the key in a request. Raises SigningError."""
        ...


class FileSigner:
    """Signer with the authority's key, in a thread: no call waits for arithmetic on the loop."""

    def __init__(self, authority: "Authority") -> None:
        self._authority = authority
        self._thread = ThreadPoolExecutor(1, "signer")

    async def read(self, request: str) -> KeyRequest:
        """See Signer."""
        return await self._run(lambda: read_request(request))

    async def sign(self, request: str, wanted: Wanted) -> Signed:
        """See Signer."""
        return await self._run(lambda: self._authority.sign(read_request(request).key, wanted))

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


class CommandSigner:
    """Signer that has a program sign, where the key is in a KMS or an authority elsewhere."""

    def __init__(self, argv: Sequence[str], authorities: Path) -> None:
        self._argv, self._authorities = argv, authorities
        self._turns = asyncio.Semaphore(_COMMANDS_MAX)

    async def read(self, request: str) -> KeyRequest:
        """See Signer."""
        return await asyncio.to_thread(read_request, request)

    async def sign(self, request: str, wanted: Wanted) -> Signed:
        """See Signer."""
        async with self._turns:
            output = await self._output(request, wanted)
        key = await self.read(request)
        return await asyncio.to_thread(_checked, output, key, wanted, self._authorities)

    async def _output(self, request: str, wanted: Wanted) -> bytes:
        days = -(-(wanted.ends_s - wanted.since_s) // 86_400)
        told = {
            "EVERSTEP_NODE": wanted.name,
            "EVERSTEP_ROLE": wanted.role.value,
            "EVERSTEP_DAYS": str(days),
        }
        try:
            child = await asyncio.create_subprocess_exec(
                *self._argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**os.environ, **told},
            )
        except OSError as error:
            raise SigningError(
                f"sign_command: {self._argv[0]} cannot be run: {error.strerror}"
            ) from error
        try:
            async with asyncio.timeout(_COMMAND_S):
                output, said = await child.communicate(request.encode())
        except TimeoutError as error:
            raise SigningError(f"sign_command did not answer within {_COMMAND_S:.0f} s") from error
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
        if child.returncode:
            words = said.decode(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
            raise SigningError(f"sign_command ended with {child.returncode}: {words[0][:200]}")
        return output[:_OUTPUT_BYTES_MAX]


class Authority:
    """Certificate authority whose key is here."""

    def __init__(self, certificate: x509.Certificate, key: PrivateKey) -> None:
        self.certificate = certificate
        self._key = key

    @classmethod
    def load(cls, authorities: Path, key_file: Path) -> "Authority":
        """Return the authority in a file to which a key belongs. Raises SigningError."""
        try:
            key = serialization.load_pem_private_key(key_file.read_bytes(), None)
            known = x509.load_pem_x509_certificates(authorities.read_bytes())
        except (OSError, ValueError, TypeError) as error:
            raise SigningError(f"{key_file} or {authorities} cannot be read: {error}") from error
        if not isinstance(key, PrivateKey):
            raise SigningError(f"{key_file}: a key of this kind signs no certificates; use P-256")
        own = key_hash(key.public_key())
        found = next((one for one in known if _hash(one) == own), None)
        if found is None:
            raise SigningError(
                f"{key_file} is the key of no certificate in {authorities}; name the key that "
                "belongs to one, as enrolment.ca_key"
            )
        return cls(found, key)

    def sign(self, key: PublicKey, wanted: Wanted) -> Signed:
        """Sign a certificate for a key."""
        serial = x509.random_serial_number()
        since, ends = _time(wanted.since_s), _time(wanted.ends_s)
        builder = (
            x509.CertificateBuilder(
                issuer_name=self.certificate.subject,
                subject_name=subject_of(wanted.name, wanted.role),
                public_key=key,
                serial_number=serial,
                not_valid_before=since,
                not_valid_after=min(ends, self.certificate.not_valid_after_utc),
            )
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_alternatives(wanted.hosts or (wanted.name,)), critical=False)
            .add_extension(_BOTH_ENDS, critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(self._key_identifier(), critical=False)
        )
        algorithm = None if isinstance(self._key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
        return _signed(builder.sign(self._key, algorithm))

    def _key_identifier(self) -> x509.AuthorityKeyIdentifier:
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())


_BOTH_ENDS = x509.ExtendedKeyUsage(
    [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
)


def new_authority(name: str, since_s: int, ends_s: int) -> tuple[Authority, bytes]:
    """Return a new authority, and its key in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = x509.CertificateBuilder(
        issuer_name=subject,
        subject_name=subject,
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=_time(since_s),
        not_valid_after=_time(ends_s),
    )
    may_sign = x509.KeyUsage(
        digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False,
        key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False,
        decipher_only=False,
    )  # fmt: skip
    made = (
        builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(may_sign, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return Authority(made, key), pem


def first_authority(authorities: Path) -> x509.Certificate:
    """Return the first authority in a file, which a command signs for. Raises SigningError."""
    try:
        return x509.load_pem_x509_certificates(authorities.read_bytes())[0]
    except (OSError, ValueError) as error:
        raise SigningError(f"{authorities} cannot be read: {error}") from error


def is_signed_by(certificate: x509.Certificate, chain: Sequence[x509.Certificate]) -> bool:
    """Return whether one of the authorities, or one below them in the chain, signed it."""
    for authority in chain:
        try:
            certificate.verify_directly_issued_by(authority)
        except (ValueError, TypeError, InvalidSignature):
            continue
        return True
    return False


def _checked(output: bytes, key: KeyRequest, wanted: Wanted, authorities: Path) -> Signed:
    """Return what a command has signed. Raises SigningError where it is not what was wanted."""
    try:
        chain = x509.load_pem_x509_certificates(output)
        known = x509.load_pem_x509_certificates(authorities.read_bytes())
    except (OSError, ValueError) as error:
        raise SigningError(f"sign_command printed no certificate in PEM: {error}") from error
    own = chain[0]
    units = own.subject.get_attributes_for_oid(NameOID.ORGANIZATIONAL_UNIT_NAME)
    names = own.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    said = [one.value for one in units], [one.value for one in names]
    if _hash(own) != key.key_sha256:
        raise SigningError("sign_command printed a certificate for another key")
    if said != ([wanted.role.value], [wanted.name]):
        raise SigningError(
            f"sign_command printed a certificate of {said[1]} with the organizational unit "
            f"{said[0]}; expected {wanted.name} and {wanted.role.value}"
        )
    if not is_signed_by(own, [*known, *chain[1:]]):
        raise SigningError(f"no authority in {authorities} signed what sign_command printed")
    return Signed(output.decode(), *_facts(own))


def _signed(certificate: x509.Certificate) -> Signed:
    pem = certificate.public_bytes(serialization.Encoding.PEM).decode()
    return Signed(pem, *_facts(certificate))


def _facts(certificate: x509.Certificate) -> tuple[str, int, int]:
    since, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    serial = serial_text(certificate.serial_number)
    return serial, int(since.timestamp()), int(ends.timestamp())


def _hash(certificate: x509.Certificate) -> str:
    try:
        return key_hash(certificate.public_key())
    except RequestError:
        return ""


def _alternatives(hosts: Sequence[str]) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName([_alternative(host) for host in hosts])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _time(at_s: float) -> datetime:
    return datetime.fromtimestamp(int(at_s), UTC)
