"""Whole torch jobs with more in their state than a model, one rank of which is killed."""

import os
import signal
from importlib.util import find_spec
from pathlib import Path

import pytest

from integration.real_fleet import running_fleet
from with_torch.proof_job import train_alone
from with_torch.world import run_world

SCRIPT = Path(__file__).parent / "proof_job.py"
STEPS = 14
_PATIENCE_S = 240
# torchdata is one more package to have.
KINDS = ["scaled", "beside", *(["loaded"] if find_spec("torchdata") else [])]


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", KINDS)
def test_the_losses_after_a_kill_are_those_of_a_job_that_ran_through(
    kind: str, tmp_path: Path
) -> None:
    run_world(2, tmp_path, train_alone, kind, STEPS, tmp_path / "alone.tsv")
    words = (tmp_path / "alone.tsv").read_text(encoding="ascii").split()
    wanted = {int(step): loss for step, loss in zip(words[::2], words[1::2], strict=True)}
    with running_fleet("node-1", "node-2") as fleet:
        line = [str(SCRIPT), "--kind", kind, "--steps", str(STEPS), "--step-seconds-min", "0.1"]
        fleet.launch_script(line)
        fleet.until("training", _PATIENCE_S, lambda: fleet.step() >= 7)
        # Where the rank has a worker that loads data, it is the worker, and the rank ends with it.
        rank = fleet.rank("node-2")
        assert rank is not None
        os.kill(rank.pid, signal.SIGKILL)
        fleet.until("the end", _PATIENCE_S, lambda: fleet.step() == STEPS - 1)
        assert fleet.losses() == wanted
        begun = fleet.first_steps()
        assert begun[max(begun)] >= 5, f"trained again from {begun}"
