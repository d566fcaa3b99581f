"""Enrolment: which nodes may have a certificate signed or renewed, and which count no more. Pure.

The shell asks `enrolment_problem` or `renewal_problem`, signs, and has the event journaled before
the certificate leaves it; the handler asks again, so that of two requests for one use of a token
only the first is answered.
"""

import hmac
from dataclasses import dataclass
from datetime import UTC, datetime

from everstep_controller.core.events import (
    CertificateRenewed,
    EnrolmentRefused,
    NodeEnrolled,
    OperatorOrder,
    PodEnrolled,
)
from everstep_controller.core.model.enrolment import (
    Certificate,
    Enrolment,
    Revocation,
    Token,
    TokenRecord,
    kubernetes_name_problem,
    node_name_problem,
    pod_mark,
)
from everstep_controller.core.model.state import CONTROLLER, State
from everstep_controller.core.registry import Handlers
from everstep_controller.core.turn import Turn

_NS = 1_000_000_000
_DAY_S = 86_400
# A certificate that is used or seen by a clock so far away looks not begun, or ended, too soon.
CLOCK_APART_MAX_S = 300
# How long after its end a token is listed, and a certificate's name is known to have had it.
_KEPT_NS = 30 * _DAY_S * _NS
_TOKENS_MAX = 1_000
_REVOKED_MAX = 10_000
# A certificate is renewed at a third of its life: six of these cover streams that never end.
_BEFORE_MAX = 8


@dataclass(frozen=True, slots=True)
class TokenMade(OperatorOrder):
    """An operator lets nodes enrol by a token, of whose secret the journal has the hash."""

    token: Token


@dataclass(frozen=True, slots=True)
class TokenRevoked(OperatorOrder):
    """An operator lets no node enrol by a token any more."""

    id: str
    operator: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificatesRevoked(OperatorOrder):
    """An operator has all certificates of a node count no more, or one, by its serial."""

    operator: str
    reason: str
    # Unix time of the order, by which certificates count.
    at_s: int
    node: str = ""
    serial: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrolmentAsked:
    """What somebody asks who has no certificate yet: one for a node, by a token."""

    token: str
    secret_sha256: str
    node: str
    key_sha256: str
    # Unix time by the clock of the node.
    clock_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PodEnrolmentAsked:
    """What an agent in a pod asks that has no certificate yet; Kubernetes vouches for the pod."""

    # Namespace and name, and the uid.
    pod: str
    uid: str
    # The node that Kubernetes says it runs on, and the one that it asks for.
    runs_on: str
    node: str
    key_sha256: str
    # Unix time by the clock of the node.
    clock_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewalAsked:
    """What an agent asks with its certificate, whose key and authority were verified."""

    node: str
    serial: str
    since_s: float
    ends_s: float
    # Of the new public key.
    key_sha256: str


def enrolment_problem(state: State, asked: EnrolmentAsked, now_ns: int, wall_s: float) -> str:
    """Return why a node may not enrol, with what to type; "" where it may."""
    if state.halted:
        return f"the controller acts on nothing now: {state.halted}"
    record = state.enrolment.tokens.get(asked.token)
    if record is None or not hmac.compare_digest(
        record.token.secret_sha256.encode(), asked.secret_sha256.encode()
    ):
        return (
            "this controller has no such token: it was mistyped, ended long ago, or is of another "
            "cluster; 'everstep tokens make' on the controller's machine makes one"
        )
    return (
        node_name_problem(asked.node)
        or _token_problem(record, asked, now_ns)
        or clock_problem(asked.clock_s, wall_s)
        or _name_taken(state, record.token, asked)
    )


def pod_enrolment_problem(state: State, asked: PodEnrolmentAsked, wall_s: float) -> str:
    """Return why the agent of a pod may not enrol, with what to type; "" where it may."""
    if state.halted:
        return f"the controller acts on nothing now: {state.halted}"
    if asked.node != asked.runs_on:
        return (
            f"pod {asked.pod} runs on {asked.runs_on} and asks for a certificate of "
            f"{asked.node!r:.80}: set node in its agent.toml to spec.nodeName of the pod"
        )
    if problem := kubernetes_name_problem(asked.node) or clock_problem(asked.clock_s, wall_s):
        return problem
    if revoked := _revoked_since(state.enrolment, asked.node):
        return (
            f"{revoked_words(asked.node, revoked)}; a pod does not bring it back, a token does: "
            f"everstep tokens make --node {asked.node}"
        )
    return _pod_name_taken(state, asked)


def clock_problem(node_s: float, controller_s: float) -> str:
    """Return how far a node's clock and the controller's are apart, where certificates suffer."""
    apart_s = node_s - controller_s
    if abs(apart_s) <= CLOCK_APART_MAX_S:
        return ""
    where = "ahead of" if apart_s > 0 else "behind"
    return (
        f"the node's clock ({shown_s(node_s)}) is {_span(abs(apart_s))} {where} the controller's "
        f"({shown_s(controller_s)}): set the wrong one ('timedatectl set-ntp true'), and try again"
    )


def renewal_problem(state: State, asked: RenewalAsked, wall_s: float, grace_s: float) -> str:
    """Return why a certificate is not renewed, with what to type; "" where it is."""
    again = f"join again with a token: everstep tokens make --node {asked.node}"
    if state.halted:
        return f"the controller acts on nothing now: {state.halted}"
    if revoked := state.enrolment.revocation(asked.node, asked.serial, asked.since_s):
        return f"{revoked_words(asked.node, revoked)}; {again}"
    if wall_s > asked.ends_s + grace_s:
        return (
            f"the certificate ended at {shown_s(asked.ends_s)}, more than {_span(grace_s)} ago; "
            f"{again}"
        )
    known = state.enrolment.certificates.get(asked.node)
    # Nobody is known where the journal was lost; the signature speaks for itself then.
    if known is not None and not known.covers(asked.serial):
        return (
            f"another key was enrolled for {asked.node} at {shown_ns(known.signed_ns)}, and this "
            f"one counts no more; if that was not you: everstep nodes revoke {asked.node}"
        )
    return ""


def revocation_problem(state: State, node: str, serial: str) -> str:
    """Return why nothing can be revoked, with what to type; "" where it can."""
    held = state.enrolment
    if len(held.revoked_nodes) + len(held.revoked_serials) >= _REVOKED_MAX:
        return (
            f"{_REVOKED_MAX} names and serials are revoked: replace the authority instead "
            "(docs/enrolment.md, Another authority)"
        )
    if not serial and node not in held.certificates and node not in state.nodes:
        return f"no node and no certificate of the name {node!r}; 'everstep nodes certificates'"
    return ""


def token_problem(state: State, token: Token) -> str:
    """Return why a token cannot be made now; "" where it can."""
    if state.halted:
        return f"the controller acts on nothing now: {state.halted}"
    open_ones = sum(token.made_ns < one.token.until_ns for one in state.enrolment.tokens.values())
    if open_ones >= _TOKENS_MAX:
        return f"{_TOKENS_MAX} tokens are open; revoke some: everstep tokens revoke ID"
    return ""


def revoked_words(name: str, revoked: Revocation) -> str:
    """Return the sentence about a certificate that was revoked."""
    why = f": {revoked.reason}" if revoked.reason else ""
    return (
        f"the certificate of {name} was revoked at {shown_s(revoked.at_s)} "
        f"by {revoked.operator}{why}"
    )


def not_before_s(state: State, node: str, wall_s: float) -> int:
    """Return when a new certificate begins: a little in the past, for clocks that are behind.

    Never as early as what was revoked of the node.
    """
    begins = int(wall_s) - CLOCK_APART_MAX_S
    revoked = state.enrolment.revoked_nodes.get(node)
    return begins if revoked is None else max(begins, revoked.at_s + 1)


# --- handlers ------------------------------------------------------------------------------------


def token_made(turn: Turn, event: TokenMade) -> None:
    """Keep a token; those that ended long ago are forgotten."""
    token, kept = event.token, turn.state.enrolment.tokens
    if token.id in kept or token_problem(turn.state, token):
        return
    for name in [
        one.token.id for one in kept.values() if one.token.until_ns + _KEPT_NS < turn.now_ns
    ]:
        del kept[name]
    kept[token.id] = TokenRecord(token)
    why = f": {token.reason}" if token.reason else ""
    turn.announce(
        CONTROLLER,
        "TokenMade",
        f"{token.operator} made token {token.id} for {token.names} until "
        f"{shown_ns(token.until_ns)}{why}",
    )


def token_revoked(turn: Turn, event: TokenRevoked) -> None:
    """Let no node enrol by a token any more."""
    record = turn.state.enrolment.tokens.get(event.id)
    if record is None or record.revoked_by:
        return
    record.revoked_by = event.operator
    turn.announce(CONTROLLER, "TokenRevoked", f"{event.operator} revoked token {event.id}")


def node_enrolled(turn: Turn, event: NodeEnrolled) -> None:
    """Note the use of a token, and the certificate; the one before it counts no more."""
    held = turn.state.enrolment
    record = held.tokens.get(event.token)
    if record is None or _use_problem(record, event.node, event.key_sha256):
        return
    _replace_key(held, event.node, event.key_sha256, event.since_s)
    record.used[event.node] = event.key_sha256
    held.certificates[event.node] = Certificate(
        serial=event.serial,
        ends_s=event.ends_s,
        key_sha256=event.key_sha256,
        signed_ns=turn.now_ns,
        token=event.token,
    )
    _forget_ended(held, turn.now_ns)
    turn.announce(
        event.node,
        "NodeEnrolled",
        f"{event.node} enrolled from {event.address} by token {event.token}: certificate "
        f"{event.serial} until {shown_s(event.ends_s)}",
    )


def pod_enrolled(turn: Turn, event: PodEnrolled) -> None:
    """Note the certificate of a pod's node; the one before it counts no more."""
    held = turn.state.enrolment
    known = held.certificates.get(event.node)
    if _revoked_since(held, event.node) or _is_used(known, event.uid, event.key_sha256):
        return
    _replace_key(held, event.node, event.key_sha256, event.since_s)
    held.certificates[event.node] = Certificate(
        serial=event.serial,
        ends_s=event.ends_s,
        key_sha256=event.key_sha256,
        signed_ns=turn.now_ns,
        token=pod_mark(event.uid),
    )
    _forget_ended(held, turn.now_ns)
    turn.announce(
        event.node,
        "NodeEnrolled",
        f"{event.node} enrolled from {event.address} as pod {event.pod}: certificate "
        f"{event.serial} until {shown_s(event.ends_s)}",
    )


def certificate_renewed(turn: Turn, event: CertificateRenewed) -> None:
    """Note the newest certificate of a node."""
    held = turn.state.enrolment
    known = held.certificates.get(event.node)
    if held.revocation(event.node, event.before, event.since_s) is not None:
        return
    if known is not None and not known.covers(event.before):
        return
    older = (event.before,) if known is None else (*known.before, known.serial)
    held.certificates[event.node] = Certificate(
        serial=event.serial,
        ends_s=event.ends_s,
        key_sha256=event.key_sha256,
        signed_ns=turn.now_ns,
        token=known.token if known is not None else "",
        before=older[-_BEFORE_MAX:],
    )
    turn.announce(
        event.node,
        "CertificateRenewed",
        f"the certificate of {event.node} was renewed: {event.serial} until "
        f"{shown_s(event.ends_s)}",
    )


def enrolment_refused(turn: Turn, event: EnrolmentRefused) -> None:
    """Tell people who was refused; nothing else follows."""
    times = f" ({event.count} times within a minute)" if event.count > 1 else ""
    known = event.node in turn.state.enrolment.certificates or event.node in turn.state.nodes
    turn.announce(
        event.node if known else CONTROLLER,
        "EnrolmentRefused",
        f"{event.what} for {event.node or 'no name'} from {event.address} was refused{times}: "
        f"{event.reason}",
    )


def certificates_revoked(turn: Turn, event: CertificatesRevoked) -> None:
    """Have certificates count no more; the shell ends their streams, and tells all agents."""
    held = turn.state.enrolment
    revoked = Revocation(event.at_s, event.operator, event.reason)
    subject = event.node or CONTROLLER
    if event.serial:
        held.revoked_serials[event.serial] = revoked
        subject = next(
            (name for name, one in held.certificates.items() if one.covers(event.serial)), subject
        )
        what = f"certificate {event.serial}"
    else:
        held.revoked_nodes[event.node] = revoked
        held.certificates.pop(event.node, None)
        what = f"all certificates of {event.node}"
    why = f": {event.reason}" if event.reason else ""
    turn.announce(subject, "CertificatesRevoked", f"{event.operator} revoked {what}{why}")


# -------------------------------------------------------------------------------------------------


def _token_problem(record: TokenRecord, asked: EnrolmentAsked, now_ns: int) -> str:
    token = record.token
    if record.revoked_by:
        return f"token {token.id} was revoked by {record.revoked_by}; {_another(asked.node)}"
    if now_ns > token.until_ns:
        return f"token {token.id} ended at {shown_ns(token.until_ns)}; {_another(asked.node)}"
    if not token.names_node(asked.node):
        return (
            f"token {token.id} is for {token.names}, and not for {asked.node}; join under that "
            f"name (--node), or {_another(asked.node)}"
        )
    return _use_problem(record, asked.node, asked.key_sha256)


def _use_problem(record: TokenRecord, node: str, key_sha256: str) -> str:
    """Return why a token is of no use any more; the same key may ask again for a lost answer."""
    token, used = record.token, record.used.get(node)
    if used == key_sha256:
        return ""
    if used is not None:
        return f"{node} has enrolled by token {token.id} already; {_another(node)}"
    if record.used_up:
        by = ", ".join(sorted(record.used)[:3])
        return f"token {token.id} was used already, by {by}; {_another(node)}"
    return ""


def _name_taken(state: State, token: Token, asked: EnrolmentAsked) -> str:
    """Return why a name is not given to another key: only who names it alone may replace it."""
    node, known = state.nodes.get(asked.node), state.enrolment.certificates.get(asked.node)
    if known is not None and known.key_sha256 == asked.key_sha256:
        return ""
    if node is not None and node.liveness.connected:
        return (
            f"an agent is connected as {asked.node} now, from {node.spec.host or 'elsewhere'}: "
            "two nodes cannot have one name; join under another one (--node NAME), or stop that "
            "agent first (systemctl stop everstep-agent)"
        )
    if known is not None and not token.exact:
        return (
            f"{asked.node} is enrolled already, and token {token.id} is for many names; for a node "
            f"that was installed anew: everstep tokens make --node {asked.node}"
        )
    return ""


def _pod_name_taken(state: State, asked: PodEnrolmentAsked) -> str:
    """Return why a name is not given to another key of the pod's."""
    node, known = state.nodes.get(asked.node), state.enrolment.certificates.get(asked.node)
    if known is not None and known.key_sha256 == asked.key_sha256:
        return ""
    if node is not None and node.liveness.connected:
        return (
            f"an agent is connected as {asked.node} now, from {node.spec.host or 'elsewhere'}: "
            f"two agents cannot be one node; stop that one, or take {asked.node} out of the "
            "DaemonSet's nodeSelector"
        )
    if _is_used(known, asked.uid, asked.key_sha256):
        namespace, _, name = asked.pod.partition("/")
        return (
            f"pod {asked.pod} has enrolled {asked.node} already, with another key; where its own "
            f"data folder was lost, its successor may: kubectl delete pod -n {namespace} {name}"
        )
    return ""


def _revoked_since(held: Enrolment, node: str) -> Revocation | None:
    """Return what revoked a node that nobody has let in again by a token since."""
    return None if node in held.certificates else held.revoked_nodes.get(node)


def _is_used(known: Certificate | None, uid: str, key_sha256: str) -> bool:
    """Return whether a pod has enrolled by another key: it does so once."""
    return known is not None and known.token == pod_mark(uid) and known.key_sha256 != key_sha256


def _replace_key(held: Enrolment, node: str, key_sha256: str, since_s: int) -> None:
    """Have the certificates of another key of a node count no more."""
    older = held.certificates.get(node)
    if older is not None and older.key_sha256 != key_sha256:
        by = Revocation(since_s, "everstep", "another key was enrolled for the node")
        for serial in (older.serial, *older.before):
            held.revoked_serials[serial] = by


def _another(node: str) -> str:
    return f"for another token: everstep tokens make --node {node}"


def _forget_ended(held: Enrolment, now_ns: int) -> None:
    """Keep no serial as revoked that its own end has long made useless.

    Certificates last 30 days and may be renewed for 30 more; those of an authority of one's own
    last longer, and their serials are kept until there are too many.
    """
    if len(held.revoked_serials) < _REVOKED_MAX:
        return
    by_age = sorted(held.revoked_serials, key=lambda one: held.revoked_serials[one].at_s)
    for serial in by_age[: _REVOKED_MAX // 10]:
        if held.revoked_serials[serial].at_s * _NS + 12 * _KEPT_NS < now_ns:
            del held.revoked_serials[serial]


def shown_s(at_s: float) -> str:
    """Return a Unix time as people write it, in UTC."""
    return f"{datetime.fromtimestamp(int(at_s), UTC):%Y-%m-%dT%H:%M:%SZ}"


def shown_ns(at_ns: int) -> str:
    """Return a time of the controller's timeline as people write it, in UTC."""
    return shown_s(at_ns // _NS)


def _span(seconds: float) -> str:
    days, rest = divmod(int(seconds), _DAY_S)
    hours, minutes = rest // 3600, rest % 3600 // 60
    if days:
        return f"{days} d {hours} h" if hours else f"{days} d"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


HANDLERS: Handlers = {
    CertificateRenewed: certificate_renewed,
    CertificatesRevoked: certificates_revoked,
    EnrolmentRefused: enrolment_refused,
    NodeEnrolled: node_enrolled,
    PodEnrolled: pod_enrolled,
    TokenMade: token_made,
    TokenRevoked: token_revoked,
}
