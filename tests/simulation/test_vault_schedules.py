"""Random faults against snapshots: what is restored is whole, verified, and of the branch."""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import pytest

from everstep_common.reports import Storage
from everstep_controller.core import events
from everstep_controller.core.fleet.incidents import incidents_of_job
from everstep_controller.core.model.job import JobState
from everstep_controller.core.model.snapshots import StepKey
from everstep_controller.core.vault.copies import Copy
from everstep_sim.cluster import Shape, SimulatedCluster
from everstep_sim.fleet import JOB
from everstep_sim.node import SimulatedNode
from simulation.seeds import seeds

STEPS = 120
FAULTS_S = 160
END_S = 1500
STORAGE = Storage("/shared", every_steps=10, keep=2)
PLAIN = Shape(crash_chance=0.002, steps=STEPS)
SHAPES = {
    "own parts": PLAIN,
    "equal parts": replace(PLAIN, model_parts=2),
    "3 to 5 nodes": replace(PLAIN, nodes=6, nodes_min=3, nodes_max=5),
    "storage": replace(PLAIN, storage=STORAGE),
    "storage, equal parts": replace(PLAIN, storage=STORAGE, model_parts=2),
}


class Truth:
    """Checks every choice of the controller against what the nodes and the folder really hold."""

    def __init__(self) -> None:
        # Generation to the state that it was restored from; None for a fresh start.
        self._parent: dict[int, StepKey | None] = {}
        self._newest = 0
        self.restored: list[StepKey] = []
        self.looks = 0
        # Choices for which a newer step was whole, but of a branch that was left behind.
        self.tempted = 0

    def __call__(self, cluster: SimulatedCluster, event: events.Event) -> None:
        folder = cluster.vaults.folder
        # A publisher would wait for a minute for a file that is gone.
        assert not folder.missed
        if folder.latest is not None:
            assert folder.latest.key in folder.manifests
            # Where ranks have equal parts, a file of each part is enough.
            assert 0 < len(folder.files[folder.latest.key]) <= folder.latest.world_size
        self._nothing_was_freed_too_early(cluster)
        job = cluster.job
        if not isinstance(event, events.RecoveryStepChosen) or job is None or event.lost:
            return
        if event.generation != job.generation.number or job.generation.number in self._parent:
            return
        key = None if event.step is None else (event.step_generation, event.step)
        if key is None:
            assert not self.restored
        else:
            assert job.lineage.restored == key
            self._is_verified_and_whole(cluster, key)
            assert self._is_of_the_branch(key), key
            self.restored.append(key)
            self.tempted += any(
                found[1] > key[1] and not self._is_of_the_branch(found) for found in _whole(cluster)
            )
        self._parent[job.generation.number], self._newest = key, job.generation.number

    def _nothing_was_freed_too_early(self, cluster: SimulatedCluster) -> None:
        """While a generation runs undisturbed, any one of its nodes may be lost."""
        job = cluster.job
        if (
            job is None
            or job.generation.number not in cluster.whole_generations()
            or cluster.flipped
        ):
            return
        told = cluster.vaults.told.get((JOB, job.generation.number))
        count = cluster.shape.model_parts or len(job.generation.members)
        for lost in job.generation.members if told is not None else ():
            held: dict[int, set[int]] = {}
            for node in cluster.fleet.nodes.values():
                for copy in node.of(JOB).copies if node.alive and node.name != lost else ():
                    if copy.generation == job.generation.number:
                        held.setdefault(copy.step, set()).add(copy.rank % count)
            assert told is not None
            assert any(step >= told and len(parts) == count for step, parts in held.items())
            self.looks += 1

    def _is_verified_and_whole(self, cluster: SimulatedCluster, key: StepKey) -> None:
        generation, step = key
        orders = cluster.ranks.generations[generation].orders.values()
        ranks = {order.node_rank for order in orders}
        assert len(ranks) == next(iter(orders)).node_count
        held = [
            copy
            for node in cluster.fleet.nodes.values()
            if node.alive
            for copy in node.of(JOB).copies
            if (copy.generation, copy.step) == key
        ]
        parts = cluster.shape.model_parts
        present = {copy.rank % parts if parts else copy.rank for copy in held}
        wanted = {rank % parts if parts else rank for rank in ranks}
        written = cluster.vaults.folder.files.get(key, {}).keys()
        assert present == wanted or ranks == set(written), (key, held, written)
        assert step <= max(cluster.ranks.completed, default=-1)

    def _is_of_the_branch(self, key: StepKey) -> bool:
        """Walk back from the newest generation; what is above a restored step was cut off."""
        generation, limit = self._newest, 1 << 62
        while generation != key[0]:
            parent = self._parent.get(generation)
            if parent is None:
                return False
            generation, limit = parent[0], min(limit, parent[1])
        return key[1] <= limit


def _whole(cluster: SimulatedCluster) -> set[StepKey]:
    """Return the steps of which every rank has a copy on some node that is connected."""
    ranks: dict[StepKey, set[int]] = {}
    for node in cluster.fleet.nodes.values():
        for copy in node.of(JOB).copies if node.alive and node.connected else ():
            ranks.setdefault((copy.generation, copy.step), set()).add(copy.rank)
    generations = cluster.ranks.generations
    return {k for k, held in ranks.items() if len(held) == len(generations[k[0]].orders)}


def run(
    seed: int,
    shape: Shape,
    plan: Callable[[SimulatedCluster, random.Random], None],
    truth: Truth | None = None,
) -> SimulatedCluster:
    """Run one seeded schedule of faults; all nodes are back in the end."""
    truth = truth or Truth()
    cluster = SimulatedCluster(seed, shape, truth)
    cluster.vaults.write_fault_chance = 0.1
    plan(cluster, random.Random(seed + 1))
    for name in cluster.fleet.nodes:
        cluster.time.after(FAULTS_S + 20, partial(cluster.return_node, name))
    cluster.run(END_S)
    assert truth.looks > 10
    return cluster


def _faults(cluster: SimulatedCluster, rng: random.Random) -> None:
    at_s, names = 8.0, list(cluster.fleet.nodes)
    while at_s < FAULTS_S:
        name, other = rng.sample(names, 2)
        cluster.time.after(at_s, rng.choice(_verbs(cluster, name, other, rng.uniform(1, 40))))
        at_s += rng.uniform(6, 25)


def _verbs(
    cluster: SimulatedCluster, name: str, other: str, away_s: float
) -> list[Callable[[], None]]:
    def power(*lost: str) -> None:
        for one in lost:
            cluster.kill_node(one)
            cluster.time.after(away_s, partial(cluster.return_node, one))

    def cut() -> None:
        cluster.cut_off(name)
        cluster.time.after(away_s, partial(cluster.return_node, name))

    return [
        partial(cluster.kill_rank, name),
        partial(power, name),
        partial(power, name, other),
        cut,
        partial(cluster.flip, name),
        partial(cluster.restart_controller, away_s),
    ]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", seeds(5, 12))
def test_whatever_breaks_what_is_restored_is_whole_verified_and_of_the_branch(
    seed: int, shape: str
) -> None:
    cluster = run(seed, SHAPES[shape], _faults)
    # Where a launcher comes back after its end, there is a second one of the name.
    job = next(iter(cluster.controller.core.state.jobs.values()))
    if "cannot be restored" in job.reason:
        # All copies of some part are gone: nothing is made up, the job waits and says so.
        assert job.state is JobState.WAITING_STATE
        assert cluster.vaults.folder.latest is None
        return
    assert job.state is JobState.ENDED, job.reason
    assert job.ending.succeeded, job.reason
    assert set(cluster.ranks.completed) == set(range(STEPS))


def _blackout(cluster: SimulatedCluster, rng: random.Random) -> None:
    for name in cluster.fleet.nodes:
        cluster.time.after(70, partial(cluster.kill_node, name))
        cluster.time.after(rng.uniform(80, 120), partial(cluster.return_node, name))


@pytest.mark.parametrize("seed", range(4))
def test_a_job_with_storage_survives_the_loss_of_all_memory(seed: int) -> None:
    cluster = run(seed, SHAPES["storage"], _blackout)
    job = cluster.job
    assert job is not None
    assert job.ending.succeeded, (job.state, job.reason)
    # It may have grown later, from memory.
    step = incidents_of_job(cluster.controller.core.state, job)[0].step_restored
    assert step is not None
    folder = cluster.vaults.folder
    assert (1, step) in {*folder.files, *folder.removed}
    # Only the steps since the last one in storage were made twice.
    assert len(cluster.ranks.completed[0]) == 1


@pytest.mark.parametrize("seed", range(6))
def test_a_job_that_its_user_ends_leaves_its_newest_step_in_storage(seed: int) -> None:
    def plan(cluster: SimulatedCluster, rng: random.Random) -> None:
        cluster.vaults.write_fault_chance = 0.0
        cluster.time.after(
            rng.uniform(20, 60), lambda: cluster.end_launcher(_first(cluster), by_user=True)
        )

    cluster = run(seed, replace(SHAPES["storage"], crash_chance=0.0), plan)
    job, latest = cluster.job, cluster.vaults.folder.latest
    assert job is not None
    assert (job.state, job.ending.succeeded) == (JobState.ENDED, False)
    assert latest is not None
    assert job.lineage.recoverable_step is not None
    assert latest.step >= job.lineage.recoverable_step


def _first(cluster: SimulatedCluster) -> str:
    job = cluster.job
    return job.generation.members[0] if job is not None else "n0"


@pytest.mark.parametrize("seed", range(6))
def test_a_publisher_that_is_cut_off_never_moves_latest_back(seed: int) -> None:
    """It goes on with what it was told; the fence of the next generation stops it."""
    moved: list[tuple[int, int]] = []

    def plan(cluster: SimulatedCluster, rng: random.Random) -> None:
        cluster.vaults.publish_s = 40.0

        def cut() -> None:
            publishing = [n for n in cluster.fleet.nodes.values() if _publishes(n)]
            for node in publishing[:1]:
                cluster.cut_off(node.name)
                cluster.time.after(60, partial(cluster.return_node, node.name))

        def look() -> None:
            folder = cluster.vaults.folder
            if folder.latest is not None:
                moved.append((folder.fence, folder.latest.generation))
            cluster.time.after(0.05, look)

        cluster.time.after(rng.uniform(22, 45), cut)
        cluster.time.after(1, look)

    cluster = run(seed, replace(SHAPES["storage"], crash_chance=0.0), plan)
    job = cluster.job
    assert job is not None
    assert job.ending.succeeded, job.reason
    assert moved == sorted(moved)


def _publishes(node: SimulatedNode) -> bool:
    published = node.of(JOB).published
    return published is not None and bool(published.files)


def _shrink_and_grow(cluster: SimulatedCluster, rng: random.Random) -> None:
    for index, name in enumerate(("n0", "n1", "n2")):
        cluster.time.after(30 + 25 * index, partial(cluster.kill_node, name))
        cluster.time.after(rng.uniform(105, 110), partial(cluster.return_node, name))
    cluster.time.after(120, lambda: cluster.kill_rank(_first(cluster)))


@pytest.mark.parametrize("seed", range(4))
def test_a_job_shrinks_and_grows_and_goes_on_from_states_of_other_worlds(seed: int) -> None:
    cluster = run(seed, replace(SHAPES["3 to 5 nodes"], crash_chance=0.0), _shrink_and_grow)
    job = cluster.job
    assert job is not None
    assert job.ending.succeeded, job.reason
    worlds = [
        next(iter(generation.orders.values())).node_count
        for _, generation in sorted(cluster.ranks.generations.items())
    ]
    assert (worlds[0], min(worlds), worlds[-1]) == (5, 3, 5)
    # No step was made twice but those that were newer than the recoverable one.
    assert all(len(made) <= 2 for made in cluster.ranks.completed.values())


def _alone(cluster: SimulatedCluster) -> Copy | None:
    """Return a copy of the newest whole step, of a rank of which there is no other."""
    job = cluster.job
    whole = [key for key in _whole(cluster) if job is not None and key[0] == job.generation.number]
    newest = max(whole, default=(0, 0))
    held = [copy for node in cluster.fleet.nodes.values() for copy in node.of(JOB).copies]
    ours = [copy for copy in held if (copy.generation, copy.step) == newest]
    ranks = Counter(copy.rank for copy in ours)
    return next((c for c in ours if c.step >= 5 and ranks[c.rank] == 1 and not c.replica), None)


def _tempt(cluster: SimulatedCluster) -> Iterator[None]:
    """Let a node vanish with the only copy of its newest step, and come back a generation later.

    Then that step is whole again, newer than all others, and of a branch that was left behind.
    """
    while (left := _alone(cluster)) is None:
        yield
    cluster.cut_off(left.node)
    job = cluster.job
    assert job is not None
    while job.generation.number == left.generation or not job.lineage.restored:
        yield
        job = cluster.job or job
    cluster.return_node(left.node)
    while (left.generation, left.step) not in _whole(cluster):
        yield
    while not (
        ours := [
            n for n in cluster.fleet.nodes.values() if n.of(JOB).running == job.generation.number
        ]
    ):
        yield
    cluster.kill_rank(ours[0].name)


def _tempted(cluster: SimulatedCluster, rng: random.Random) -> None:
    del rng
    story = _tempt(cluster)

    def look() -> None:
        if next(story, story) is None:
            cluster.time.after(0.01, look)

    cluster.time.after(1, look)


@pytest.mark.parametrize("seed", range(6))
def test_a_step_of_an_abandoned_branch_that_comes_back_whole_is_never_restored(seed: int) -> None:
    truth = Truth()
    shape = replace(SHAPES["3 to 5 nodes"], crash_chance=0.0)
    cluster = run(seed, shape, _tempted, truth)
    assert truth.tempted
    job = cluster.job
    assert job is not None
    assert job.ending.succeeded, job.reason
