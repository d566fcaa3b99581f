"""Old evidence in virtual time: what is replayed after a controller was away isolates no node.

NVSentinel #1280: a cold start replayed stale events, and rebooted nodes for faults that were over.
"""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pytest

from everstep_controller.core import actions, events
from everstep_controller.core.model.node import AUTOMATION, NodeState
from everstep_sim.cluster import SHIPPED, Shape, SimulatedCluster
from everstep_sim.faults import Faults
from simulation.seeds import seeds

# More than core.evidence_max_age_s, 600 s, after the last of it.
_AWAY_S = 1500.0
_SHAPE = Shape(nodes=8, nodes_min=3, nodes_max=4, steps=60, domains=4)


class _Watch:
    """Which nodes automation has claimed at any moment, and what people were told."""

    def __init__(self) -> None:
        self.claimed: set[str] = set()
        self.suspected: set[str] = set()
        self.lines: list[str] = []
        # How often each node's agent was asked for a new Hello.
        self.renewed = Counter[str]()

    def follow(self, cluster: SimulatedCluster) -> None:
        """Keep what people are told from now on."""
        before = cluster.controller.followed

        def followed(event: events.Event, done: Sequence[actions.Action]) -> None:
            self.lines += [one.message for one in done if isinstance(one, actions.Announce)]
            self.renewed.update(one.node for one in done if isinstance(one, actions.RenewStream))
            before(event, done)

        cluster.controller.followed = followed

    def __call__(self, cluster: SimulatedCluster, event: events.Event) -> None:
        """Look at the state after an event."""
        del event
        for node in cluster.controller.core.state.nodes.values():
            claim = node.claim_of(AUTOMATION)
            if claim is not None and not claim.dead:
                self.claimed.add(node.name)
            if node.state in (NodeState.SUSPECT, NodeState.REPAIRING):
                self.suspected.add(node.name)


def _play(
    seed: int, away_s: float, until_s: float, shape: Shape = _SHAPE
) -> tuple[SimulatedCluster, _Watch]:
    """Have two nodes find a fault that is soon over, and one a fault that stays; nobody listens."""
    watch, rng = _Watch(), random.Random(seed)
    cluster = SimulatedCluster(seed, shape, watch)
    watch.follow(cluster)
    cluster.time.after(40, partial(cluster.restart_controller, away_s))
    for name in ("n0", "n5"):
        at_s = rng.uniform(45, 200)
        cluster.time.after(at_s, partial(cluster.fatal_finding, name))
        cluster.time.after(at_s + rng.uniform(0.1, 100), partial(cluster.finding_over, name))
    cluster.time.after(rng.uniform(45, 300), partial(cluster.fatal_finding, "n6"))
    cluster.run(1)
    cluster.time.run(until_s, lambda: False)
    return cluster, watch


@pytest.mark.parametrize("seed", seeds(2, 30))
def test_faults_that_were_over_before_a_controller_came_back_isolate_nobody(seed: int) -> None:
    cluster, watch = _play(seed, away_s=_AWAY_S, until_s=_AWAY_S + 150)
    assert watch.claimed == {"n6"}, "its agent says when it connects that it is open"
    assert watch.suspected <= {"n6"}
    nodes = cluster.controller.core.state.nodes
    assert not nodes["n0"].health.findings
    assert not nodes["n5"].health.findings
    late = [line for line in watch.lines if "old: no action" in line]
    assert {line.split(" on ")[1].split(":")[0] for line in late} == {"n0", "n5"}, late


def test_where_evidence_may_be_of_any_age_the_same_faults_isolate_their_nodes() -> None:
    shape = replace(_SHAPE, settings=replace(SHIPPED, evidence_max_age_ns=0))
    _, watch = _play(0, _AWAY_S, _AWAY_S + 150, shape)
    assert watch.claimed >= {"n0", "n5"}


@pytest.mark.parametrize("seed", seeds(2, 30))
def test_a_fault_of_a_moment_ago_is_acted_on_after_a_short_absence(seed: int) -> None:
    _, watch = _play(seed, away_s=200, until_s=400)
    assert "n6" in watch.claimed


@pytest.mark.parametrize("seed", seeds(2, 12))
def test_a_node_that_was_cut_off_for_hours_is_judged_by_what_it_finds_when_it_is_back(
    seed: int,
) -> None:
    watch = _Watch()
    cluster = SimulatedCluster(seed, _SHAPE, watch)
    cluster.time.after(40, partial(cluster.fleet.kill_agent, "n7"))
    cluster.time.after(60, partial(cluster.fatal_finding, "n7"))
    cluster.time.after(90, partial(cluster.finding_over, "n7"))
    cluster.time.after(_AWAY_S, partial(cluster.return_node, "n7"))
    cluster.run(1)
    cluster.time.run(_AWAY_S + 100, lambda: False)
    assert "n7" not in watch.claimed
    assert cluster.controller.core.state.nodes["n7"].usable


def _play_late_stream(seed: int, over_s: float) -> tuple[SimulatedCluster, _Watch]:
    """Have a node find a fault, and its word come eleven minutes late on a stream that stays open.

    ``over_s``: when the fault is over, after it was found; beyond the end it stays.
    """
    watch, rng = _Watch(), random.Random(seed)
    cluster = SimulatedCluster(seed, _SHAPE, watch)
    watch.follow(cluster)
    faults, late_s = Faults(cluster), 660.0 + rng.uniform(0, 60)
    cluster.time.after(40, partial(faults.delay_message, "n5", late_s))
    at_s = 40 + rng.uniform(0.5, 20)
    cluster.time.after(at_s, partial(cluster.fatal_finding, "n5"))
    cluster.time.after(at_s + over_s, partial(cluster.finding_over, "n5"))
    cluster.run(1)
    cluster.time.run(40 + late_s + 120, lambda: False)
    return cluster, watch


@pytest.mark.parametrize("seed", seeds(2, 30))
def test_what_comes_late_on_an_open_stream_is_asked_for_anew_and_acted_on(seed: int) -> None:
    cluster, watch = _play_late_stream(seed, over_s=10_000)
    assert any("n5" in line and "old: no action" in line for line in watch.lines)
    assert "n5" in watch.claimed, "its agent has said in a new Hello that it is open"
    assert watch.renewed == {"n5": 1}
    assert cluster.fleet.nodes["n5"].connected


@pytest.mark.parametrize("seed", seeds(2, 30))
def test_what_came_late_on_an_open_stream_and_is_over_isolates_nobody(seed: int) -> None:
    cluster, watch = _play_late_stream(seed, over_s=100)
    assert watch.claimed == set()
    assert not cluster.controller.core.state.nodes["n5"].health.findings
    assert sum(watch.renewed.values()) <= 1
