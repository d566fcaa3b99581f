"""What is wanted of liveness, figure by figure, in virtual time around the real core."""

from collections.abc import Callable
from functools import partial

import pytest

from everstep_controller.core import events
from everstep_controller.core.model.job import JobState
from everstep_controller.core.model.node import NodeState
from everstep_controller.core.nodes import outage
from everstep_sim.cluster import Shape, SimulatedCluster
from everstep_sim.faults import Faults
from everstep_sim.network import ANYBODY, CONTROLLER, Transport
from everstep_sim.timeline import SECOND

SMALL = Shape(nodes=6, nodes_min=3, nodes_max=4, steps=10_000, domains=3)
FAULT_S = 20.0


class Seen:
    """What became of the nodes and the job: losses with their times, generations, findings."""

    def __init__(self) -> None:
        self.lost_ns: dict[str, int] = {}
        self.doubted: set[str] = set()
        self.findings: dict[str, int] = {}
        self.open: set[str] = set()
        self.blamed: set[str] = set()
        self.generations = 0

    def __call__(self, cluster: SimulatedCluster, event: events.Event) -> None:
        del event
        self.open.clear()
        for node in cluster.controller.core.state.nodes.values():
            self.open |= {held.finding.condition for held in node.health.findings.values()}
            if node.state is NodeState.LOST:
                self.lost_ns.setdefault(node.name, cluster.time.now_ns)
            if node.doubtful:
                self.doubted.add(node.name)
            for held in node.health.findings.values():
                self.findings.setdefault(held.finding.condition, cluster.time.now_ns)
                self.blamed.add(node.name)
        if cluster.job is not None:
            self.generations = cluster.job.generation.number


def _play(
    break_it: Callable[[Faults], None], lasts_s: float = 60, shape: Shape = SMALL, seed: int = 1
) -> Seen:
    seen = Seen()
    cluster = SimulatedCluster(seed, shape, seen)
    cluster.time.after(FAULT_S, lambda: break_it(Faults(cluster)))
    cluster.run(FAULT_S + lasts_s)
    return seen


def _member(faults: Faults) -> str:
    job = faults.cluster.job
    assert job is not None
    return job.generation.members[1]


def _spare(faults: Faults) -> str:
    job = faults.cluster.job
    assert job is not None
    return next(name for name in faults.names if name not in job.generation.members)


@pytest.mark.parametrize("away_s", [1, 3, 6, 10])
@pytest.mark.parametrize("announced", [True, False])
def test_an_agent_that_restarts_costs_no_job_a_step(away_s: float, announced: bool) -> None:
    seen = _play(lambda f: f.restart_agent(_member(f), away_s, announced=announced), 30)
    assert seen.doubted
    assert (seen.lost_ns, seen.generations, seen.findings) == ({}, 1, {})


@pytest.mark.parametrize("answers", [True, False])
def test_a_node_whose_probes_are_blocked_one_way_is_a_finding_and_not_lost(answers: bool) -> None:
    seen = _play(lambda f: f.block_udp(_member(f), 50, answers=answers))
    assert (seen.lost_ns, seen.doubted, seen.generations) == ({}, set(), 1)
    assert set(seen.findings) == {"ProbesBlocked"}


def test_whoever_hears_nobody_is_told_of_and_not_those_whom_it_does_not_hear() -> None:
    broken: list[str] = []

    def deafen(faults: Faults) -> None:
        broken.append(_spare(faults))
        faults.cut((Transport.UDP,), ANYBODY, broken[0], 40)

    seen = _play(deafen)
    assert (seen.lost_ns, seen.blamed) == ({}, set(broken))


def test_probes_that_are_blocked_between_all_nodes_lose_nobody() -> None:
    seen = _play(lambda f: f.cut((Transport.UDP,), ANYBODY, ANYBODY, 50))
    assert (seen.lost_ns, seen.generations) == ({}, 1)
    assert set(seen.findings) == {"ProbesBlocked"}


def test_a_controller_whose_network_is_away_again_and_again_loses_nobody() -> None:
    def twice(faults: Faults) -> None:
        faults.cut_controller(90)
        faults.later(200, partial(faults.cut_controller, 90))

    seen = _play(twice, 400)
    assert (seen.lost_ns, seen.generations) == ({}, 1)


@pytest.mark.parametrize("away_s", [1, 40, 200])
def test_a_controller_that_was_away_loses_nobody(away_s: float) -> None:
    seen = _play(lambda f: f.cluster.restart_controller(away_s), away_s + 150)
    assert (seen.lost_ns, seen.doubted, seen.generations) == ({}, set(), 1)


def test_a_node_that_died_while_the_controller_was_away_is_lost_when_peers_say_so() -> None:
    lost: list[str] = []

    def break_it(faults: Faults) -> None:
        lost.append(_spare(faults))
        faults.cluster.restart_controller(20)
        faults.later(5, partial(faults.lose_power, lost))

    seen = _play(break_it, 60)
    assert set(seen.lost_ns) == set(lost)
    # The controller is back after 20 s, its agents within 5 s, and a silence lasts for 5 s.
    assert seen.lost_ns[lost[0]] <= (FAULT_S + 20 + 15) * SECOND


@pytest.mark.parametrize("for_s", [2, 8, 30])
def test_a_controller_that_stood_still_loses_nobody(for_s: float) -> None:
    seen = _play(lambda f: f.stall_controller(for_s))
    assert (seen.lost_ns, seen.generations) == ({}, 1)


def test_agents_that_pause_for_six_seconds_are_doubted_and_not_lost() -> None:
    def pause(faults: Faults) -> None:
        for name in faults.names[:5]:
            faults.pause_agent(name, 6)

    seen = _play(pause)
    assert seen.doubted
    assert (seen.lost_ns, seen.generations) == ({}, 1)


def test_a_hung_agent_is_a_finding_within_fifteen_seconds_and_its_ranks_go_on() -> None:
    for seed in range(8):
        # Its stream stays, or the keepalive of the transport ends it, before that or after.
        seen = _play(lambda f: f.pause_agent(_member(f), 50), seed=seed)
        assert (seen.lost_ns, seen.generations) == ({}, 1)
        assert set(seen.findings) == {"AgentHung"}
        assert seen.findings["AgentHung"] <= (FAULT_S + 15) * SECOND


def test_an_agent_that_hung_and_then_ended_is_found_to_be_gone() -> None:
    def break_it(faults: Faults) -> None:
        name = _member(faults)
        faults.pause_agent(name, 50)
        faults.later(25, faults.cluster.fleet.nodes[name].stop_agent)

    seen = _play(break_it, 50)
    assert (seen.lost_ns, seen.generations) == ({}, 1)
    assert FAULT_S * SECOND < seen.findings["AgentHung"] < seen.findings["AgentGone"]
    assert seen.open == {"AgentGone"}


def test_an_agent_that_does_not_come_back_is_a_finding_and_its_ranks_go_on() -> None:
    seen = _play(lambda f: f.restart_agent(_member(f), 50, announced=False))
    assert (seen.lost_ns, seen.generations) == ({}, 1)
    assert set(seen.findings) == {"AgentGone"}
    assert seen.findings["AgentGone"] <= (FAULT_S + 18) * SECOND


def test_an_agent_that_only_peers_hear_is_a_finding() -> None:
    def cut(faults: Faults) -> None:
        name = _member(faults)
        faults.cut_pair((Transport.STREAM,), name, CONTROLLER, 50)
        faults.cut_pair((Transport.TCP,), name, ANYBODY, 50)

    seen = _play(cut)
    assert (seen.lost_ns, seen.generations) == ({}, 1)
    assert set(seen.findings) == {"AgentGone"}


@pytest.mark.parametrize("which", [_member, _spare])
def test_a_stream_that_ends_every_20_s_is_a_finding_of_its_node_alone(
    which: Callable[[Faults], str],
) -> None:
    broken: list[str] = []

    def flap(faults: Faults) -> None:
        broken.append(which(faults))
        faults.flap_stream(broken[0], 160)

    seen = _play(flap, 170)
    assert (seen.lost_ns, seen.generations) == ({}, 1)
    assert (set(seen.findings), seen.blamed) == ({"StreamFlapping"}, set(broken))


def test_a_job_without_any_other_node_goes_on_where_the_stream_flaps() -> None:
    shape = Shape(nodes=4, nodes_min=3, nodes_max=3, steps=10_000, domains=4)
    used: list[str] = []

    def break_it(faults: Faults) -> None:
        used.append(_spare(faults))
        faults.flap_stream(used[0], 300)
        faults.later(150, lambda: faults.lose_power([_member(faults)]))

    for seed in range(4):
        used.clear()
        cluster = SimulatedCluster(seed, shape, Seen())
        cluster.time.after(FAULT_S, lambda cluster=cluster: break_it(Faults(cluster)))  # type: ignore[misc]
        cluster.run(FAULT_S + 290)
        job, flapping = cluster.job, cluster.controller.core.state.index.flapping
        assert job is not None
        assert (job.state, flapping) == (JobState.RUNNING, used)
        assert used[0] in job.generation.members


@pytest.mark.parametrize("seed", range(3))
def test_many_streams_that_are_cut_are_one_finding(seed: int) -> None:
    told: set[str] = set()

    def watch(cluster: SimulatedCluster, event: events.Event) -> None:
        seen(cluster, event)
        found = outage.findings(cluster.controller.core.state)
        told.update(one.finding.message.partition(": ")[2] for one in found)

    def cut(faults: Faults) -> None:
        for name in faults.names:
            if faults.domain_of(name) == faults.domain_of(faults.names[0]):
                faults.cut_pair((Transport.STREAM,), name, CONTROLLER, 60)

    seen = Seen()
    shape = Shape(nodes=30, nodes_min=3, nodes_max=4, steps=10_000, domains=3)
    cluster = SimulatedCluster(seed, shape, watch)
    cluster.time.after(FAULT_S, lambda: cut(Faults(cluster)))
    cluster.run(FAULT_S + 120)
    assert (seen.findings, seen.lost_ns, seen.generations) == ({}, {}, 1)
    assert any(said.startswith("the network of ") for said in told), told
    assert cluster.controller.core.state.outage is None


def test_streams_that_all_end_every_20_s_are_found_of_few() -> None:
    def flap(faults: Faults) -> None:
        for name in faults.names:
            faults.flap_stream(name, 160)

    seen = _play(flap, 170)
    assert (seen.lost_ns, seen.generations) == ({}, 1)
    assert len(seen.blamed) == 1


def test_a_controller_without_a_network_finds_fault_with_nobody_else() -> None:
    seen = _play(lambda f: f.cut_controller(50))
    assert (seen.lost_ns, seen.findings) == ({}, {})


def test_a_node_that_a_router_seldom_says_is_unreachable_is_doubtful_and_not_lost() -> None:
    seen = _play(lambda f: f.prohibit(_spare(f), 60, says=0.2))
    assert seen.doubted
    assert (seen.lost_ns, seen.generations) == ({}, 1)


def test_one_watcher_and_two_confirmers_that_are_cut_off_lose_nobody() -> None:
    def cut(faults: Faults) -> None:
        name = _member(faults)
        for other in [one for one in faults.names if one != name][:3]:
            faults.cut_pair((Transport.UDP, Transport.TCP), name, other, 50)

    seen = _play(cut)
    assert (seen.lost_ns, seen.generations) == ({}, 1)


def test_a_machine_that_is_frozen_for_less_than_three_seconds_costs_nothing() -> None:
    seen = _play(lambda f: f.freeze_machine(_member(f), 2.5))
    assert (seen.lost_ns, seen.doubted, seen.generations) == ({}, set(), 1)


def test_a_machine_without_power_is_lost_within_six_seconds() -> None:
    seen = _play(lambda f: f.lose_power([_member(f)]))
    (lost_ns,) = seen.lost_ns.values()
    assert lost_ns <= (FAULT_S + 6) * SECOND


def test_members_that_step_on_are_not_lost_though_nothing_of_them_answers() -> None:
    def cut(faults: Faults) -> None:
        name = _member(faults)
        faults.cut_pair((Transport.UDP, Transport.TCP), name, ANYBODY, 50)
        faults.cut_pair((Transport.STREAM,), name, CONTROLLER, 50)

    seen = _play(cut)
    assert seen.doubted
    assert (seen.lost_ns, seen.generations) == ({}, 1)


def _cut_off(faults: Faults, names: list[str]) -> None:
    """Cut nodes off; the end of some streams is noticed before peers are sure, of others after."""
    for name in names:
        faults.cluster.cut_off(name)


@pytest.mark.parametrize("how", [Faults.lose_power, _cut_off])
def test_a_quarter_of_the_fleet_in_one_domain_is_lost_within_five_seconds(
    how: Callable[[Faults, list[str]], None],
) -> None:
    shape = Shape(nodes=24, nodes_min=3, nodes_max=4, steps=10_000, domains=4)
    lost = {f"n{index}" for index in range(0, 24, 4)}
    seen = _play(lambda faults: how(faults, sorted(lost)), 20, shape)
    assert set(seen.lost_ns) == lost
    assert max(seen.lost_ns.values()) <= (FAULT_S + 5) * SECOND


def test_any_eleven_of_24_nodes_are_lost_five_seconds_after_somebody_misses_them() -> None:
    shape = Shape(nodes=24, nodes_min=3, nodes_max=4, steps=10_000, domains=4)
    lost = {f"n{index}" for index in range(11)}
    seen = _play(lambda faults: faults.lose_power(sorted(lost)), 40, shape)
    assert set(seen.lost_ns) == lost
    # Most of them have a watcher left, and of the others the transport tells within 20 s.
    assert sorted(seen.lost_ns.values())[7] <= (FAULT_S + 6) * SECOND
    assert max(seen.lost_ns.values()) <= (FAULT_S + 26) * SECOND


def test_half_of_the_fleet_is_doubtful_until_an_operator_or_a_scheduler_says_that_it_is_off() -> (
    None
):
    shape = Shape(nodes=24, nodes_min=3, nodes_max=4, steps=10_000, domains=4)
    seen = _play(lambda faults: faults.lose_power([f"n{index}" for index in range(12)]), 600, shape)
    assert not seen.lost_ns
    assert {f"n{index}" for index in range(12)} <= seen.doubted


@pytest.mark.long
def test_half_of_all_datagrams_lost_for_an_hour_lose_nobody() -> None:
    shape = Shape(nodes=24, nodes_min=3, nodes_max=4, steps=10_000, domains=4)

    def lose(faults: Faults) -> None:
        faults.cluster.fleet.network.udp_loss = 0.5

    seen = _play(lose, 3600, shape)
    assert (seen.lost_ns, seen.generations) == ({}, 1)
