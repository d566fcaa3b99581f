"""Cuts around the controller: with at most half heard nothing is lost, else whoever is cut off."""

from functools import partial

import pytest

from everstep_controller.core import events
from everstep_controller.core.accounting.categories import Group
from everstep_controller.core.model.job import JobState
from everstep_sim.cluster import Shape, SimulatedCluster
from everstep_sim.cuts import play
from everstep_sim.faults import Faults
from everstep_sim.timeline import SECOND
from simulation.seeds import seeds

# So many seeds are played in every run, two of each kind of cut; the others by the long test.
_FEW, _MOST = 16, 200


@pytest.mark.parametrize("seed", seeds(_FEW, _MOST))
def test_a_controller_that_hears_at_most_half_loses_stops_and_throws_away_nothing(
    seed: int,
) -> None:
    outcome = play(seed, few=True)
    assert outcome.heard * 2 <= outcome.nodes
    assert outcome.clean, outcome


@pytest.mark.parametrize("seed", seeds(_FEW, _MOST))
def test_a_controller_that_hears_more_than_half_takes_the_others_for_off_and_nobody_else(
    seed: int,
) -> None:
    outcome = play(seed, few=False)
    assert outcome.clean, outcome


# The job "train-b" has n1, n3 and n5: without them it waits, and with two of them it can go on.
_WAITS = Shape(nodes=7, nodes_min=2, nodes_max=3, steps=100_000, jobs=2)
_BEHIND = ("n1", "n3", "n5")
_CUT_S, _LASTS_S = 20.0, 45.0


class _Job:
    """What the job behind the cut was told, and what became of it."""

    def __init__(self) -> None:
        self.states: list[JobState] = []

    def __call__(self, cluster: SimulatedCluster, event: events.Event) -> None:
        del event
        job = cluster.controller.core.state.job("train-b")
        if job is not None and job.state not in self.states[-1:]:
            self.states.append(job.state)


def _cut_job(seed: int, lasts_s: float = _LASTS_S) -> tuple[SimulatedCluster, Faults, _Job]:
    seen = _Job()
    cluster = SimulatedCluster(seed, _WAITS, seen)
    faults = Faults(cluster)
    cut = partial(faults.cut_controller_from, _BEHIND, lasts_s)
    cluster.time.after(_CUT_S, cut)
    return cluster, faults, seen


@pytest.mark.parametrize("seed", range(6))
def test_a_stop_that_nobody_heard_of_is_withdrawn_and_what_was_made_behind_the_cut_is_kept(
    seed: int,
) -> None:
    cluster, _, seen = _cut_job(seed)
    cluster.run(_CUT_S + _LASTS_S + 60)
    job = cluster.controller.core.state.newest("train-b")
    assert JobState.WAITING_CAPACITY in seen.states
    assert (job.state, job.generation.number) == (JobState.RUNNING, 1)
    assert all(len(made) == 1 for made in cluster.ranks_of["train-b"].completed.values())
    # What was made behind the cut is booked as made: nothing is lost, and hardly any time is.
    totals = job.ledger.totals(cluster.controller.now_ns)
    trained_ns = sum(
        amount
        for category, amount in totals.items()
        if category.group in (Group.PRODUCTIVE, Group.SLOW)
    )
    assert trained_ns > 0.95 * (cluster.controller.now_ns - job.ledger.started_ns - 10 * SECOND)
    assert not any(category.name.startswith("LOST") for category in totals)


@pytest.mark.parametrize("seed", range(3))
def test_a_stop_is_not_withdrawn_where_a_member_lost_a_rank_behind_the_cut(seed: int) -> None:
    cluster, faults, _ = _cut_job(seed)
    faults.later(_CUT_S + 20, partial(cluster.kill_rank, "n3"))
    cluster.run(_CUT_S + _LASTS_S + 90)
    job = cluster.controller.core.state.newest("train-b")
    assert job.state is JobState.RUNNING
    assert job.generation.number > 1


@pytest.mark.parametrize("seed", range(3))
def test_a_job_of_which_one_member_stays_away_goes_on_without_it_after_a_while(seed: int) -> None:
    cluster, faults, _ = _cut_job(seed)
    faults.later(_CUT_S, partial(faults.cut_controller_from, ("n5",), 600))
    cluster.run(_CUT_S + _LASTS_S + 200)
    job = cluster.controller.core.state.newest("train-b")
    assert job.state is JobState.RUNNING
    assert sorted(job.generation.members) == ["n1", "n3"]
