"""Judge of links beside their peers: the one port that counts errors while those like it do not.

A link that begins to fail retrains, loses its link or counts symbol errors for days before that
reaches a rate which anybody limits. One switch makes the same port of all its nodes do so: what
several ports have alike, or at the same time, is no node's own.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from everstep_common.judging.condition import HOUR_NS, Condition
from everstep_common.judging.fault import Fault
from everstep_common.judging.findings import Measurement, Mode, SuggestedAction
from everstep_common.reports.link_columns import COUNTERS
from everstep_controller.judging.judge import NodeEvidence, Ruling
from everstep_controller.judging.link_errors import Minutes, PortErrors
from everstep_controller.judging.view import FleetView, Mask

# In so many minutes of a day a port retrains, loses its link, or counts symbol errors that begins
# to fail. Of symbol errors a link of 400 Gb/s may have 35 a day (a bit error rate of 1e-15).
_SUSPECT = {"link_error_recovery": 3, "link_downed": 3, "symbol_error": 60}
_LIMITS = np.array([_SUSPECT[name] for name in COUNTERS], dtype=np.int32)
_WORDS = {
    "link_error_recovery": "has retrained",
    "link_downed": "has lost its link",
    "symbol_error": "has counted symbol errors",
}
# With fewer peers nobody can say that it is the link; as for all comparisons of nodes.
_PEERS_MIN = 3
# A peer that has a third of it has the same.
_ALIKE = 3
# So many others with errors in the same minutes, wherever they are, have one cause with it.
_TOGETHER, _TOGETHER_MIN = 2, 2
# Where so many of all ports of one name stand out, it is not they.
_CROWD_MIN, _CROWD = 2, 0.03

LINKS = Condition(
    name="IbErrorsUnlikePeers",
    component="links",
    meaning=f"a port for RDMA has retrained or lost its link in {_LIMITS[0]} minutes of the last "
    f"24 h, or counted symbol errors in {_LIMITS[2]} of them, and no port of its name has a third "
    "of that on the other nodes of its failure domain (of all nodes with such ports, where it has "
    f"fewer than {_PEERS_MIN} of them), nor on {_TOGETHER} of all nodes within the same "
    f"{_TOGETHER_MIN} minutes",
    source="ours: any growth is worth to be known, three in a day are a suspicion; what a bit "
    "error rate of 1e-15 allows, which NVIDIA's bring-up guide calls normal, is none",
    clears_when="it has in one minute at most, or in less than half of these for symbol errors; or "
    "others have the same",
    raise_after=12,
    clear_after=12,
    window_ns=24 * HOUR_NS,
    mode=Mode.ADVISE,
)
_FAULT = Fault(
    message="a link counts errors again and again, and no link like it does: its cable or "
    "transceiver may begin to fail",
    rule="minutes of a day with errors, beside the same port of other nodes",
    action=SuggestedAction.REPAIR_HARDWARE,
)


@dataclass(frozen=True, slots=True)
class _Peers:
    """Peers of a port: how many there are, and the most minutes that any of them has."""

    count: int = 0
    most: int = 0


# Others have the same.
_COMMON = _Peers()


@dataclass(frozen=True, slots=True)
class _Alone:
    """A port that stands out."""

    port: str
    counter: str
    minutes: int
    peers: _Peers

    def evidence(self, more: int) -> NodeEvidence:
        """Return the sentence, and the numbers; so many more ports or counters stand out."""
        most = f"at most {self.peers.most}" if self.peers.most else "0"
        sentence = (
            f"{self.port} {_WORDS[self.counter]} in {self.minutes} minutes of 24 h "
            f"({self.counter}), beside {most} on {self.peers.count} nodes like it"
        )
        numbers = (
            Measurement("minutes", float(self.minutes)),
            Measurement("peers_most_minutes", float(self.peers.most)),
            Measurement("peers", float(self.peers.count)),
        )
        others = f"; {more} more of its ports or counters" if more else ""
        return NodeEvidence(sentence + others, numbers)


@dataclass(frozen=True, slots=True)
class _Group:
    """Nodes with ports of the same names; arrays are of nodes, counters and ports."""

    nodes: Sequence[int]
    ports: tuple[str, ...]
    minutes: Minutes
    known: Mask
    newest: Minutes
    oldest: Minutes
    watched: Minutes
    # A number for each domain; -1 for none.
    domains: Minutes

    @classmethod
    def of(cls, view: FleetView, nodes: Sequence[int], told: Sequence[PortErrors]) -> "_Group":
        """Lay the words of these nodes side by side."""
        names = [view.domains[i] if view.domains else "" for i in nodes]
        numbers = {name: number for number, name in enumerate(sorted({*names} - {""}))}
        return cls(
            nodes=nodes,
            ports=told[0].ports,
            minutes=np.stack([one.minutes for one in told]),
            known=np.stack([one.known for one in told]),
            newest=np.stack([one.newest for one in told]),
            oldest=np.stack([one.oldest for one in told]),
            watched=np.array([one.watched for one in told], dtype=np.int32),
            domains=np.array([numbers.get(name, -1) for name in names], dtype=np.int32),
        )


@dataclass(frozen=True, slots=True)
class LinkPeersJudge:
    """Compares each port with those of its name on other nodes."""

    conditions: ClassVar[tuple[Condition, ...]] = (LINKS,)

    def judge(self, view: FleetView) -> Iterator[Ruling]:
        """See Judge."""
        groups: dict[tuple[str, ...], list[int]] = {}
        for i, one in enumerate(view.links):
            if one is not None:
                groups.setdefault(one.ports, []).append(i)
        faulty = np.zeros(len(view.nodes), dtype=np.bool_)
        healthy = np.zeros(len(view.nodes), dtype=np.bool_)
        told: dict[int, list[_Alone]] = {}
        for nodes in groups.values():
            words = [one for i in nodes if (one := view.links[i]) is not None]
            group = _Group.of(view, nodes, words)
            alone, calm = _judge_group(group, told)
            faulty[nodes], healthy[nodes] = alone, calm
        yield Ruling(
            condition=LINKS,
            fault=_FAULT,
            faulty=faulty,
            healthy=healthy,
            explain=lambda node: _explained(told, node),
        )


def _explained(told: Mapping[int, Sequence[_Alone]], node: int) -> NodeEvidence:
    known = sorted(told.get(node, ()), key=lambda one: -one.minutes)
    if not known:
        return NodeEvidence("its links count no more errors than those like them", ())
    return known[0].evidence(len(known) - 1)


def _judge_group(group: _Group, told: dict[int, list[_Alone]]) -> tuple[Mask, Mask]:
    """Return which nodes have a port that is alone with its errors, and which have none."""
    many = group.known & (group.minutes >= _LIMITS[None, :, None])
    some = group.known & (2 * group.minutes > _LIMITS[None, :, None])
    alone = np.zeros(len(group.nodes), dtype=np.bool_)
    for counter, port in np.argwhere(many.any(axis=0)).tolist():
        which = np.flatnonzero(many[:, counter, port])
        crowd = len(which) > max(_CROWD_MIN, _CROWD * len(group.nodes))
        for i in which.tolist():
            peers = _COMMON if crowd else _peers_of(group, i, counter, port)
            if peers is None:
                continue  # too few to tell
            # What others have as well is none of the node's own.
            some[i, counter, port] = peers.count > 0
            if peers.count:
                alone[i] = True
                minutes = int(group.minutes[i, counter, port])
                found = _Alone(group.ports[port], COUNTERS[counter], minutes, peers)
                told.setdefault(group.nodes[i], []).append(found)
    calm = group.known.all(axis=(1, 2)) & ~some.any(axis=(1, 2)) & ~alone
    return alone, calm


def _peers_of(group: _Group, i: int, counter: int, port: int) -> _Peers | None:
    """Return the peers of a port, none of which has what it has; None for too few.

    Only those count that were watched when it had its first.
    """
    minutes = group.minutes[:, counter, port]
    others = group.known[:, counter, port] & (group.watched >= group.oldest[i, counter, port])
    others[i] = False
    near = others & (group.domains == group.domains[i]) & (group.domains >= 0)
    peers = near if np.count_nonzero(near) >= _PEERS_MIN else others
    if np.count_nonzero(peers) < _PEERS_MIN:
        return None
    # A port with errors counts, however short it was watched.
    alike = (minutes > 0) & (_ALIKE * minutes >= minutes[i])
    alike[i] = False
    newest = group.newest[:, counter, port]
    together = alike & (np.abs(newest - newest[i]) <= _TOGETHER_MIN)
    if (alike & peers).any() or np.count_nonzero(together) >= _TOGETHER:
        return _COMMON
    return _Peers(int(np.count_nonzero(peers)), int(np.max(minutes[peers])))
