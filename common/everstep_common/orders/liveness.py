"""Liveness orders: which peers a node watches, and what it is asked about them and its clocks."""

from dataclasses import dataclass
from typing import Annotated

from everstep_common import quantities as q
from everstep_common.bounds import Integer, Items


@dataclass(frozen=True, slots=True)
class WatchedPeer:
    """A node to probe."""

    node: q.HostName
    # host:port of its UDP responder.
    liveness_address: q.Address


@dataclass(frozen=True, slots=True)
class PeerList:
    """The peers to watch, in place of those before."""

    peers: Annotated[tuple[WatchedPeer, ...], Items(1_000)]


@dataclass(frozen=True, slots=True)
class ConfirmPeer:
    """Question what of a peer answers; PeerEvidence answers, with the same id."""

    confirm_id: q.Key
    peer: WatchedPeer
    # host:port of its bulk listener; "" where it has none.
    bulk_address: q.Address = ""


@dataclass(frozen=True, slots=True)
class Ping:
    """Question whether the agent's event loop turns; Pong answers at once, with the same id."""

    ping_id: q.Key


@dataclass(frozen=True, slots=True)
class Halted:
    """Word that the controller acts on nothing, until the stream ends."""

    # Why, and what ends it.
    reason: q.Line


@dataclass(frozen=True, slots=True)
class RevokedNode:
    """A node of which no certificate counts that begins at a Unix time (s) or earlier."""

    node: q.HostName
    until_s: Annotated[int, Integer(0, q.NUMBER_MAX)]


@dataclass(frozen=True, slots=True)
class RevokedCertificates:
    """Certificates that count no more, in place of the list before."""

    # In hexadecimal digits.
    serials: Annotated[tuple[q.Word, ...], Items(10_000)] = ()
    nodes: Annotated[tuple[RevokedNode, ...], Items(10_000)] = ()


@dataclass(frozen=True, slots=True)
class TimeRequest:
    """Question for a node's clocks; TimeReply answers at once, and echoes when it was sent.

    It comes every ten seconds and carries the fleet's word on failed prolog scripts: why the node
    may not leave by one, "" while it may.
    """

    sent_ns: q.TimelineNs
    budget_exceeded: q.Line = ""
