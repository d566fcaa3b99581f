"""Certificate requests: keys of nodes, requests by them, and proofs of a key; with `cryptography`.

Imported by the command that joins a node, by the short process that renews a certificate, and by
the controller: never by an agent's daemon, which would hold the library for nothing.
"""

from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID

from everstep_proto.tls import Role

_RSA_BITS_MIN = 2048
_PROOF = b"everstep renewal\n"
PublicKey = ec.EllipticCurvePublicKey | rsa.RSAPublicKey | ed25519.Ed25519PublicKey


class RequestError(ValueError):
    """A request, key or proof that cannot be used; one sentence."""


@dataclass(frozen=True, slots=True)
class KeyRequest:
    """Request for a certificate: who asks, and the key whose possession it proves."""

    node: str
    key: PublicKey
    key_sha256: str


def new_key() -> bytes:
    """Return a new private key on P-256, in PEM."""
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def subject_of(name: str, role: Role) -> x509.Name:
    """Return the subject by which everybody knows who it is and what it may do."""
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, role.value),
            x509.NameAttribute(NameOID.COMMON_NAME, name),
        ]
    )


def make_request(key_pem: bytes, node: str) -> bytes:
    """Return a request for an agent's certificate, in PEM. Raises RequestError."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject_of(node, Role.AGENT))
    made = builder.sign(_elliptic(key_pem), hashes.SHA256())
    return made.public_bytes(serialization.Encoding.PEM)


def read_request(pem: str) -> KeyRequest:
    """Return what is in a request that is signed by its own key. Raises RequestError."""
    try:
        request = x509.load_pem_x509_csr(pem.encode())
        signed = request.is_signature_valid
        names = request.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        key = request.public_key()
    except (ValueError, UnsupportedAlgorithm) as error:
        raise RequestError("the request for a certificate cannot be read") from error
    if not signed:
        raise RequestError("the request for a certificate is not signed by its own key")
    return KeyRequest(str(names[0].value) if len(names) == 1 else "", _usable(key), key_hash(key))


def key_hash(key: object) -> str:
    """Return the hash of a public key, by which it is known. Raises RequestError."""
    der = _usable(key).public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    digest = hashes.Hash(hashes.SHA256())
    digest.update(der)
    return digest.finalize().hex()


def prove(key_pem: bytes, request: bytes) -> str:
    """Return the proof that who sends a request has a key. Raises RequestError."""
    key = serialization.load_pem_private_key(key_pem, None)
    if isinstance(key, ec.EllipticCurvePrivateKey):
        return key.sign(_PROOF + request, ec.ECDSA(hashes.SHA256())).hex()
    raise RequestError("the key of the certificate is on no elliptic curve")


def is_proven(key: object, request: str, proof: str) -> bool:
    """Return whether a proof was made with the private key of a public one."""
    if not isinstance(key, ec.EllipticCurvePublicKey):
        return False
    try:
        key.verify(bytes.fromhex(proof), _PROOF + request.encode(), ec.ECDSA(hashes.SHA256()))
    except (InvalidSignature, ValueError):
        return False
    return True


def _elliptic(key_pem: bytes) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(key_pem, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise RequestError(f"the key cannot be read: {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise RequestError("the key is on no elliptic curve")
    return key


def _usable(key: object) -> PublicKey:
    if isinstance(key, rsa.RSAPublicKey) and key.key_size < _RSA_BITS_MIN:
        raise RequestError(f"an RSA key of {key.key_size} bits is too short; use P-256")
    if isinstance(key, PublicKey):
        return key
    raise RequestError("the key is of a kind that is not used here; use P-256")
