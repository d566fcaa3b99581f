"""Node certificates: streams end whose certificate is revoked, and go on where it is renewed."""

import grpc

from everstep_common.orders import RevokedCertificates, RevokedNode
from everstep_controller.api.fleet.sessions import Session, Sessions
from everstep_controller.core.events import (
    CertificateRenewed,
    Event,
    NodeEnrolled,
    PodEnrolled,
    each_event,
)
from everstep_controller.core.fleet.enrolment import CertificatesRevoked, revoked_words
from everstep_controller.core.model.enrolment import Enrolment
from everstep_controller.core.model.state import State
from everstep_controller.runtime.fold import TakenEvent
from everstep_controller.runtime.runtime import Runtime
from everstep_proto.generated import fleet_pb2
from everstep_proto.record_codec import to_wire
from everstep_proto.tls import Identity


class NodeCertificates:
    """Follows what is enrolled, renewed and revoked, for the streams that are open."""

    def __init__(self, runtime: Runtime, sessions: Sessions) -> None:
        self._runtime, self._sessions = runtime, sessions
        self._serials = len(runtime.state.enrolment.revoked_serials)

    def revocation(self, identity: Identity) -> str:
        """Return why no stream is opened with a certificate that was revoked; "" where it counts.

        It is no refusal for a while: the agent asks seldom until somebody has joined it again.
        """
        return revocation(self._runtime.state, identity.name, identity.serial, identity.since_s)

    def tell(self, session: Session) -> None:
        """Tell an agent that takes it what counts no more."""
        if session.takes_revoked:
            session.send(_message(self._runtime.state.enrolment))

    def note_event(self, taken: TakenEvent) -> None:
        """Do what follows from an event."""
        for event in each_event(taken.event):
            if isinstance(event, CertificateRenewed):
                self._prolong(event)
            elif isinstance(event, CertificatesRevoked) or self._has_replaced(event):
                self._end_revoked()

    def _has_replaced(self, event: Event) -> bool:
        """Return whether a node has enrolled in the place of another key."""
        before = self._serials
        self._serials = len(self._runtime.state.enrolment.revoked_serials)
        return isinstance(event, NodeEnrolled | PodEnrolled) and self._serials != before

    def _prolong(self, event: CertificateRenewed) -> None:
        """Have a stream last as long as the certificate that its agent has by now."""
        session = self._sessions.of(event.node)
        known = self._runtime.state.enrolment.certificates.get(event.node)
        if session is not None and known is not None and known.covers(session.serial):
            session.until_s = max(session.until_s, float(known.ends_s))

    def _end_revoked(self) -> None:
        state = self._runtime.state
        message = _message(state.enrolment)
        for session in self._sessions:
            if why := revocation(state, session.node, session.serial, session.since_s):
                session.end(grpc.StatusCode.FAILED_PRECONDITION, why)
            elif session.takes_revoked:
                session.send(message)


def revocation(state: State, name: str, serial: str, since_s: float) -> str:
    """Return why a certificate counts no more, and what to type; "" where it was not revoked."""
    found = state.enrolment.revocation(name, serial, since_s) if serial else None
    if found is None:
        return ""
    return (
        f"{revoked_words(name, found)}; where the node is to come back: everstep tokens make "
        f"--node {name}, and everstep-agent join on the node"
    )


def _message(held: Enrolment) -> fleet_pb2.ControllerMessage:
    nodes = (RevokedNode(name, one.at_s) for name, one in sorted(held.revoked_nodes.items()))
    revoked = RevokedCertificates(tuple(sorted(held.revoked_serials)), tuple(nodes))
    return fleet_pb2.ControllerMessage(revoked=to_wire(revoked, fleet_pb2.RevokedCertificates))
