"""The example for Paddle, as a job one rank of which is killed."""

from pathlib import Path

import pytest

from everstep import RandomState
from integration.example_job import losses_alone, losses_in_a_job

STEPS, KILL_AT = 60, 30
EXAMPLE = "train_paddle.py"


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_losses_of_a_job_whose_rank_is_killed_are_those_of_one_that_ran_through(
    tmp_path: Path,
) -> None:
    wanted = losses_alone(EXAMPLE, STEPS, tmp_path)
    assert sorted(wanted) == list(range(STEPS))
    assert losses_in_a_job(EXAMPLE, STEPS, ("node-1",), 1, KILL_AT) == wanted


@pytest.mark.long
@pytest.mark.timeout(600)
def test_two_ranks_of_which_one_is_killed_have_the_losses_of_two_that_ran_through() -> None:
    wanted = losses_in_a_job(EXAMPLE, STEPS, ("node-1",), 2)
    assert sorted(wanted) == list(range(STEPS))
    assert losses_in_a_job(EXAMPLE, STEPS, ("node-1",), 2, KILL_AT) == wanted


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:No ccache found")
def test_paddles_random_numbers_go_on_where_they_were() -> None:
    import paddle  # pyright: ignore[reportMissingImports]

    paddle.seed(3)
    paddle.rand([5])
    saved = RandomState().state_dict()
    drawn = paddle.rand([5]).tolist()
    paddle.seed(4)
    RandomState().load_state_dict(saved)
    assert paddle.rand([5]).tolist() == drawn
