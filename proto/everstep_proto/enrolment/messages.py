"""Enrolment messages: what a node sends over HTTPS for a certificate, and the answers, as JSON."""

from dataclasses import dataclass
from typing import Annotated

from everstep_common import quantities as q
from everstep_common.bounds import Digest, Opaque

AUTHORITY_PATH, ENROL_PATH, RENEW_PATH = "/v1/authority", "/v1/enrol", "/v1/renew"
POD_PATH = "/v1/enrol/pod"
DEFAULT_PORT = 7438
# HTTP's status of a Refusal by a controller that is a standby: another one is to be asked.
NOT_ACTIVE = 503
# A certificate that is seen by a clock so far away has not begun, or has ended, too soon.
CLOCK_APART_MAX_S = 300
# A request with a chain of certificates has some kB.
BYTES_MAX = 64 << 10
# Requests and certificates in PEM.
Pem = Annotated[str, Opaque(1, 32_768, "PEM of 1 to 32768 characters")]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorityReply:
    """What anybody may know: whom to trust is said by the token, not by this answer."""

    cluster_id: q.Title
    # Certificates of all authorities, in PEM.
    authorities: Pem
    # Unix time by the controller's clock.
    clock_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrolRequest:
    """A node asks for its first certificate."""

    token_id: q.Word
    secret: q.Word
    node: q.Title
    # Request for a certificate (CSR), in PEM.
    request: Pem
    # Unix time by the node's clock.
    clock_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PodEnrolRequest:
    """An agent in a pod asks for its first certificate, by the token of its service account."""

    # Signed by the API server for the audience "everstep", and for this pod alone.
    token: Annotated[str, Opaque(1, 16_384, "a token of 1 to 16384 characters")]
    node: q.Title
    # Request for a certificate (CSR), in PEM.
    request: Pem
    # Unix time by the node's clock.
    clock_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewRequest:
    """An agent asks for a certificate in the place of the one that it has."""

    # The one that it has, in PEM.
    certificate: Pem
    request: Pem
    # Signature of the request by the key of that certificate.
    proof: Annotated[str, Digest(1024, 8)]
    clock_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateReply:
    """A certificate, and what goes with it."""

    # With the chain above it, in PEM.
    certificate: Pem
    authorities: Pem
    cluster_id: q.Title
    # Port of the agents' streams.
    port: q.Port


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why there is no certificate, and what to type."""

    problem: q.Line
