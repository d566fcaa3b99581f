"""Enrolment client: asks controllers for certificates over HTTPS; blocking, for short processes.

Whom to trust is said by the token: the authority comes over a connection that trusts nobody, and
counts only where its hash is the token's. Nothing of a token is sent before that.
"""

import http.client
import json
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import TypeVar

from everstep_common.addresses import split_address
from everstep_common.codec import CodecError, from_json, json_text
from everstep_proto.enrolment.messages import (
    AUTHORITY_PATH,
    NOT_ACTIVE,
    AuthorityReply,
    Refusal,
)
from everstep_proto.enrolment.token_text import authority_hash
from everstep_proto.enrolment.validity import NoCertificateError, all_certificates

T = TypeVar("T")
_TIMEOUT_S = 60.0
_ANSWER_BYTES_MAX = 256 << 10


class EnrolmentError(Exception):
    """The controller cannot be asked, or gives no certificate; one sentence."""


class RefusedError(EnrolmentError):
    """The controller has heard the request, and gives no certificate."""


class EnrolmentClient:
    """Client of one controller's enrolment port."""

    def __init__(self, address: str, server_name: str = "", timeout_s: float = _TIMEOUT_S) -> None:
        self.address = address
        self._timeout_s = timeout_s
        host, port = split_address(address)
        self._host, self._port, self._name = host, int(port), server_name or host
        # An address of this machine, by which the controller is reached.
        self.own_address = ""

    def pinned_authority(self, pin: str) -> tuple[AuthorityReply, str]:
        """Return what the controller says, and the authority of this hash in PEM.

        Raises EnrolmentError.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        reply = self._ask(context, "GET", AUTHORITY_PATH, "", AuthorityReply)
        try:
            known = all_certificates(reply.authorities.encode())
        except NoCertificateError as error:
            raise EnrolmentError(f"{self.address} shows no authority: {error}") from error
        for der in known:
            if authority_hash(der) == pin:
                return reply, ssl.DER_cert_to_PEM_cert(der)
        seen = ", ".join(_short(authority_hash(der)) for der in known) or "none"
        raise EnrolmentError(
            f"the controller at {self.address} has another authority ({seen}) than the token "
            f"({_short(pin)}): the token is of another cluster, or somebody stands between; make "
            "one there: everstep tokens make"
        )

    def ask(self, authorities: str, path: str, request: object, kind: type[T]) -> T:
        """Return the answer of a controller that these authorities vouch for.

        Raises EnrolmentError.
        """
        context = ssl.create_default_context(cadata=authorities)
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        return self._ask(context, "POST", path, json_text(request), kind)

    def _ask(self, context: ssl.SSLContext, method: str, path: str, body: str, kind: type[T]) -> T:
        status, answer = self._exchange(context, method, path, body)
        try:
            told = json.loads(answer)
            if status == http.client.OK:
                return from_json(kind, told)
            problem = from_json(Refusal, told).problem
            raise (EnrolmentError if status == NOT_ACTIVE else RefusedError)(problem)
        except (CodecError, ValueError) as error:
            raise EnrolmentError(
                f"what answers at {self.address} is no controller's enrolment port "
                f"(HTTP {status}); leave the port out, or name that of enrolment.listen"
            ) from error

    def _exchange(
        self, context: ssl.SSLContext, method: str, path: str, body: str
    ) -> tuple[int, bytes]:
        connection = _Connection(
            self._host, self._port, self._name, context, timeout_s=self._timeout_s
        )
        try:
            connection.request(method, path, body.encode() or None, {"Host": self._name})
            self.own_address = connection.own_address
            answer = connection.getresponse()
            return answer.status, answer.read(_ANSWER_BYTES_MAX)
        except ssl.SSLCertVerificationError as error:
            raise EnrolmentError(self._unverified(error)) from error
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:
            raise EnrolmentError(self._broken(error)) from error
        except ssl.SSLError as error:
            raise EnrolmentError(
                f"what answers at {self.address} refuses this connection "
                f"({error.reason or error}): it is the agents' port, or no controller; leave the "
                "port out, or name that of enrolment.listen"
            ) from error
        except (ConnectionError, http.client.HTTPException) as error:
            raise EnrolmentError(self._broken(error)) from error
        except OSError as error:
            raise EnrolmentError(
                f"the controller at {self.address} is not reached: {error.strerror or error}; "
                "is its name right, and is the port open ('ss -ltn' there)?"
            ) from error
        finally:
            connection.close()

    def _broken(self, error: Exception) -> str:
        if isinstance(error, ConnectionRefusedError):
            return (
                f"nobody listens at {self.address}: start the controller, and see that its "
                "configuration has enrolment.listen ('everstep-controller init' writes it)"
            )
        return (
            f"{self.address} closed the connection unanswered: it is the agents' port (leave the "
            "port out), or too many wrong tokens came from this address lately (wait a minute)"
        )

    def _unverified(self, error: ssl.SSLCertVerificationError) -> str:
        why = error.verify_message or str(error)
        if "mismatch" in why.lower() or "not valid for" in why:
            return (
                f"the controller's certificate is not for {self._name!r}: join by a name that it "
                f"has, or add this one there: everstep-controller init --name {self._name}"
            )
        return (
            f"the certificate of the controller at {self.address} is not trusted: {why}; its clock "
            "or this node's is wrong, or its certificate is not of the authority in the token"
        )


class EnrolmentClients:
    """Clients of the enrolment ports of a cluster's controllers: one of them gives certificates.

    The next one is asked where one does not answer, or is a standby; what one refuses is refused.
    """

    def __init__(self, addresses: Sequence[str], server_name: str = "") -> None:
        # All together they take no longer than one.
        timeout_s = _TIMEOUT_S / len(addresses)
        self._clients = [EnrolmentClient(one, server_name, timeout_s) for one in addresses]
        self.addresses = tuple(addresses)

    @property
    def own_address(self) -> str:
        """Return an address of this machine, by which a controller is reached."""
        return next((one.own_address for one in self._clients if one.own_address), "")

    def pinned_authority(self, pin: str) -> tuple[AuthorityReply, str]:
        """See EnrolmentClient."""
        return self._first(lambda one: one.pinned_authority(pin))

    def ask(self, authorities: str, path: str, request: object, kind: type[T]) -> T:
        """See EnrolmentClient."""
        return self._first(lambda one: one.ask(authorities, path, request, kind))

    def _first(self, ask: Callable[[EnrolmentClient], T]) -> T:
        failures = list[EnrolmentError]()
        for one in self._clients:
            try:
                return ask(one)
            except RefusedError:
                raise
            except EnrolmentError as error:
                failures.append(error)
        if len(failures) == 1:
            raise failures[0]
        raise EnrolmentError("; ".join(map(str, failures))) from failures[0]


def _short(pin: str) -> str:
    return f"{pin[:6]}…{pin[-6:]}"


class _Connection(http.client.HTTPSConnection):
    """Connection to an address whose certificate is for a name that may be another one."""

    def __init__(
        self, host: str, port: int, name: str, context: ssl.SSLContext, *, timeout_s: float
    ) -> None:
        super().__init__(host, port, timeout=timeout_s, context=context)
        self._tls, self._name, self._timeout_s = context, name, timeout_s
        self.own_address = ""

    def connect(self) -> None:
        """Connect, and shake hands under the name."""
        plain = socket.create_connection((self.host, self.port), self._timeout_s)
        self.own_address = str(plain.getsockname()[0])
        try:
            self.sock = self._tls.wrap_socket(plain, server_hostname=self._name)
        except OSError:
            plain.close()
            raise
