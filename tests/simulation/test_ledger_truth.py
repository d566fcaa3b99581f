"""The ledger of scripts that do without the library, against what they really did."""

import random

import pytest

from everstep_controller.core.accounting.ledger import effectiveness
from everstep_controller.core.fleet.incidents import failures_of_job
from everstep_controller.core.model.job import JobState
from everstep_sim.cluster import Shape, SimulatedCluster
from everstep_sim.unchanged import UnchangedRanks, UnchangedScript
from simulation.invariants import Invariants
from simulation.script_truth import by_what_a_script_knows, differences, lost_steps, true_totals
from simulation.seeds import seeds


def _script(rng: random.Random) -> UnchangedScript:
    step_s = 10 ** rng.uniform(-1.7, 0)
    saves_every = rng.choice((7, 20, 50, 100))
    return UnchangedScript(
        saves_every=saves_every,
        step_s=step_s,
        save_s=step_s * rng.uniform(0, 3),
        jitter=rng.uniform(0, 0.03),
        prints_every=rng.choice((1, 1, 10)) if saves_every >= 50 else 1,
    )


def _play(seed: int) -> tuple[SimulatedCluster, UnchangedRanks]:
    rng = random.Random(seed)
    script, steps = _script(rng), rng.randint(250, 500)
    shape = Shape(nodes=2, nodes_min=1, nodes_max=2, steps=steps, script=script)
    cluster = SimulatedCluster(seed, shape, Invariants())
    lasts_s = steps * script.step_s
    for _ in range(rng.randint(1, 4)):
        cluster.time.after(8 + rng.uniform(0.05, 0.9) * lasts_s, lambda: cluster.kill_rank("n0"))
    cluster.run(100 + 20 * lasts_s)
    ranks = cluster.ranks
    assert isinstance(ranks, UnchangedRanks)
    return cluster, ranks


@pytest.mark.parametrize("seed", seeds(5, 60))
def test_each_category_is_what_the_script_knows_of_itself(seed: int) -> None:
    cluster, ranks = _play(seed)
    job = cluster.job
    assert job is not None
    assert (job.state, job.ending.succeeded) == (JobState.ENDED, True), job.reason
    assert job.ledger.ended_ns is not None
    ended_ns = job.ledger.ended_ns
    told = by_what_a_script_knows(job.ledger.totals(ended_ns))
    true = true_totals(ranks.history, job.ledger.started_ns, ended_ns)
    assert sum(true.values()) == sum(told.values())
    assert differences(told, true) == {}
    printed = [step.step for step in ranks.history.steps]
    assert job.ledger.step_count == max(printed) - min(printed) + 1
    counted = sum(true.get(name, 0) for name in ("productive", "slow.unattributed"))
    found = effectiveness(job.ledger, failures_of_job(cluster.controller.core.state, job), ended_ns)
    assert abs(found.ettr_time - counted / found.wall_ns) < 0.01


def test_the_schedules_take_steps_back_again_and_again() -> None:
    lost = [len(lost_steps(_play(seed)[1].history.steps)) for seed in range(5)]
    assert sum(count > 0 for count in lost) >= 4, lost
