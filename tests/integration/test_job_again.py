"""A name that was used before: the next job of that name is another job."""

import pytest

from integration.real_fleet import RealFleet, running_fleet


@pytest.mark.timeout(180)
def test_a_job_that_ended_well_is_run_again_under_its_name() -> None:
    with running_fleet("node-1", "node-2") as fleet:
        for generation in (1, 2):
            fleet.launch(steps=5, step_s=0.05)
            fleet.until("the end", 60, lambda: _over(fleet))
            assert sorted(fleet.losses()) == list(range(5))
            assert (fleet.folder / "losses" / f"{generation}.tsv").exists()


def _over(fleet: RealFleet) -> bool:
    return all(child.process.poll() == 0 for child in fleet.launchers.values())
