"""Failures that are foretold, in virtual time: the node is left before, and no step is lost.

Agents find links; GPUs are judged by the real judge over a seeded fleet. What it is told comes once
a second of virtual time in place of every five, and is lost with the controller.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import pytest

from everstep_common.reports.gpu_columns import HeldBy
from everstep_controller.core import events
from everstep_controller.core.model.node import AUTOMATION
from everstep_controller.journal.codec import encode
from everstep_controller.watches.judge_runner import open_verdicts, works_of
from everstep_sim.cluster import Shape, SimulatedCluster
from everstep_sim.controller import fold
from everstep_sim.fleet import JOB
from simulation.invariants import Invariants
from simulation.seeds import seeds
from unit.judging.virtual_gpus import Fault, SlotOfGpus, VirtualGpus, low_clock

_SHAPE = Shape(nodes=7, nodes_min=5, nodes_max=5, steps=250, enforced=("NodePrecursor",))


class GpuWatch:
    """The judge of GPUs over the nodes of a cluster; it forgets its samples with the controller."""

    def __init__(self, cluster: SimulatedCluster, seed: int) -> None:
        self._cluster = cluster
        self._names = tuple(cluster.fleet.nodes)
        self.gpus = VirtualGpus(len(self._names), seed, capped=0.2)
        self.gpus.names = self._names
        self._term = 0
        self._since: dict[tuple[str, int], int] = {}
        cluster.time.after(1.0, self._tick)

    def _tick(self) -> None:
        controller = self._cluster.controller
        if controller.listens and not controller.core.state.halted:
            self._judge()
        self._cluster.time.after(1.0, self._tick)

    def _judge(self) -> None:
        state = self._cluster.controller.core.state
        if state.term != self._term:
            self._term = state.term
            self.gpus.restart()
        works, nodes = works_of(state, self._since, int(self.gpus.now_s * 1e9)), state.nodes
        self.gpus.works = [works.get(name) for name in self._names]
        self.gpus.domains = [
            nodes[name].spec.domain if name in nodes else "" for name in self._names
        ]
        self.gpus.pass_slots()
        self.gpus.verdicts = {
            node: {one.finding.key: one for one in held}
            for node, held in open_verdicts(state).items()
        }
        for changed in self.gpus.judge():
            self._cluster.fleet.submit(changed)


@dataclass
class _Story:
    """Plays what is foretold of a node of the first job, and notes who was claimed."""

    seed: int
    shape: Shape = _SHAPE
    then: Callable[[SimulatedCluster, "_Story"], None] = lambda *_: None
    node: str = ""
    watch: GpuWatch | None = None
    claimed: set[str] = field(default_factory=set)
    plans: set[str] = field(default_factory=set)
    members: dict[str, list[str]] = field(default_factory=dict)

    def play(self, until_s: float = 3000) -> SimulatedCluster:
        invariants = Invariants()

        def check(cluster: SimulatedCluster, event: events.Event) -> None:
            invariants(cluster, event)
            for node in cluster.controller.core.state.nodes.values():
                self.plans.add(node.swap.plan)
                if any(claim.owner == AUTOMATION for claim in node.isolation.claims):
                    self.claimed.add(node.name)
            for job in cluster.controller.core.state.jobs.values():
                members = list(job.generation.members)
                self.members[job.name] = members or self.members.get(job.name, [])

        cluster = SimulatedCluster(self.seed, self.shape, check)
        self.watch = GpuWatch(cluster, self.seed)
        cluster.time.after(15, partial(self._begin, cluster))
        cluster.run(until_s)
        return cluster

    def _begin(self, cluster: SimulatedCluster) -> None:
        assert cluster.job is not None
        alone = [f"n{place}" for place in range(self.shape.nodes - self.shape.shared)]
        self.node = next(one for one in cluster.job.generation.members[1:] if one in alone)
        self.then(cluster, self)

    def place(self) -> int:
        """Return which node of the fleet it is."""
        return int(self.node.removeprefix("n"))

    def add_fault(self, fault: Fault) -> None:
        """Let GPUs be as a fault makes them from now on."""
        assert self.watch is not None
        self.watch.gpus.faults.append(fault)


def _low_clocks(_: SimulatedCluster, story: _Story) -> None:
    story.add_fault(low_clock(story.place(), 3))


def _lone_link(cluster: SimulatedCluster, story: _Story) -> None:
    cluster.lone_link(story.node)


def _ended_well(cluster: SimulatedCluster) -> bool:
    known = {job.name: job for job in cluster.controller.core.state.jobs.values()}
    return all(
        name in cluster.over or (name in known and known[name].ending.succeeded)
        for name in cluster.shape.names
    )


def _repeated(cluster: SimulatedCluster) -> list[int]:
    """Return the steps that were made more than once."""
    made = [ranks.completed for ranks in cluster.ranks_of.values()]
    return [step for one in made for step, by in one.items() if len(by) > 1]


@pytest.mark.parametrize("seed", seeds(2, 40))
@pytest.mark.parametrize("then", [_low_clocks, _lone_link])
def test_a_node_whose_failure_is_foretold_is_left_and_no_step_is_lost(
    seed: int, then: Callable[[SimulatedCluster, _Story], None]
) -> None:
    story = _Story(seed, then=then)
    cluster = story.play()
    assert _ended_well(cluster)
    assert story.claimed == {story.node}
    assert story.node not in story.members[JOB]
    assert _repeated(cluster) == []


@pytest.mark.parametrize("seed", seeds(2, 20))
def test_as_shipped_it_is_told_with_the_command_and_nothing_is_done(seed: int) -> None:
    story = _Story(seed, shape=replace(_SHAPE, enforced=()), then=_low_clocks)
    assert _ended_well(story.play())
    assert any(f"everstep drain {story.node} --reason" in plan for plan in story.plans)
    assert not story.claimed
    assert story.node in story.members[JOB]


@pytest.mark.parametrize("seed", seeds(2, 40))
def test_in_a_healthy_fleet_nobody_is_claimed(seed: int) -> None:
    story = _Story(seed)
    cluster = story.play()
    assert _ended_well(cluster)
    assert not story.claimed
    assert _repeated(cluster) == []


@pytest.mark.parametrize("seed", seeds(2, 40))
def test_with_a_controller_that_goes_and_comes_the_node_is_left_once(seed: int) -> None:
    rng = random.Random(seed)

    def disturb(cluster: SimulatedCluster, story: _Story) -> None:
        _low_clocks(cluster, story)
        for _ in range(2):
            at_s, away_s = rng.uniform(5, 60), rng.uniform(0.5, 10)
            cluster.time.after(at_s, partial(cluster.restart_controller, away_s))

    story = _Story(seed, shape=replace(_SHAPE, steps=500), then=disturb)
    cluster = story.play()
    assert _ended_well(cluster)
    assert story.claimed == {story.node}
    assert story.node not in story.members[JOB]
    again = fold(cluster.controller.journal)
    assert encode(again.state) == encode(cluster.controller.core.state)


@pytest.mark.parametrize("seed", seeds(2, 20))
def test_what_is_over_gives_the_node_back(seed: int) -> None:
    def pass_by(cluster: SimulatedCluster, story: _Story) -> None:
        _lone_link(cluster, story)
        cluster.time.after(90, partial(cluster.link_well, story.node))

    story = _Story(seed, then=pass_by)
    cluster = story.play()
    assert story.claimed == {story.node}
    assert not cluster.controller.core.state.nodes[story.node].isolation.claims


@pytest.mark.parametrize("seed", seeds(2, 20))
@pytest.mark.parametrize("period_s", [3, 30])
def test_one_that_comes_and_goes_costs_few_swaps_and_no_step(seed: int, period_s: float) -> None:
    """It would spend the budget by which automation may take sick nodes away."""
    rng = random.Random(seed)
    begun: list[str] = []

    def flap(cluster: SimulatedCluster, story: _Story) -> None:
        for turn in range(40):
            at_s = turn * period_s
            cluster.time.after(at_s, partial(_lone_link, cluster, story))
            well_s = at_s + rng.uniform(0.2, 0.9) * period_s
            cluster.time.after(well_s, partial(cluster.link_well, story.node))

    def note(cluster: SimulatedCluster, story: _Story) -> None:
        node = cluster.controller.core.state.nodes[story.node]
        drained = any(claim.owner == AUTOMATION for claim in node.isolation.claims)
        if drained != bool(begun and begun[-1]):
            begun.append(story.node if drained else "")
        cluster.time.after(0.1, partial(note, cluster, story))

    def both(cluster: SimulatedCluster, story: _Story) -> None:
        flap(cluster, story)
        note(cluster, story)

    story = _Story(seed, shape=replace(_SHAPE, steps=400), then=both)
    cluster = story.play()
    assert _ended_well(cluster)
    assert _repeated(cluster) == []
    assert story.claimed == {story.node}
    assert len([name for name in begun if name]) == 1


@pytest.mark.parametrize("seed", seeds(3, 40))
def test_a_hostile_job_has_no_node_of_another_found_or_moved(seed: int) -> None:
    """It idles its GPUs and draws power in patterns of its own, on its nodes and on shared ones."""
    rng = random.Random(seed)

    def play(cluster: SimulatedCluster, story: _Story) -> None:
        def pattern(slot: SlotOfGpus) -> None:
            for place, work in enumerate(story.watch.gpus.works if story.watch else ()):
                if work is not None and work.name.startswith(JOB):
                    idle = rng.random() < 0.4
                    slot.busy[place] = rng.randrange(5) if idle else 5
                    slot.clock[place] = 210 if idle else rng.choice([600, 1200, 1980])
                    full = 0 if slot.clock[place][0] == 1980 else int(HeldBy.POWER_CAP)
                    slot.held[place] = int(HeldBy.IDLE) if idle else full

        story.add_fault(pattern)

    shape = replace(_SHAPE, nodes=14, jobs=2, shared=2)
    story = _Story(seed, shape=shape, then=play)
    cluster = story.play()
    assert _ended_well(cluster)
    assert not story.claimed
    assert _repeated(cluster) == []
