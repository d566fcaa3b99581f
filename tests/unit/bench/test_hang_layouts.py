"""Programs of made jobs: without a fault each of them runs to its end."""

import random

import pytest

from everstep_common.hangs.judging.judge import judge
from hung_jobs.faulty import FAULTS, faulty_job
from hung_jobs.layouts import drawn_layout
from hung_jobs.runs import Run, RunningRank, launches_of


@pytest.mark.parametrize("kind", ["megatron", "fsdp", "ddp"])
@pytest.mark.parametrize("blocking", [False, True])
def test_a_job_without_a_fault_completes_everything(kind: str, blocking: bool) -> None:
    for seed in range(2):
        layout = drawn_layout(random.Random(seed), kind)
        ranks = [
            RunningRank(launches_of(number, program, blocking=blocking))
            for number, program in enumerate(layout.programs)
        ]
        Run(ranks, ahead=8).settle()
        assert all(len(one.done) == len(one.launches) for one in ranks)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_names_no_innocent_rank(fault: str) -> None:
    """More of them, with other seeds, are scored by `python bench hang-faults`."""
    right = 0
    for seed in range(3):
        job = faulty_job(seed, fault)
        verdict = judge(job.reports, job.world_size)
        named = {one.rank for one in verdict.culprits}
        assert named <= job.culprits, (seed, verdict.sentence)
        right += verdict.kind is FAULTS[fault] or fault == "gpu"
    assert right >= 2
