"""Enrolment service: answers requests for certificates as the core decides, each journaled first.

A certificate leaves this process only after its event is durable and was taken. So of two nodes
with one token the first is answered, whenever the controller is killed.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509

from everstep_controller.core.events import (
    CertificateRenewed,
    EnrolmentRefused,
    Event,
    NodeEnrolled,
    PodEnrolled,
)
from everstep_controller.core.fleet import enrolment
from everstep_controller.core.fleet.enrolment import (
    EnrolmentAsked,
    PodEnrolmentAsked,
    RenewalAsked,
)
from everstep_controller.enrolment.pods import NoPods, PodRefusedError, PodVoucher, VouchedPod
from everstep_controller.enrolment.refusals import Refusals
from everstep_controller.enrolment.signer import Signed, Signer, SigningError, Wanted
from everstep_controller.journal.group_commit import JournalFull
from everstep_controller.runtime.runtime import Runtime
from everstep_proto.enrolment.certificate_requests import KeyRequest, RequestError, is_proven
from everstep_proto.enrolment.messages import (
    AuthorityReply,
    CertificateReply,
    EnrolRequest,
    PodEnrolRequest,
    RenewRequest,
)
from everstep_proto.enrolment.token_text import secret_sha256
from everstep_proto.enrolment.validity import serial_text
from everstep_proto.shown_certificates import Authorities, leads_to
from everstep_proto.tls import IdentityError, Role, identity_of

logger = logging.getLogger(__name__)


class RefusedError(Exception):
    """No certificate is given; one sentence says why and what to type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How long certificates last, how long after that they may be renewed; the agents' port."""

    certificate_s: float
    grace_s: float
    port: Callable[[], int]


class EnrolmentService:
    """Answers nodes that want a certificate; they raise RefusedError."""

    def __init__(
        self,
        runtime: Runtime,
        signer: Signer,
        authorities: Path,
        terms: Terms,
        wall_s: Callable[[], float] = time.time,
        pods: PodVoucher | None = None,
    ) -> None:
        self._pods = pods or NoPods()
        self._runtime, self._signer, self._terms = runtime, signer, terms
        self._file = Authorities(authorities)
        self._wall_s = wall_s
        # Tokens, by whose use a certificate is being signed, and names that are to have one.
        self._busy: set[str] = set()
        self._refusals = Refusals()

    def authority(self) -> AuthorityReply:
        """Return what anybody may know."""
        return AuthorityReply(
            cluster_id=self._runtime.state.cluster_id,
            authorities=self._authorities(),
            clock_s=self._wall_s(),
        )

    async def enrol(self, request: EnrolRequest, address: str) -> CertificateReply:
        """Sign a node's first certificate."""
        try:
            return await self._enrol(request, address)
        except RefusedError as error:
            self._tell_refused("enrolment", request.node, address, str(error))
            raise

    async def enrol_pod(self, request: PodEnrolRequest, address: str) -> CertificateReply:
        """Sign the first certificate of a node whose agent is a pod."""
        try:
            return await self._enrol_pod(request, address)
        except RefusedError as error:
            self._tell_refused("enrolment", request.node, address, str(error))
            raise

    async def renew(self, request: RenewRequest, address: str) -> CertificateReply:
        """Sign a certificate in the place of the one that an agent has."""
        name = "an agent"
        try:
            asked, key = await self._asked_renewal(request)
            name = asked.node
            return await self._renew(asked, request.request, key)
        except RefusedError as error:
            self._tell_refused("renewal", name, address, str(error))
            raise

    def tell_due_refusals(self) -> None:
        """Have refusals written down whose number is known by now."""
        for refused in self._refusals.due(self._wall_s()):
            self._runtime.post(refused, again=False)

    # ---------------------------------------------------------------------------------------------

    async def _enrol(self, request: EnrolRequest, address: str) -> CertificateReply:
        key = await self._read(request.request)
        asked = EnrolmentAsked(
            token=request.token_id,
            secret_sha256=secret_sha256(request.secret),
            node=request.node,
            key_sha256=key.key_sha256,
            clock_s=request.clock_s,
        )
        self._refuse_if(self._enrolment_problem(asked))
        if key.node != request.node:
            raise RefusedError(f"the request for {request.node} is signed for {key.node!r:.80}")
        busy = {f"token {asked.token}" if self._is_for_one(asked.token) else "", asked.node} - {""}
        if busy & self._busy:
            raise RefusedError(f"{asked.node} is being enrolled at this moment; try again")
        self._busy |= busy
        try:
            signed = await self._sign(asked.node, request.request)
            # Refused meanwhile?
            self._refuse_if(self._enrolment_problem(asked))
            await self._journal(
                NodeEnrolled(
                    node=asked.node,
                    token=asked.token,
                    key_sha256=asked.key_sha256,
                    serial=signed.serial,
                    since_s=signed.since_s,
                    ends_s=signed.ends_s,
                    address=address,
                )
            )
        finally:
            self._busy -= busy
        return self._reply(asked.node, signed)

    def _enrolment_problem(self, asked: EnrolmentAsked) -> str:
        state, now_ns = self._runtime.state, self._runtime.now_ns()
        return enrolment.enrolment_problem(state, asked, now_ns, self._wall_s())

    def _is_for_one(self, token: str) -> bool:
        record = self._runtime.state.enrolment.tokens.get(token)
        return record is not None and bool(record.token.uses_max)

    async def _enrol_pod(self, request: PodEnrolRequest, address: str) -> CertificateReply:
        key = await self._read(request.request)
        try:
            pod = await self._pods.pod(request.token)
        except PodRefusedError as error:
            raise RefusedError(str(error)) from error
        asked = PodEnrolmentAsked(
            pod=pod.name,
            uid=pod.uid,
            runs_on=pod.node,
            node=request.node,
            key_sha256=key.key_sha256,
            clock_s=request.clock_s,
        )
        self._refuse_if(self._pod_problem(asked))
        if key.node != request.node:
            raise RefusedError(f"the request for {request.node} is signed for {key.node!r:.80}")
        if asked.node in self._busy:
            raise RefusedError(f"{asked.node} is being enrolled at this moment; try again")
        self._busy.add(asked.node)
        try:
            signed = await self._sign(asked.node, request.request)
            # Refused meanwhile?
            self._refuse_if(self._pod_problem(asked))
            await self._journal(_pod_enrolled(pod, asked, signed, address))
        finally:
            self._busy.discard(asked.node)
        return self._reply(asked.node, signed)

    def _pod_problem(self, asked: PodEnrolmentAsked) -> str:
        return enrolment.pod_enrolment_problem(self._runtime.state, asked, self._wall_s())

    async def _asked_renewal(self, request: RenewRequest) -> tuple[RenewalAsked, str]:
        """Return what is asked, once it is known that who asks has the key of the certificate."""
        try:
            chain = x509.load_pem_x509_certificates(request.certificate.encode())
            identity = identity_of(chain[0])
        except (ValueError, IdentityError) as error:
            raise RefusedError(f"the certificate to renew cannot be used: {error}") from error
        if identity.role is not Role.AGENT:
            raise RefusedError(
                f"the certificate of {identity.name} is {identity.role.value}'s: "
                "only agents renew by themselves"
            )
        if not leads_to(chain[0], chain[1:], self._file.newest()):
            raise RefusedError(
                f"the certificate of {identity.name} was signed by another authority "
                f"({chain[0].issuer.rfc4514_string()[:80]}) than those that count here: join again "
                f"with a token: everstep tokens make --node {identity.name}"
            )
        key = await self._read(request.request)
        if not is_proven(chain[0].public_key(), request.request, request.proof):
            raise RefusedError("who asks does not have the key of the certificate")
        asked = RenewalAsked(
            node=identity.name,
            serial=serial_text(chain[0].serial_number),
            since_s=chain[0].not_valid_before_utc.timestamp(),
            ends_s=identity.until_s,
            key_sha256=key.key_sha256,
        )
        return asked, key.node

    async def _renew(self, asked: RenewalAsked, request: str, name: str) -> CertificateReply:
        if name != asked.node:
            raise RefusedError(f"the certificate of {asked.node} renews none of {name!r:.80}")
        self._refuse_if(self._renewal_problem(asked))
        signed = await self._sign(asked.node, request)
        self._refuse_if(self._renewal_problem(asked))
        await self._journal(
            CertificateRenewed(
                node=asked.node,
                before=asked.serial,
                since_s=int(asked.since_s),
                serial=signed.serial,
                key_sha256=asked.key_sha256,
                ends_s=signed.ends_s,
            )
        )
        return self._reply(asked.node, signed)

    def _renewal_problem(self, asked: RenewalAsked) -> str:
        state = self._runtime.state
        return enrolment.renewal_problem(state, asked, self._wall_s(), self._terms.grace_s)

    async def _read(self, request: str) -> KeyRequest:
        try:
            return await self._signer.read(request)
        except RequestError as error:
            raise RefusedError(str(error)) from error

    async def _sign(self, node: str, request: str) -> Signed:
        since_s = enrolment.not_before_s(self._runtime.state, node, self._wall_s())
        ends_s = int(self._wall_s() + self._terms.certificate_s)
        wanted = Wanted(name=node, role=Role.AGENT, since_s=since_s, ends_s=ends_s)
        try:
            return await self._signer.sign(request, wanted)
        except SigningError as error:
            logger.warning("no certificate for %s: %s", node, error)
            raise RefusedError(f"the controller could not sign: {error}") from error

    async def _journal(self, event: Event) -> None:
        try:
            await self._runtime.submit(event)
        except JournalFull as error:
            raise RefusedError(f"the controller cannot write its journal: {error}") from error

    def _reply(self, node: str, signed: Signed) -> CertificateReply:
        state = self._runtime.state
        known = state.enrolment.certificates.get(node)
        if known is None or not known.covers(signed.serial):
            raise RefusedError(f"another key was enrolled for {node} at the same moment; try again")
        return CertificateReply(
            certificate=signed.pem,
            authorities=self._authorities(),
            cluster_id=state.cluster_id,
            port=self._terms.port(),
        )

    def _authorities(self) -> str:
        self._file.newest()
        return self._file.text()

    def _refuse_if(self, problem: str) -> None:
        if problem:
            raise RefusedError(problem)

    def _tell_refused(self, what: str, node: str, address: str, reason: str) -> None:
        refused = EnrolmentRefused(what=what, node=node[:80], address=address, reason=reason[:500])
        told = self._refusals.note(refused, self._wall_s())
        if told is not None:
            self._runtime.post(told, again=False)


def _pod_enrolled(
    pod: VouchedPod, asked: PodEnrolmentAsked, signed: Signed, address: str
) -> PodEnrolled:
    return PodEnrolled(
        node=asked.node,
        pod=pod.name,
        uid=pod.uid,
        key_sha256=asked.key_sha256,
        serial=signed.serial,
        since_s=signed.since_s,
        ends_s=signed.ends_s,
        address=address,
    )
