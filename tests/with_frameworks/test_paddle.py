"""The example for Paddle, as a job whose rank is killed."""

from pathlib import Path

import pytest

from integration.example_job import losses_alone, losses_in_a_job

STEPS, KILL_AT = 60, 30


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_losses_of_a_job_whose_rank_is_killed_are_those_of_one_that_ran_through(
    tmp_path: Path,
) -> None:
    wanted = losses_alone("train_paddle.py", STEPS, tmp_path)
    assert sorted(wanted) == list(range(STEPS))
    found = losses_in_a_job("train_paddle.py", STEPS, ("node-1",), 1, kill_at=KILL_AT)
    assert found == wanted
