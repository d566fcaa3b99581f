"""A fleet's links in virtual time before their judge: rails of eight ports, leaves and noise.

Rail-optimised: port i of all nodes of a unit goes to one leaf, so a leaf that flaps is seen by one
port of each node. Racks, which are the failure domains, are smaller than units and cut across them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from everstep_common.judging.findings import FindingKey
from everstep_common.reports.link_columns import LinkRow, pack_links
from everstep_controller.core.events import VerdictChanged
from everstep_controller.judging.evaluator import Evaluator, Verdict
from everstep_controller.judging.link_errors import LinkErrors
from everstep_controller.judging.link_peers import LinkPeersJudge
from everstep_controller.judging.view import FleetView
from everstep_controller.telemetry.samples import SampleRing

RECOVERY, LOSS, SYMBOL = range(3)
_DAY = 24 * 60
# Each minute the judge looks so often: every five seconds.
LOOKS = 12
# So few values count for one.
_UNKNOWN = 0b111


@dataclass
class VirtualLinks:
    """Nodes with eight ports each; ``domains`` are by node."""

    nodes: int
    seed: int = 1
    ports: int = 8
    domains: Sequence[str] = ()
    unit: int = 32
    minute: int = _DAY
    # By node, port and counter: the minutes with errors.
    errors: dict[tuple[int, int, int], list[int]] = field(default_factory=dict)
    # Since when each agent watches; nodes that tell nothing now; ports whose counters are full.
    watched_from: dict[int, int] = field(default_factory=dict)
    silent: set[int] = field(default_factory=set)
    blind: set[tuple[int, int]] = field(default_factory=set)
    verdicts: dict[str, dict[FindingKey, Verdict]] = field(default_factory=dict)
    told: list[VerdictChanged] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.names = tuple(f"n{number}" for number in range(self.nodes))
        self.domains = self.domains or [f"r{number // 8}" for number in range(self.nodes)]
        self.rng = np.random.default_rng(self.seed)
        self.evaluator = Evaluator((LinkPeersJudge(),))
        # What a node told last, some seconds after others: each has a phase of its own.
        self.phases = self.rng.integers(0, LOOKS, self.nodes)
        self.known = LinkErrors()

    def fail(self, node: int, port: int, counter: int = RECOVERY) -> None:
        """Let a counter of a port grow in this minute."""
        minutes = self.errors.setdefault((node, port, counter), [])
        if not minutes or minutes[-1] != self.minute:
            minutes.append(self.minute)

    def flap_leaf(self, unit: int, port: int) -> None:
        """Let a leaf's links go and come: all of one port in a unit."""
        for node in range(unit * self.unit, min((unit + 1) * self.unit, self.nodes)):
            for counter in (RECOVERY, LOSS):
                self.fail(node, port, counter)

    def restart_agents(self, nodes: Iterable[int]) -> None:
        """Let agents forget what they have watched."""
        for node in nodes:
            self.watched_from[node] = self.minute

    def pass_minutes(self, count: int = 1, looks: int = LOOKS) -> None:
        """Let time pass, with looks of the judge at what nodes have told."""
        for _ in range(count):
            for look in range(looks):
                for node in np.flatnonzero(self.phases % looks == look).tolist():
                    self._tell(node)
                self._judge()
            self.minute += 1

    def _tell(self, node: int) -> None:
        since = self.watched_from.get(node, 0)
        if node in self.silent:
            return
        rows = [self._row(node, port, since) for port in range(self.ports)]
        columns = pack_links(rows, min(self.minute - since, _DAY))
        assert columns is not None
        self.known.add(self.names[node], columns, self._now_ns())

    def _row(self, node: int, port: int, since: int) -> LinkRow:
        name = f"mlx5_{port}/1"
        if not any((node, port, counter) in self.errors for counter in range(3)):
            return LinkRow(name, blind=_UNKNOWN if (node, port) in self.blind else 0)
        counts, newest, oldest = [0] * 3, [0] * 3, [0] * 3
        for counter in range(3):
            all_of_it = self.errors.get((node, port, counter), [])
            kept = [one for one in all_of_it if one >= since and one > self.minute - _DAY]
            if kept:
                counts[counter] = len(kept)
                newest[counter] = 1 + self.minute - kept[-1]
                oldest[counter] = 1 + self.minute - kept[0]
        return LinkRow(
            name,
            (counts[0], counts[1], counts[2]),
            (newest[0], newest[1], newest[2]),
            (oldest[0], oldest[1], oldest[2]),
            _UNKNOWN if (node, port) in self.blind else 0,
        )

    def _now_ns(self) -> int:
        return self.minute * 60 * 10**9

    def _judge(self) -> None:
        nothing = np.zeros(self.nodes)
        view = FleetView(
            now_ns=self._now_ns(),
            nodes=self.names,
            clock_uncertainty_s=nothing,
            wall_offset_s=nothing,
            stream_age_s=nothing,
            sample_age_s=nothing,
            samples=SampleRing(2),
            domains=tuple(self.domains),
            links=self.known.of_nodes(self.names, self._now_ns()),
        )
        held = {node: tuple(known.values()) for node, known in self.verdicts.items() if known}
        for changed in self.evaluator.evaluate(view, LinkPeersJudge().judge(view), held):
            self.told.append(changed)
            known = self.verdicts.setdefault(changed.node, {})
            known.pop(changed.key, None)
            if changed.finding is not None:
                known[changed.key] = Verdict(changed.finding, self._now_ns())

    @property
    def open(self) -> set[str]:
        """Return the nodes of which something is found."""
        return {node for node, known in self.verdicts.items() if known}
