"""An old copy of the journal is put back after a job was re-formed: first a halt, then recovery."""

import random
from functools import partial

import pytest

from everstep_controller.core import events
from everstep_controller.core.model.job import JobState
from everstep_sim.cluster import Shape, SimulatedCluster
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
