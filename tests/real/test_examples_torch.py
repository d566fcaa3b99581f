"""The examples for torch, as jobs of real processes, one rank of which is killed."""

from pathlib import Path

import pytest

from integration.example_job import losses_after_a_lost_node, losses_alone, losses_in_a_job

pytest.importorskip("torch")
pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]
STEPS, KILL_AT = 40, 15
NODES = ("node-1", "node-2")


@pytest.mark.parametrize(
    ("example", "nodes", "processes", "kills_at"),
    [
        pytest.param("train_ddp.py", NODES, 1, (KILL_AT,), marks=pytest.mark.long),
        # Three ranks or more sum in an order that DDP's buckets decide.
        pytest.param("train_ddp.py", (*NODES, "node-3"), 1, (9, 18, 27), marks=pytest.mark.long),
        ("train_ddp.py", NODES, 2, (9, 18, 27)),
        ("train_fsdp.py", NODES, 1, (KILL_AT,)),
    ],
)
def test_the_losses_of_a_job_whose_ranks_are_killed_are_those_of_one_that_ran_through(
    example: str, nodes: tuple[str, ...], processes: int, kills_at: tuple[int, ...]
) -> None:
    wanted = losses_in_a_job(example, STEPS, nodes, processes)
    assert losses_in_a_job(example, STEPS, nodes, processes, *kills_at) == wanted
    assert sorted(wanted) == list(range(STEPS))


def test_a_job_that_loses_a_node_trains_on_with_the_same_global_batch(tmp_path: Path) -> None:
    found = losses_after_a_lost_node("train_ddp.py", STEPS, (*NODES, "node-3"), KILL_AT)
    wanted = losses_alone("train_ddp.py", STEPS, tmp_path)
    # On another number of ranks, only the order of sums differs.
    assert _numbers(found) == pytest.approx(_numbers(wanted), rel=1e-3)


def _numbers(losses: dict[int, str]) -> dict[int, float]:
    return {step: float.fromhex(loss) for step, loss in losses.items()}
