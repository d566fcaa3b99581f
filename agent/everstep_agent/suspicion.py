"""Peer suspicion: when a peer that answers no probes counts as silent; no I/O and no clock."""

from collections.abc import Iterable
from dataclasses import dataclass

from everstep_common.reports import PeerReport

# One probe a second and three misses: with the controller's confirmation a node is lost within 5 s.
MISSES = 3
# A tick is late that comes after more than so many halves of the interval.
_LATE_HALVES = 3


@dataclass(slots=True)
class _Watched:
    heard_ns: int
    misses: int = 0
    answered: bool = True
    silent: bool = False


class Suspicion:
    """Counts of unanswered probes by peer. A peer begins as heard."""

    def __init__(self, interval_ns: int) -> None:
        self._interval_ns = interval_ns
        self._peers: dict[str, _Watched] = {}
        self._last_tick_ns: int | None = None

    def watch(self, peers: Iterable[str], now_ns: int) -> None:
        """Watch exactly these peers; what is known of those that stay is kept."""
        self._peers = {peer: self._peers.get(peer) or _Watched(now_ns) for peer in peers}

    def tick(self, now_ns: int) -> list[PeerReport]:
        """Count the peers that have not answered since the last tick.

        A tick that comes late was late because this node stood still, not because its peers did:
        answers may have come and gone meanwhile, so that round is void.
        """
        late = (
            self._last_tick_ns is not None
            and 2 * (now_ns - self._last_tick_ns) > _LATE_HALVES * self._interval_ns
        )
        self._last_tick_ns = now_ns
        changes = []
        for name, peer in self._peers.items():
            if not peer.answered and not late:
                peer.misses += 1
                if peer.misses >= MISSES and not peer.silent:
                    peer.silent = True
                    changes.append(PeerReport(name, True, now_ns - peer.heard_ns))
            peer.answered = False
        return changes

    def heard(self, name: str, now_ns: int) -> list[PeerReport]:
        """Enter an answer."""
        peer = self._peers.get(name)
        if peer is None:
            return []
        silent_for_ns, was_silent = now_ns - peer.heard_ns, peer.silent
        peer.heard_ns, peer.misses, peer.answered, peer.silent = now_ns, 0, True, False
        return [PeerReport(name, False, silent_for_ns)] if was_silent else []

    def hears_nobody(self) -> bool:
        """Return whether no peer is heard: as a rule it is this node then that is cut off."""
        return bool(self._peers) and all(peer.silent for peer in self._peers.values())

    def silent(self, now_ns: int) -> list[PeerReport]:
        """Return the peers that are silent now."""
        return [
            PeerReport(name, True, now_ns - peer.heard_ns)
            for name, peer in self._peers.items()
            if peer.silent
        ]
