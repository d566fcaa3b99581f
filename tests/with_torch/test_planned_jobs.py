"""Planned work on a real DDP job: what it computes is what it would have computed anyway."""

from pathlib import Path

import pytest

from everstep_proto.generated import admin_pb2
from integration.real_fleet import JOB, running_fleet
from with_torch.job import train_alone
from with_torch.world import run_world

pytestmark = pytest.mark.timeout(600)
_SCRIPT = Path(__file__).parent / "job.py"
# More than pass while the controller lets all agents hear of the last step: 3 s.
_STEPS = 60


def test_the_losses_of_a_job_that_left_a_drained_node_are_those_of_one_that_ran_through(
    tmp_path: Path,
) -> None:
    alone = tmp_path / "alone.tsv"
    run_world(2, tmp_path, train_alone, "ddp", _STEPS, alone)
    words = alone.read_text(encoding="ascii").split()
    wanted = {int(step): loss for step, loss in zip(words[::2], words[1::2], strict=True)}
    with running_fleet("node-1", "node-2", "node-3") as fleet:
        line = [str(_SCRIPT), "--kind", "ddp", "--steps", str(_STEPS), "--step-seconds-min", "0.2"]
        fleet.launch_script(line, nodes="2")
        fleet.until("training", 180, lambda: fleet.step() >= 4)
        left = fleet.job().members[1]
        (plan,) = fleet.admin.call(
            lambda stub: stub.Drain, admin_pb2.DrainRequest(node=left, reason="fan")
        ).plans
        assert "goes on without" in plan
        fleet.until("the spare", 180, lambda: left not in fleet.job().members)
        fleet.until("the end", 180, lambda: fleet.job().state == "ended")
        assert fleet.losses() == wanted
        (restart,) = fleet.sheet(JOB).incidents
        assert restart.plan == "spare"
        assert restart.step_restored >= restart.step_before
        assert fleet.first_steps()[2] == restart.step_restored + 1
        assert {cost.name for cost in restart.costs} == {"planned"}
