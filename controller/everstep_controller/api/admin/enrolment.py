"""Enrolment operations: tokens and certificates are made, listed and revoked."""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from everstep_controller.api.admin.errors import (
    OrderRefusedError,
    UnknownNameError,
    UnusableRequestError,
)
from everstep_controller.api.fleet.node_certificates import revocation
from everstep_controller.api.fleet.sessions import Sessions
from everstep_controller.core.fleet.enrolment import (
    CertificatesRevoked,
    TokenMade,
    TokenRevoked,
    revocation_problem,
    token_problem,
)
from everstep_controller.core.model.enrolment import (
    Revocation,
    Token,
    TokenRecord,
    names_problem,
)
from everstep_controller.runtime.runtime import Runtime
from everstep_proto.answers import answer
from everstep_proto.enrolment.token_text import new_token
from everstep_proto.generated import admin_pb2

_RANDOM_BYTES = 21
_DAY_NS = 86_400_000_000_000
_LASTS_NS_MAX = 366 * _DAY_NS
_NODES_MAX = 20_000
_SERIAL_DIGITS_MAX = 40
_HEX = frozenset("0123456789abcdef")
_NO_AUTHORITY = (
    "this controller signs no certificates: run 'everstep-controller init' on its machine, or set "
    "[enrolment] (docs/enrolment.md)"
)


@dataclass(frozen=True, slots=True)
class TokenIssuer:
    """What goes into tokens: the authority that nodes are to trust, and where they enrol."""

    # Certificate of the authority.
    authority_der: bytes
    address: str


class EnrolmentOperations:
    """Operators' calls about tokens and certificates; they raise what errors.py has."""

    def __init__(
        self,
        runtime: Runtime,
        sessions: Sessions,
        issuer: TokenIssuer | None,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self._runtime, self._sessions, self._issuer = runtime, sessions, issuer
        self._wall_s = wall_s

    async def make_token(
        self, request: admin_pb2.MakeTokenRequest, operator: str
    ) -> admin_pb2.MakeTokenReply:
        """Make a token, whose secret is told this once."""
        if self._issuer is None:
            raise OrderRefusedError(_NO_AUTHORITY)
        now_ns = self._runtime.now_ns()
        if problem := _request_problem(request):
            raise UnusableRequestError(problem)
        text = new_token(secrets.token_bytes(_RANDOM_BYTES), self._issuer.authority_der)
        token = Token(
            id=text.id,
            secret_sha256=text.secret_sha256,
            names=request.names,
            nodes=tuple(request.nodes),
            uses_max=request.uses_max,
            made_ns=now_ns,
            until_ns=now_ns + request.lasts_ns,
            operator=operator,
            reason=request.reason,
        )
        if problem := token_problem(self._runtime.state, token):
            raise OrderRefusedError(problem)
        await self._runtime.submit(TokenMade(token))
        line = self._line(self._token(text.id))
        return admin_pb2.MakeTokenReply(token=str(text), line=line, address=self._issuer.address)

    def list_tokens(self) -> admin_pb2.ListTokensReply:
        """Return all tokens, newest first."""
        kept = self._runtime.state.enrolment.tokens.values()
        newest = sorted(kept, key=lambda one: one.token.made_ns, reverse=True)
        return admin_pb2.ListTokensReply(tokens=map(self._line, newest))

    async def revoke_token(self, name: str, operator: str) -> admin_pb2.TokenLine:
        """Let no node enrol by a token any more."""
        self._token(name)
        await self._runtime.submit(TokenRevoked(name, operator))
        return self._line(self._token(name))

    def list_certificates(self) -> admin_pb2.ListCertificatesReply:
        """Return the certificates of all nodes that were signed here, and all revocations."""
        held = self._runtime.state.enrolment
        certificates = [
            answer(admin_pb2.CertificateLine, one, node=node)
            for node, one in sorted(held.certificates.items())
        ]
        nodes = [_revocation(one, node=name) for name, one in sorted(held.revoked_nodes.items())]
        serials = [
            _revocation(one, serial=serial) for serial, one in sorted(held.revoked_serials.items())
        ]
        return admin_pb2.ListCertificatesReply(
            certificates=certificates, revocations=[*nodes, *serials]
        )

    async def revoke(
        self, request: admin_pb2.RevokeCertificatesRequest, operator: str
    ) -> admin_pb2.RevokeCertificatesReply:
        """Have certificates count no more, from now on everywhere."""
        node, serial = request.node, _serial(request.serial)
        state = self._runtime.state
        if state.halted:
            raise OrderRefusedError(f"the controller acts on nothing now: {state.halted}")
        if problem := revocation_problem(state, node, serial):
            raise UnknownNameError(problem)
        at_s = int(self._wall_s())
        await self._runtime.submit(
            CertificatesRevoked(
                operator=operator, reason=request.reason, at_s=at_s, node=node, serial=serial
            )
        )
        ended = sum(
            bool(revocation(self._runtime.state, one.node, one.serial, one.since_s))
            for one in self._sessions
        )
        held = self._runtime.state.enrolment
        made = held.revoked_serials[serial] if serial else held.revoked_nodes[node]
        return admin_pb2.RevokeCertificatesReply(
            revocation=_revocation(made, node=node, serial=serial),
            streams_ended=ended,
        )

    def _token(self, name: str) -> TokenRecord:
        record = self._runtime.state.enrolment.tokens.get(name)
        if record is None:
            raise UnknownNameError(f"no token {name!r:.80}; 'everstep tokens' lists them")
        return record

    def _line(self, record: TokenRecord) -> admin_pb2.TokenLine:
        state = _state(record, self._runtime.now_ns())
        used_by = sorted(record.used)
        return answer(admin_pb2.TokenLine, record.token, state=state, used_by=used_by)


def _request_problem(request: admin_pb2.MakeTokenRequest) -> str:
    if len(request.nodes) > _NODES_MAX:
        return f"{len(request.nodes)} names are more than {_NODES_MAX}; use a pattern such as gpu-*"
    if problem := names_problem(request.names, request.nodes):
        return problem
    if not 0 < request.lasts_ns <= _LASTS_NS_MAX:
        return "a token lasts from a second to a year; say --for 1h"
    return ""


def _state(record: TokenRecord, now_ns: int) -> str:
    if record.revoked_by:
        return "revoked"
    if record.used_up:
        return "used"
    return "open" if now_ns <= record.token.until_ns else "ended"


def _serial(text: str) -> str:
    """Return a serial number as it is kept. Raises UnusableRequestError."""
    digits = text.lower().replace(":", "").lstrip("0")
    if not text or (digits and len(digits) <= _SERIAL_DIGITS_MAX and _HEX.issuperset(digits)):
        return digits
    raise UnusableRequestError(
        f"{text!r:.80} is no serial number; 'everstep nodes certificates' lists them"
    )


def _revocation(
    revoked: Revocation, *, node: str = "", serial: str = ""
) -> admin_pb2.RevocationLine:
    return answer(admin_pb2.RevocationLine, revoked, node=node, serial=serial)
