"""Cuts around the controller, one for each seed: what is lost, stopped and made again by them."""

import random
from dataclasses import dataclass, field
from functools import partial

from everstep_controller.core import events
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.model.node import NodeState
from everstep_sim.cluster import Shape, SimulatedCluster
from everstep_sim.faults import Faults
from everstep_sim.timeline import SECOND

# When the first cut begins, for how long it lasts, and how long the cluster has to settle after
# the last one.
_BEGINS_S = (4.0, 30.0)
_LASTS_S = (8.0, 90.0)
_SETTLES_S = 90.0
# A cut that flaps, and the pause between two cuts.
_FLAP_S = (2.0, 9.0)
_PAUSE_S = (1.0, 40.0)
# How much later a node may be heard again than the first one behind the cut.
_HEALS_S = (0.0, 4.0)
_STEPS = 100_000
# How old the evidence of a verdict may be.
_VERDICT_S = 6
# No verdict rests on what was heard before more than half of the fleet was, and so soon after that:
# a round of probes and a roll call take as long.
_REGAINED_S = 1.5
_STEPPING = (JobState.RUNNING, JobState.STALLED)
KINDS = (
    *("one", "flapping", "heals partly", "heals slowly"),
    *("two", "restart", "dead behind", "fabric"),
)


@dataclass(slots=True)
class CutOutcome:
    """Outcome of the cuts of one seed."""

    seed: int
    kind: str
    nodes: int
    # How many nodes the controller heard at the least.
    heard: int
    # Nodes that were lost behind a cut while more than half was heard, and when the last of them
    # was after its cut began; and those that were lost all the same, and lived.
    lost: set[str] = field(default_factory=set)
    lost_after_s: float = 0.0
    wrongly_lost: set[str] = field(default_factory=set)
    # Jobs that were stopped without any node of theirs lost, and how many steps they made twice.
    stopped: set[str] = field(default_factory=set)
    made_again: int = 0
    # People were told that the controller may be cut off; and what was not over at the end.
    told: bool = False
    left: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Whether nothing was lost or stopped that should not be, and all is well at the end."""
        return not (self.wrongly_lost or self.stopped or self.made_again or self.left)


@dataclass(slots=True)
class _Cut:
    """One cut: the nodes behind it, and from when to when."""

    behind: frozenset[str]
    begins_s: float
    lasts_s: float
    fabric: bool = False


class _Play:
    """One simulated cluster with its cuts, and what is seen of it after each event."""

    def __init__(self, seed: int, *, few: bool) -> None:
        self.rng = random.Random(f"cut/{seed}/{few}")
        self.few, self.kind = few, KINDS[seed % len(KINDS)]
        shape = _shape(self.rng)
        self.cluster = SimulatedCluster(seed, shape, self._look)
        self.faults = Faults(self.cluster)
        self.cuts = self._cuts()
        self.ends_s = max(cut.begins_s + cut.lasts_s for cut in self.cuts)
        heard = min(shape.nodes - len(self._behind_at(cut.begins_s + 0.001)) for cut in self.cuts)
        self.outcome = CutOutcome(seed, self.kind, shape.nodes, heard)
        self._dead: set[str] = set()
        self._lost: set[str] = set()

    def run(self) -> CutOutcome:
        """Play it, and return what came of it."""
        for cut in self.cuts:
            self.cluster.time.after(cut.begins_s, partial(self._cut, cut))
        first = self.cuts[0]
        middle_s = first.begins_s + self.rng.uniform(0.1, 0.9) * first.lasts_s
        if self.kind == "restart":
            away_s = self.rng.uniform(1, 30)
            self.cluster.time.after(middle_s, partial(self.cluster.restart_controller, away_s))
        if self.kind == "dead behind":
            self.cluster.time.after(middle_s, self._kill)
        self.cluster.run(self.ends_s + _SETTLES_S)
        self._judge_end()
        return self.outcome

    # --- the cuts --------------------------------------------------------------------------------

    def _cuts(self) -> list[_Cut]:
        behind, rng = self._behind(), self.rng
        first = _Cut(behind, rng.uniform(*_BEGINS_S), rng.uniform(*_LASTS_S))
        first.fabric = self.kind == "fabric"
        if self.kind == "flapping":
            return self._flaps(first)
        if self.kind == "heals partly":
            some = frozenset(rng.sample(sorted(behind), rng.randrange(1, len(behind) + 1)))
            return [first, _Cut(some, first.begins_s, first.lasts_s + rng.uniform(5, 90))]
        if self.kind == "heals slowly":
            lasts_s = {name: first.lasts_s + rng.uniform(*_HEALS_S) for name in sorted(behind)}
            return [_Cut(frozenset({n}), first.begins_s, s) for n, s in lasts_s.items()]
        if self.kind == "two":
            begins_s = first.begins_s + first.lasts_s * rng.uniform(0.2, 1.5)
            return [first, _Cut(self._behind(), begins_s, rng.uniform(*_LASTS_S))]
        return [first]

    def _flaps(self, first: _Cut) -> list[_Cut]:
        found, at_s = [], first.begins_s
        while at_s < first.begins_s + first.lasts_s:
            lasts_s = self.rng.uniform(*_FLAP_S)
            found.append(_Cut(first.behind, at_s, lasts_s))
            at_s += lasts_s + self.rng.uniform(*_PAUSE_S)
        return found

    def _behind(self) -> frozenset[str]:
        """Return who is cut off: at least half of the fleet or fewer; whole domains, or any."""
        names, shape = self.faults.names, self.cluster.shape
        own = shape.controller_on
        others = [name for name in names if name != own]
        half = -(-shape.nodes // 2)
        domains = sorted({self.faults.domain_of(name) for name in others})
        if shape.domains and self.rng.random() < 0.7:
            kept = self.faults.domain_of(own) if own else ""
            able = [domain for domain in domains if domain != kept]
            self.rng.shuffle(able)
            found: set[str] = set()
            for domain in able:
                more = {name for name in others if self.faults.domain_of(name) == domain}
                if self.few and len(found) >= half and self.rng.random() < 0.5:
                    break
                if not self.few and len(found | more) >= half:
                    break
                found |= more
            if found and (len(found) >= half) == self.few:
                return frozenset(found)
        span = (half, len(others)) if self.few else (1, half - 1)
        return frozenset(self.rng.sample(others, self.rng.randint(*span)))

    def _cut(self, cut: _Cut) -> None:
        self.faults.cut_controller_from(cut.behind, cut.lasts_s, fabric=cut.fabric)

    def _kill(self) -> None:
        """Cut the power of a node behind the cut."""
        name = self.rng.choice(sorted(self.cuts[0].behind))
        self._dead.add(name)
        self.faults.lose_power([name])

    def _behind_at(self, at_s: float) -> set[str]:
        cuts = [one for one in self.cuts if one.begins_s <= at_s <= one.begins_s + one.lasts_s]
        return {name for cut in cuts for name in cut.behind}

    def _heard_most(self, now_s: float) -> bool:
        """Return whether more than half was heard at a time on which a verdict may rest."""
        behind = [
            len(self._behind_at(now_s - ago_s / 2) | self._dead) for ago_s in range(2 * _VERDICT_S)
        ]
        most = [
            2 * (self.cluster.shape.nodes - count) > self.cluster.shape.nodes for count in behind
        ]
        return all(most[: round(2 * _REGAINED_S)]) if most[0] else any(most)

    # --- what is seen ----------------------------------------------------------------------------

    def _look(self, cluster: SimulatedCluster, event: events.Event) -> None:
        del event
        state, now_s = cluster.controller.core.state, cluster.time.now_ns / SECOND
        self.outcome.told = self.outcome.told or bool(state.index.held)
        lost = {name for name, node in state.nodes.items() if node.state is NodeState.LOST}
        for name in lost - self._lost:
            if name in self._behind_at(now_s) and self._heard_most(now_s):
                self.outcome.lost.add(name)
                begun_s = max(cut.begins_s for cut in self.cuts if name in cut.behind)
                self.outcome.lost_after_s = max(self.outcome.lost_after_s, now_s - begun_s)
            elif name not in self._dead:
                self.outcome.wrongly_lost.add(name)
        self._lost = lost
        for job in cluster.jobs:
            if job.generation.number > 1 and self._could_go_on(job):
                self.outcome.stopped.add(job.name)

    def _could_go_on(self, job: JobRecord) -> bool:
        """Return whether no rank of a job's first plan was broken here, nor its node lost."""
        ranks = self.cluster.ranks_of[job.name].generations.get(1)
        members = frozenset(ranks.members) if ranks is not None else frozenset()
        across = any(
            cut.fabric and members & cut.behind and members - cut.behind for cut in self.cuts
        )
        return not across and not members & (self._dead | self.outcome.lost)

    def _judge_end(self) -> None:
        state = self.cluster.controller.core.state
        if state.index.held or "cut off" in state.findings:
            self.outcome.left.append("the controller doubts itself")
        for name, node in state.nodes.items():
            if name in self._dead:
                gone = node.state is NodeState.LOST
                self.outcome.left += [] if gone else [f"{name} is dead and {node.state.value}"]
            elif node.doubtful or not node.liveness.connected:
                self.outcome.left.append(
                    f"{name} is {node.liveness.silence.doubt or 'not connected'}"
                )
        for job in self.cluster.jobs:
            if self._could_go_on(job):
                again = self.cluster.ranks_of[job.name].completed.values()
                self.outcome.made_again += sum(len(made) - 1 for made in again)
            if job.state not in _STEPPING and self._can_step(job):
                self.outcome.left.append(f"{job.name} is {job.state.value}: {job.reason}")

    def _can_step(self, job: JobRecord) -> bool:
        """Return whether enough launchers of a job are on nodes that have power."""
        return len(job.launchers.keys() - self._dead) >= job.spec.nodes_min


def play(seed: int, *, few: bool) -> CutOutcome:
    """Return what comes of the cuts of a seed.

    With ``few`` they leave the controller at most half of the fleet, else more than that.
    """
    return _Play(seed, few=few).run()


def _shape(rng: random.Random) -> Shape:
    nodes, jobs = rng.randint(8, 24), rng.randint(2, 3)
    members = rng.randint(2, max(2, nodes // jobs - 1))
    return Shape(
        nodes=nodes,
        nodes_min=rng.randint(1, members),
        nodes_max=members,
        steps=_STEPS,
        domains=rng.choice([0, 0, 3, 4, 6, 8]),
        jobs=jobs,
        controller_on=rng.choice(["", "n0"]),
    )
