"""Hangs of every class, that end by themselves or never do, whatever else happens meanwhile."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise

import pytest

from everstep_common.hangs.reports.verdict import HangClass
from everstep_controller.core import events
from everstep_controller.core.model.job import JobState
from everstep_controller.core.model.node import AUTOMATION
from everstep_controller.journal.codec import encode
from everstep_sim.cluster import SHIPPED, Shape, SimulatedCluster
from everstep_sim.controller import fold
from everstep_sim.faults import Faults
from everstep_sim.fleet import JOB
from everstep_sim.hangs import Hangs, Judged, SimulatedHang
from everstep_sim.timeline import SECOND
from everstep_sim.unchanged import UnchangedScript
from simulation.invariants import Invariants
from simulation.seeds import seeds

PATIENCE_S = SHIPPED.hang_patience_ns // SECOND
_STEPS = 30
_SHAPE = Shape(nodes=5, nodes_min=3, nodes_max=4, steps=_STEPS)
_LIVELY = (HangClass.CPU_SIDE, HangClass.GPU_SIDE, HangClass.SILENT)
_STUCK = (HangClass.DEAD, HangClass.FROZEN, HangClass.GIL_HELD)


@dataclass
class _Story:
    """Plays hangs, and sees who is claimed for them."""

    seed: int
    hangs: list[SimulatedHang]
    disturbed: bool = False
    claimed: set[str] = field(default_factory=set)
    shape: Shape = _SHAPE
    # When the job was found to stand still, and whether it is now.
    stalls_ns: list[int] = field(default_factory=list)
    is_found: bool = False
    # When it was stopped for that.
    stops_ns: list[int] = field(default_factory=list)
    _is_stopping: bool = False

    def play(self, until_s: float = 4000) -> SimulatedCluster:
        invariants = Invariants()

        def check(cluster: SimulatedCluster, event: events.Event) -> None:
            invariants(cluster, event)
            job = cluster.job
            found = job is not None and job.state in (JobState.STALLED, JobState.STOPPING)
            if found and not self.is_found:
                self.stalls_ns.append(cluster.controller.now_ns)
            if job is not None and job.state is JobState.STOPPING and not self._is_stopping:
                self.stops_ns.append(cluster.controller.now_ns)
            self._is_stopping = job is not None and job.state is JobState.STOPPING
            self.is_found = found
            for node in cluster.controller.core.state.nodes.values():
                if any(claim.owner == AUTOMATION for claim in node.isolation.claims):
                    self.claimed.add(node.name)

        cluster = SimulatedCluster(self.seed, self.shape, check)
        Hangs(cluster, self.hangs)
        if self.disturbed:
            self._disturb(cluster)
        cluster.run(until_s)
        return cluster

    def _disturb(self, cluster: SimulatedCluster) -> None:
        """Take agents and the controller away for a while, anywhere near the hang."""
        rng, faults = random.Random(self.seed), Faults(cluster)
        for _ in range(rng.randint(1, 3)):
            at_s, away_s = rng.uniform(5, 60), rng.uniform(0.5, 10)
            name = rng.choice(faults.names)
            what: list[Callable[[], None]] = [
                partial(cluster.restart_controller, away_s),
                partial(faults.restart_agent, name, away_s),
                partial(faults.pause_agent, name, min(away_s, 4)),
            ]
            cluster.time.after(at_s, rng.choice(what))


def _restarts(cluster: SimulatedCluster) -> int:
    assert cluster.job is not None
    return cluster.job.recovery.restarts


def _ended_well(cluster: SimulatedCluster) -> bool:
    return cluster.job is None or cluster.job.ending.succeeded or JOB in cluster.over


@pytest.mark.parametrize("disturbed", [False, True], ids=["alone", "disturbed"])
@pytest.mark.parametrize("seed", seeds(3, 60))
def test_no_job_is_restarted_whose_culprit_comes_back_within_the_patience(
    seed: int, disturbed: bool
) -> None:
    rng = random.Random(seed)
    hang = SimulatedHang(
        kind=rng.choice(_LIVELY),
        step=rng.randint(3, 20),
        lasts_s=rng.uniform(1, PATIENCE_S - 10),
        rank=rng.randrange(3),
        judged=rng.choice(list(Judged)),
    )
    story = _Story(seed, [hang], disturbed)
    cluster = story.play()
    assert hang.began_ns
    assert _ended_well(cluster)
    assert set(hang.began_ns) == {1}
    assert _restarts(cluster) == 0
    assert not story.claimed


@pytest.mark.parametrize("disturbed", [False, True], ids=["alone", "disturbed"])
@pytest.mark.parametrize("seed", seeds(3, 60))
def test_a_job_whose_culprit_never_comes_back_steps_again(seed: int, disturbed: bool) -> None:
    rng = random.Random(seed)
    hang = SimulatedHang(
        kind=rng.choice((*_LIVELY, *_STUCK, HangClass.FABRIC, HangClass.KNOWN_SOFTWARE)),
        step=rng.randint(3, 20),
        rank=rng.randrange(3),
        judged=rng.choice((Judged.RIGHT, Judged.LATE, Judged.WRONG)),
    )
    story = _Story(seed, [hang], disturbed)
    cluster = story.play()
    assert _ended_well(cluster)
    assert 1 <= _restarts(cluster) <= 2
    assert not story.claimed


@pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "printed only"])
@pytest.mark.parametrize("kind", _STUCK)
@pytest.mark.parametrize("seed", seeds(3, 60))
def test_a_rank_that_cannot_tell_any_more_stops_an_unchanged_script_for_seconds(
    seed: int, kind: HangClass, recorded: bool
) -> None:
    hang = SimulatedHang(kind=kind, step=10, rank=seed % 3)
    script = UnchangedScript(saves_every=5, step_s=1.0, save_s=0.2, recorded=recorded)
    story = _Story(seed, [hang], shape=replace(_SHAPE, script=script))
    cluster = story.play()
    assert _ended_well(cluster)
    assert _restarts(cluster) == 1
    assert (story.stalls_ns[0] - hang.began_ns[1]) / SECOND < 6, "120 s by steps alone"


@pytest.mark.parametrize("kind", [*_STUCK, HangClass.CPU_SIDE])
@pytest.mark.parametrize("seed", seeds(3, 40))
def test_evaluations_are_told_once_and_a_hang_after_them_as_soon_as_ever(
    seed: int, kind: HangClass
) -> None:
    rng = random.Random(seed)
    lasts_s = rng.uniform(5, PATIENCE_S - 10)
    evaluations = [
        SimulatedHang(kind=HangClass.CPU_SIDE, step=step, lasts_s=lasts_s, place="evaluate")
        for step in (4, 8, 12)
    ]
    hang = SimulatedHang(kind=kind, step=16, rank=rng.randrange(3), place="load")
    story = _Story(seed, [*evaluations, hang])
    cluster = story.play()
    assert _ended_well(cluster)
    assert _restarts(cluster) == 1
    first, *others = story.stalls_ns
    assert first < evaluations[1].began_ns[1]
    assert len(others) == 1, "the hang"
    assert (others[0] - hang.began_ns[1]) / SECOND < 6


@pytest.mark.parametrize("seed", seeds(3, 40))
def test_an_endless_loop_with_the_lock_is_restarted_in_seconds_also_after_evaluations(
    seed: int,
) -> None:
    rng = random.Random(seed)
    evaluations = [
        SimulatedHang(
            kind=HangClass.CPU_SIDE, step=step, lasts_s=rng.uniform(5, 60), place="evaluate"
        )
        for step in (4, 8)[: rng.randint(0, 2)]
    ]
    loop = SimulatedHang(
        kind=HangClass.GIL_HELD, step=14, rank=rng.randrange(3), place="native", computes=True
    )
    story = _Story(seed, [*evaluations, loop])
    cluster = story.play()
    assert _ended_well(cluster)
    assert _restarts(cluster) == 1
    assert (story.stalls_ns[-1] - loop.began_ns[1]) / SECOND < 6
    (stopped_ns,) = story.stops_ns
    assert 12 < (stopped_ns - loop.began_ns[1]) / SECOND < 20
    assert not story.claimed


@pytest.mark.parametrize("disturbed", [False, True], ids=["alone", "disturbed"])
@pytest.mark.parametrize("builds", [True, False], ids=["a save in C", "an evaluation with C in it"])
@pytest.mark.parametrize("seed", seeds(3, 40))
def test_what_holds_the_lock_and_ends_within_the_patience_is_let_alone(
    seed: int, builds: bool, disturbed: bool
) -> None:
    rng = random.Random(seed)
    hang = SimulatedHang(
        kind=HangClass.GIL_HELD,
        step=rng.randint(3, 20),
        lasts_s=rng.uniform(12, PATIENCE_S - 10),
        rank=rng.randrange(3),
        place="native",
        computes=True,
        builds=builds,
        held_most_s=1e6 if builds else rng.uniform(2.5, 8),
    )
    story = _Story(seed, [hang], disturbed)
    cluster = story.play()
    assert _ended_well(cluster)
    assert set(hang.began_ns) == {1}
    assert _restarts(cluster) == 0
    assert not story.claimed


@pytest.mark.parametrize("seed", seeds(2, 20))
def test_without_a_verdict_a_hang_is_left_to_people(seed: int) -> None:
    hang = SimulatedHang(kind=HangClass.CPU_SIDE, step=5, judged=Judged.NEVER)
    story = _Story(seed, [hang])
    cluster = story.play(until_s=2000)
    assert cluster.job is not None
    assert cluster.job.state is JobState.STALLED
    assert _restarts(cluster) == 0
    assert not story.claimed


@pytest.mark.parametrize("seed", seeds(3, 40))
def test_an_evaluation_that_is_longer_than_the_patience_is_waited_for_in_the_end(seed: int) -> None:
    hang = SimulatedHang(kind=HangClass.CPU_SIDE, step=10, lasts_s=5 * PATIENCE_S, times=1000)
    story = _Story(seed, [hang])
    cluster = story.play()
    assert _ended_well(cluster)
    assert 2 <= _restarts(cluster) <= 3, "after 120 s, then 240 and 480 s after it is stalled again"
    assert not story.claimed


@pytest.mark.parametrize("seed", seeds(3, 40))
def test_a_declared_evaluation_is_never_restarted_however_long_it_takes(seed: int) -> None:
    hang = SimulatedHang(
        kind=HangClass.CPU_SIDE, step=10, lasts_s=9 * PATIENCE_S, times=1000, pause="evaluation"
    )
    story = _Story(seed, [hang])
    cluster = story.play()
    assert _ended_well(cluster)
    assert set(hang.began_ns) == {1}
    assert _restarts(cluster) == 0
    assert not story.claimed


@pytest.mark.parametrize("kind", [HangClass.GIL_HELD, HangClass.CPU_SIDE])
@pytest.mark.parametrize("seed", seeds(2, 20))
def test_a_rank_that_hangs_wherever_it_runs_ends_its_job(seed: int, kind: HangClass) -> None:
    hang = SimulatedHang(kind=kind, step=8, rank=1, times=1000)
    story = _Story(seed, [hang])
    cluster = story.play()
    assert cluster.job is not None
    assert cluster.job.state is JobState.ENDED
    assert cluster.job.ending.failed
    assert "in the same way" in cluster.job.reason
    assert _restarts(cluster) == 2, "once in place, and once with a spare"
    assert not story.claimed


@pytest.mark.parametrize("disturbed", [False, True], ids=["alone", "disturbed"])
@pytest.mark.parametrize("seed", seeds(4, 100))
def test_whoever_freezes_ranks_again_and_again_ends_no_job_and_takes_no_node(
    seed: int, disturbed: bool
) -> None:
    """Of one rank wherever it runs, of a node, of any: the day's freezes are waited out."""
    rng = random.Random(seed)
    hangs = [
        SimulatedHang(
            kind=HangClass.FROZEN,
            step=rng.randint(3, 20),
            rank=rng.randrange(3),
            node=rng.choice(["", "", "n1"]),
            lasts_s=rng.choice([40.0, 400.0, 4000.0]),
            times=rng.choice([1, 2, 4]),
        )
        for _ in range(rng.randint(2, 5))
    ]
    story = _Story(seed, hangs, disturbed, shape=replace(_SHAPE, restarts_max=3))
    cluster = story.play(until_s=80_000)
    assert _ended_well(cluster), cluster.job and cluster.job.reason
    assert not story.claimed


@pytest.mark.parametrize("seed", seeds(2, 20))
def test_a_rank_that_is_frozen_at_one_step_for_good_is_waited_for_ever_longer(seed: int) -> None:
    hang = SimulatedHang(kind=HangClass.FROZEN, step=8, rank=1, times=1000)
    story = _Story(seed, [hang], shape=replace(_SHAPE, restarts_max=3))
    cluster = story.play(until_s=20_000)
    job = cluster.job
    assert job is not None
    assert job.state is not JobState.ENDED
    began = sorted(hang.began_ns.values())
    waits = [(after - before) / SECOND for before, after in pairwise(began)]
    assert len(waits) > 5
    assert waits[-1] > 5 * waits[2], waits
    assert not story.claimed


@pytest.mark.parametrize("seed", seeds(2, 20))
def test_a_node_on_which_hangs_come_again_with_other_ranks_is_replaced(seed: int) -> None:
    first = SimulatedHang(kind=HangClass.GIL_HELD, step=6, node="n1")
    story = _Story(seed, [first])
    cluster = _with_another_rank_there(story)
    assert _ended_well(cluster)
    assert story.claimed <= {"n1"}


def _with_another_rank_there(story: _Story) -> SimulatedCluster:
    story.hangs.append(SimulatedHang(kind=HangClass.GIL_HELD, step=15, node="n1"))
    return story.play()


@pytest.mark.parametrize("seed", seeds(2, 20))
def test_a_program_whose_ranks_part_ways_ends_at_once(seed: int) -> None:
    hang = SimulatedHang(kind=HangClass.DESYNC, step=8, times=1000)
    story = _Story(seed, [hang])
    cluster = story.play()
    assert cluster.job is not None
    assert cluster.job.ending.failed
    assert _restarts(cluster) == 0
    ended_s = (cluster.job.since_ns - hang.began_ns[1]) / SECOND
    assert ended_s < 10
    assert not story.claimed


@pytest.mark.parametrize("seed", seeds(2, 20))
def test_a_journal_with_hangs_folds_to_the_same_state_again(seed: int) -> None:
    hang = SimulatedHang(kind=HangClass.GIL_HELD, step=8, rank=1, times=2)
    cluster = _Story(seed, [hang], disturbed=True).play()
    again = fold(cluster.controller.journal)
    assert encode(again.state) == encode(cluster.controller.core.state)
