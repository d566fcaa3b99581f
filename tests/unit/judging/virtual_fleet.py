"""A fleet in virtual time before the judges: clocks and sample streams with seeded noise."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from everstep_common.judging.findings import FindingKey
from everstep_controller.core.events import VerdictChanged
from everstep_controller.judging.evaluator import Evaluator, Verdict
from everstep_controller.judging.judge import Judge
from everstep_controller.judging.judges import JUDGES
from everstep_controller.judging.view import FleetView
from everstep_controller.telemetry.samples import SampleRing

LOOK_S = 5.0
BATCH_S = 5.0
S = 1_000_000_000


@dataclass
class VirtualNode:
    """One node: how its clock differs, how well that is known, and when its samples come."""

    name: str
    phase_s: float
    wall_offset_s: float
    uncertainty_s: float
    opened_s: float = 0.0
    # Nothing is sent from then on.
    mute_from_s: float = float("inf")
    # What is sent comes this much later.
    delay_s: float = 0.0
    heard: bool = True

    def sample_age_s(self, now_s: float) -> float:
        """Return how old the newest sample is that came on this stream; NaN for none."""
        sent_by_s = min(now_s - self.delay_s, self.mute_from_s)
        newest_s = sent_by_s - (sent_by_s - self.phase_s) % BATCH_S
        return now_s - newest_s if newest_s >= self.opened_s else float("nan")


@dataclass
class VirtualFleet:
    """Nodes, the judges, and what the core would keep of their verdicts."""

    size: int
    seed: int = 1
    judges: Sequence[Judge] = JUDGES
    now_s: float = 100.0
    nodes: dict[str, VirtualNode] = field(default_factory=dict)
    verdicts: dict[str, dict[FindingKey, Verdict]] = field(default_factory=dict)
    # Every change that was ever made.
    told: list[VerdictChanged] = field(default_factory=list)
    evaluator: Evaluator = field(init=False)

    def __post_init__(self) -> None:
        rng = random.Random(self.seed)
        for number in range(self.size):
            self.nodes[f"n{number}"] = VirtualNode(
                f"n{number}",
                phase_s=rng.uniform(0, BATCH_S),
                wall_offset_s=rng.gauss(7.0, 0.002),  # the controller's own clock is 7 s off
                uncertainty_s=rng.uniform(0.0002, 0.004),
            )
        self.restart()

    def restart(self) -> None:
        """Begin anew with what the core keeps, as after a restart of the controller."""
        self.evaluator = Evaluator(self.judges)

    def reconnect(self, *names: str) -> None:
        """Have the streams of some nodes opened anew."""
        for name in names or self.nodes:
            self.nodes[name].opened_s = self.now_s

    def view(self) -> FleetView:
        """Return what the shell would show."""
        heard = [node for node in self.nodes.values() if node.heard]
        return FleetView(
            now_ns=int(self.now_s * S),
            nodes=tuple(node.name for node in heard),
            clock_uncertainty_s=np.array([node.uncertainty_s for node in heard]),
            wall_offset_s=np.array([node.wall_offset_s for node in heard]),
            stream_age_s=np.array([self.now_s - node.opened_s for node in heard]),
            sample_age_s=np.array([node.sample_age_s(self.now_s) for node in heard]),
            samples=SampleRing(1),
        )

    def look(self, times: int = 1) -> list[VerdictChanged]:
        """Let so many looks pass; return what changed in them."""
        changed: list[VerdictChanged] = []
        for _ in range(times):
            self.now_s += LOOK_S
            view = self.view()
            rulings = [ruling for judge in self.judges for ruling in judge.judge(view)]
            held = {node: tuple(open_.values()) for node, open_ in self.verdicts.items()}
            changed += self.evaluator.evaluate(view, rulings, held)
            for one in changed:
                self._keep(one)
        self.told += changed
        return changed

    @property
    def open(self) -> set[tuple[str, str]]:
        """Return the nodes and conditions that are open."""
        return {(node, key.condition) for node, held in self.verdicts.items() for key in held}

    def _keep(self, changed: VerdictChanged) -> None:
        held = self.verdicts.setdefault(changed.node, {})
        if changed.finding is None:
            held.pop(changed.key, None)
        else:
            held[changed.key] = Verdict(changed.finding, int(self.now_s * S))
        if not held:
            del self.verdicts[changed.node]
