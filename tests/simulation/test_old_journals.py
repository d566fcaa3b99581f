"""An old copy of the journal is put back: first a halt, then recovery from what agents know."""

import random
from collections.abc import Callable
from functools import partial

import pytest

from everstep_controller.core import events
from everstep_controller.core.model.job import JobState
from everstep_sim.cluster import Shape, SimulatedCluster
from everstep_sim.timeline import SECOND
from everstep_sim.unchanged import UnchangedScript
from simulation.invariants import Invariants
from simulation.seeds import seeds

STEPS = 80
# Four nodes begin, and three can go on.
REFORMS = Shape(nodes=4, nodes_min=2, nodes_max=4, steps=STEPS)
BACKUP_S, LOSS_S, RESTORE_S, RECOVER_S = 12.0, 14.0, 50.0, 60.0
END_S = 900


class HaltsFirst(Invariants):
    """Besides all else: between the old journal and the operator's word nothing is taken."""

    def __init__(self) -> None:
        super().__init__()
        self.halted = ""

    def __call__(self, cluster: SimulatedCluster, event: events.Event) -> None:
        if isinstance(event, events.ClusterNamed | events.ControllerStarted):
            self.journal_restored()
        super().__call__(cluster, event)
        self.halted = self.halted or cluster.controller.core.state.halted


def _play(seed: int, *, file: bool) -> tuple[SimulatedCluster, str]:
    """Lose a node for good after the backup, and put the backup back later."""
    check = HaltsFirst()
    cluster = SimulatedCluster(seed, REFORMS, check)
    rng, kept = random.Random(seed), [0]
    lost = f"n{rng.randrange(4)}"

    def back_up() -> None:
        kept[0] = len(cluster.controller.journal)

    def put_back() -> None:
        if not file:
            cluster.controller.cluster_term = 0
        cluster.restore_backup(kept[0])

    cluster.time.after(BACKUP_S + rng.uniform(-4, 1), back_up)
    cluster.time.after(LOSS_S, partial(cluster.kill_node, lost))
    # So that agents know a newer term than the backup will begin.
    cluster.time.after(LOSS_S + 15, partial(cluster.restart_controller, 1.0))
    cluster.time.after(LOSS_S + 20, partial(cluster.restart_controller, 1.0))
    cluster.time.after(RESTORE_S, put_back)
    cluster.time.after(RECOVER_S, cluster.recover)
    cluster.run(END_S)
    return cluster, check.halted


@pytest.mark.parametrize("file", [True, False], ids=["cluster file", "agents alone"])
@pytest.mark.parametrize("seed", seeds(5, 12))
def test_a_job_that_was_re_formed_since_goes_on_with_the_ranks_that_its_agents_name(
    seed: int, file: bool
) -> None:
    cluster, halted = _play(seed, file=file)
    assert "this journal is old" in halted
    job = cluster.job
    assert job is not None
    assert job.state is JobState.ENDED, (job.state, job.reason)
    assert job.ending.succeeded, job.reason
    assert set(cluster.ranks.completed) == set(range(STEPS))
    # What three nodes had trained is not trained from the start again.
    assert len(cluster.ranks.completed[0]) == 1


SCRIPT = UnchangedScript(saves_every=5, step_s=1.0, save_s=0.2)
UNCHANGED = Shape(nodes=5, nodes_min=4, nodes_max=4, steps=STEPS, script=SCRIPT)
# What a journal has of a cluster before any job began.
FIRST_ROWS = 3


def _put_back(cluster: SimulatedCluster, kept: int) -> None:
    """Put a backup back, and its cluster file; some time later an operator orders the recovery."""
    cluster.time.after(RESTORE_S, partial(cluster.restore_backup, kept))
    cluster.time.after(RECOVER_S, cluster.recover)


@pytest.mark.parametrize("seed", seeds(4, 24))
def test_a_script_without_snapshots_that_the_backup_does_not_know_begins_again_by_itself(
    seed: int,
) -> None:
    cluster = SimulatedCluster(seed, UNCHANGED, HaltsFirst())
    rng = random.Random(seed)
    _put_back(cluster, FIRST_ROWS)
    if rng.random() < 0.5:  # as who follows the documentation does
        cluster.time.after(
            RECOVER_S + 30 + rng.uniform(0, 6), partial(cluster.restart_controller, 1)
        )
    cluster.run(END_S)
    job = cluster.job
    assert job is not None
    assert job.state is JobState.ENDED, (job.state, job.reason)
    assert job.ending.succeeded, job.reason
    assert set(cluster.ranks.completed) == set(range(STEPS))


SNAPSHOTS = Shape(nodes=8, nodes_min=4, nodes_max=4, steps=STEPS)


def _disturb(cluster: SimulatedCluster, rng: random.Random, recover_s: float) -> None:
    """Have neighbours cut off for a while, as controllers restart, when the journal is rebuilt."""
    first, count = rng.randrange(4), rng.choice((0, 1, 2, 2, 4))
    cut_s = recover_s + rng.uniform(28, 40)
    for name in (f"n{(first + index) % 4}" for index in range(count)):
        cluster.time.after(cut_s, partial(cluster.cut_off, name))
        cluster.time.after(cut_s + rng.uniform(20, 90), partial(cluster.return_node, name))
    for _ in range(rng.randrange(3)):
        away_s = recover_s + rng.uniform(30, 45)
        cluster.time.after(away_s, partial(cluster.restart_controller, 1))


@pytest.mark.parametrize("seed", seeds(4, 200))
def test_a_job_that_has_snapshots_never_begins_from_nothing_however_soon_the_journal_is_lost(
    seed: int,
) -> None:
    rng, made = random.Random(seed), [-1]
    cluster = SimulatedCluster(seed, SNAPSHOTS, HaltsFirst())
    restore_s, recover_s = rng.uniform(1, 12), rng.uniform(2, 6)

    def put_back() -> None:
        made[0] = max(cluster.ranks.completed, default=-1)
        cluster.restore_backup(FIRST_ROWS)
        cluster.time.after(recover_s, cluster.recover)
        _disturb(cluster, rng, recover_s)

    cluster.time.after(restore_s, put_back)
    cluster.run(END_S)
    job = cluster.job
    assert job is not None
    # All ranks have a copy of a step that is complete.
    assert made[0] < 0 or len(cluster.ranks.completed[0]) == 1, made[0]
    ended = job.state is JobState.ENDED and job.ending.succeeded
    assert ended or job.state is JobState.WAITING_STATE, (job.state, job.reason)


ONE_NODE = Shape(nodes=3, nodes_min=1, nodes_max=1, steps=STEPS)


@pytest.mark.parametrize("seed", seeds(6, 100))
def test_no_spare_begins_a_job_on_one_node_that_an_old_journal_does_not_know(seed: int) -> None:
    rng, made = random.Random(seed), [-1]
    cluster = SimulatedCluster(seed, ONE_NODE, HaltsFirst())

    def put_back() -> None:
        made[0] = max(cluster.ranks.completed, default=-1)
        cluster.restore_backup(FIRST_ROWS)
        cluster.time.after(rng.uniform(2, 40), cluster.recover)

    cluster.time.after(rng.uniform(1.5, 12), put_back)
    cluster.run(END_S)
    job = cluster.job
    assert job is not None
    assert job.state is JobState.ENDED, (job.state, job.reason)
    assert job.ending.succeeded, job.reason
    # Only steps that were not saved yet are made again.
    again = [step for step, took in cluster.ranks.completed.items() if len(took) > 1]
    assert len(again) <= 4, again


# It begins when it has waited for more nodes, whose launchers know by then which job it is.
SLOWLY_FORMED = Shape(nodes=5, nodes_min=3, nodes_max=8, steps=STEPS)


class FirstOrder(HaltsFirst):
    """Besides all else: something happens as the first generation of the job is ordered."""

    def __init__(self, then: Callable[[SimulatedCluster], None]) -> None:
        super().__init__()
        self._then: Callable[[SimulatedCluster], None] | None = then

    def __call__(self, cluster: SimulatedCluster, event: events.Event) -> None:
        super().__call__(cluster, event)
        if isinstance(event, events.RecoveryStepChosen) and self._then is not None:
            then, self._then = self._then, None
            then(cluster)


@pytest.mark.parametrize("seed", seeds(6, 100))
def test_no_number_is_given_twice_where_a_journal_is_lost_with_the_first_order_on_its_way(
    seed: int,
) -> None:
    rng = random.Random(seed)

    def lose(cluster: SimulatedCluster) -> None:
        cluster.restore_backup(FIRST_ROWS)
        # Some who have heard the order are not there when the journal is rebuilt.
        begun = cluster.ranks.generations.get(1)
        heard = begun.members if begun is not None else []
        for name in rng.sample(heard, min(len(heard), rng.choice((0, 1, 2)))):
            cluster.cut_off(name)
            cluster.time.after(rng.uniform(40, 90), partial(cluster.return_node, name))
        cluster.time.after(rng.uniform(2, 6), cluster.recover)
        cluster.time.after(150, cluster.recover)

    def ordered(cluster: SimulatedCluster) -> None:
        cluster.time.after(rng.uniform(0.002, 0.02), partial(lose, cluster))

    cluster = SimulatedCluster(seed, SLOWLY_FORMED, FirstOrder(ordered))
    cluster.run(END_S)
    for number, ours in cluster.ranks.generations.items():
        places = {(one.node_count, one.node_rank) for one in ours.orders.values()}
        assert len({one.job_id for one in ours.orders.values()}) == 1, number
        assert len(places) == len(ours.orders), f"generation {number} was planned twice"
    job = cluster.job
    assert job is not None
    ended = job.state is JobState.ENDED and job.ending.succeeded
    assert ended or job.state is JobState.WAITING_STATE, (job.state, job.reason)


# Longer than a job without launchers is waited for.
LATER_S = 300.0


def _end_and_put_back(seed: int, shape: Shape, rng: random.Random) -> SimulatedCluster:
    """Have a job end after a backup, which is put back later; then look for a while."""
    cluster, kept = SimulatedCluster(seed, shape, HaltsFirst()), [0]

    def back_up() -> None:
        kept[0] = len(cluster.controller.journal)

    backup_s = rng.uniform(3, 14)
    cluster.time.after(backup_s, back_up)
    cluster.time.after(BACKUP_S + 3, partial(cluster.restart_controller, 1.0))
    if rng.random() < 0.3:
        cluster.time.after(backup_s + rng.uniform(0.5, 5), partial(cluster.cancel, 30.0))
    cluster.run(END_S)
    assert cluster.job is not None
    assert cluster.job.state is JobState.ENDED
    begun_s = cluster.time.now_ns / SECOND
    cluster.time.after(rng.uniform(1, 60), lambda: cluster.restore_backup(kept[0]))
    cluster.time.after(70, cluster.recover)
    if rng.random() < 0.5:  # as who follows the documentation does
        cluster.time.after(101 + rng.uniform(0, 4), partial(cluster.restart_controller, 1))
    cluster.time.run(begun_s + LATER_S, lambda: False)
    return cluster


@pytest.mark.parametrize("script", [None, SCRIPT], ids=["snapshots", "unchanged"])
@pytest.mark.parametrize("seed", seeds(4, 60))
def test_a_job_that_has_ended_since_the_backup_has_ended_by_the_word_of_its_agents(
    seed: int, script: UnchangedScript | None
) -> None:
    rng = random.Random(seed)
    shape = Shape(nodes=5, nodes_min=3, nodes_max=4, steps=20, script=script)
    cluster = _end_and_put_back(seed, shape, rng)
    job = cluster.job
    assert job is not None
    assert job.state is JobState.ENDED, (job.state, job.reason)
    assert "had lost that" in job.reason
    assert job.ending.succeeded == ("train" in cluster.over)


class AtTheEnd(HaltsFirst):
    """Besides all else: something happens as the job ends, before anybody hears of it."""

    def __init__(self, then: Callable[[SimulatedCluster], None]) -> None:
        super().__init__()
        self._then: Callable[[SimulatedCluster], None] | None = then

    def __call__(self, cluster: SimulatedCluster, event: events.Event) -> None:
        super().__call__(cluster, event)
        job = cluster.job
        if job is not None and job.state is JobState.ENDED and self._then is not None:
            then, self._then = self._then, None
            then(cluster)


def _lose_with_ends(cluster: SimulatedCluster, rng: random.Random, kept: int, *, stay: int) -> None:
    """Put a backup back while launchers are told that their job has ended: some do not hear it.

    Of the others, who remember the end, some are away while the journal is rebuilt; ``stay`` are
    not.
    """
    there = cluster.launchers_of("train")
    unheard = rng.sample(there, rng.choice((1, 1, 2)))
    for name in unheard:
        cluster.fleet.nodes[name].lag.by_ns = 5 * SECOND
    heard = [name for name in there if name not in unheard]
    away = [name for name in heard[stay:] if rng.random() < 0.5]

    def put_back() -> None:
        cluster.restore_backup(kept)
        for name in unheard:
            cluster.fleet.nodes[name].lag.by_ns = 0
        for name in away:
            cluster.cut_off(name)
            cluster.time.after(rng.uniform(20, 120), partial(cluster.return_node, name))
        cluster.time.after(rng.uniform(2, 6), cluster.recover)

    cluster.time.after(rng.uniform(0.02, 0.4), put_back)


@pytest.mark.parametrize(
    ("known", "stay"),
    [(False, 1), (True, 1), (True, 0)],
    ids=["lost job", "known job", "known job, and all who remember its end are away"],
)
@pytest.mark.parametrize("seed", seeds(6, 300))
def test_a_launcher_that_did_not_hear_the_end_before_the_journal_was_lost_is_told_it(
    seed: int, known: bool, stay: int
) -> None:
    rng, kept = random.Random(seed), [FIRST_ROWS]

    def back_up() -> None:
        kept[0] = len(cluster.controller.journal)

    check = AtTheEnd(lambda cluster: _lose_with_ends(cluster, rng, kept[0], stay=stay))
    cluster = SimulatedCluster(seed, Shape(nodes=5, nodes_min=4, nodes_max=4, steps=20), check)
    if known:
        cluster.time.after(rng.uniform(2, 14), back_up)
    if rng.random() < 0.3:
        cluster.time.after(rng.uniform(6, 14), partial(cluster.cancel, 30.0))
    cluster.run(END_S)
    cluster.time.run(cluster.time.now_ns / SECOND + LATER_S, lambda: False)
    assert cluster.launchers_of("train") == []
    told = [one for node in cluster.fleet.nodes.values() for one in node.ended.values()]
    assert len({one.job_id for one in told}) == 1
    assert len({one.succeeded for one in told}) == 1, told
    assert all(job.state is JobState.ENDED for job in cluster.controller.core.state.jobs.values())
    assert set(cluster.ranks.completed) == set(range(20)) or not told[0].succeeded
