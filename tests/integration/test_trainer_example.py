"""The example's losses are equal to the bit, whatever the world size and whatever was killed."""

import os
import signal
import sys
from pathlib import Path

import pytest

from everstep_common.rank_messages import Entry
from everstep_common.reports import GenerationFinished
from fakes.waits import wait_until
from integration.trainer_job import EXAMPLE, STEPS, joined_job, read_losses, train


@pytest.mark.parametrize("world_size", [2, 3, 4, 6])
def test_losses_do_not_depend_on_the_number_of_processes(tmp_path: Path, world_size: int) -> None:
    alone = train(tmp_path, 1)

    assert train(tmp_path, world_size) == alone
    assert len(alone) == STEPS


def test_losses_do_not_change_when_ranks_die_and_the_job_is_re_formed(tmp_path: Path) -> None:
    losses = tmp_path / "losses"
    command = [sys.executable, str(EXAMPLE), "--steps", str(STEPS), "--losses", str(losses)]
    paced = [*command, "--step-seconds-min", "0.03"]
    with joined_job(tmp_path, *paced, options=["--nproc-per-node", "4"]) as job:
        for generation, ranks in enumerate((4, 3, 4), start=1):
            vault = job.agent.vault
            step = newest_common_step(vault.saved) if generation > 1 else None
            processes = job.start(generation, ranks, restore_step=step)
            if generation == 3:
                continue
            wait_for_step(vault.progress, (step or 0) + 10)
            os.kill(processes[generation], signal.SIGKILL)
            job.stop(generation)
        while not isinstance(
            message := job.agent.from_launcher.get(timeout=60), GenerationFinished
        ):
            continue
        assert message.generation == 3
        code, out, errors = job.end()

    assert (code, "test images recognized" in out) == (0, True), errors
    assert read_losses(losses) == train(tmp_path, 1)


def newest_common_step(saved: dict[int, dict[str, tuple[int, Entry, int]]]) -> int:
    """Return the newest step of which every shard was saved."""
    return max(step for step, shards in saved.items() if len(shards) == 12)


def wait_for_step(progress: list[tuple[int, int]], step: int) -> None:
    """Return when some rank has reported the step."""
    wait_until(lambda: any(reached >= step for _, reached in progress))
