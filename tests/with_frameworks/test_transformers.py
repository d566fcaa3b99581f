"""The example for the Hugging Face Trainer, as a job one rank of which is killed."""

from pathlib import Path

import pytest

from integration.example_job import losses_alone, losses_in_a_job

STEPS, KILL_AT = 60, 30
EXAMPLE = "train_transformers.py"


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
def test_data_that_cannot_be_put_back_to_a_step_is_refused_before_the_first() -> None:
    from torch.utils.data import DataLoader

    from everstep.integrations.transformers import EverstepCallback

    loader: DataLoader[int] = DataLoader([1, 2, 3])  # type: ignore[arg-type]  # a sequence will do
    with pytest.raises(ValueError, match="give train_dataset an IterableDataset"):
        EverstepCallback().on_train_begin(None, None, None, train_dataloader=loader)  # type: ignore[arg-type]
