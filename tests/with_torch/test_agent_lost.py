"""A real agent that is killed while a torch job saves beside its steps."""

import os
import signal
from pathlib import Path

import pytest

from everstep_proto.generated import admin_pb2
from integration.real_fleet import JOB, RealFleet, running_fleet
from with_torch.proof_job import Heavy

SCRIPT = Path(__file__).parent / "proof_job.py"
STEPS = 20
_PATIENCE_S = 180
# On a busy machine an agent may take longer to come back than a node may be silent.
_PATIENT = ("agent_return_s = 300.0",)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("after_s", ["0.0", "0.01", "0.03"])
def test_an_agent_killed_in_the_middle_of_a_copy_costs_no_step_of_training(
    after_s: str, tmp_path: Path
) -> None:
    variables = {"AGENT_PID": str(tmp_path / "agent.pid"), "KILL_AFTER_S": after_s}
    with running_fleet("node-1", variables=variables, core_lines=_PATIENT) as fleet:
        line = [str(SCRIPT), "--kind", "heavy", "--steps", str(STEPS)]
        _name_agent(fleet, tmp_path)
        fleet.launch_script([*line, "--step-seconds-min", "0.5"])
        agent = fleet.agents.pop("node-1")
        fleet.until("the kill", _PATIENCE_S, lambda: agent.exit_code is not None)
        fleet.start_agent("node-1")
        fleet.until("a snapshot", _PATIENCE_S, lambda: _saved(fleet) > Heavy.KILL_STEP)
        assert sorted(fleet.first_steps()) == [1]  # the loss of an agent restarts no job
        rank = fleet.rank("node-1")
        assert rank is not None
        os.kill(rank.pid, signal.SIGKILL)
        fleet.until("the end", _PATIENCE_S, lambda: fleet.step() == STEPS - 1)
        begun = fleet.first_steps()
        assert begun[max(begun)] > Heavy.KILL_STEP


def _name_agent(fleet: RealFleet, folder: Path) -> None:
    whole = folder / "agent.part"
    whole.write_text(str(fleet.agents["node-1"].process.pid), encoding="ascii")
    whole.rename(folder / "agent.pid")


def _saved(fleet: RealFleet) -> int:
    return max(
        (
            line.step
            for line in fleet.admin.call(
                lambda stub: stub.GetSnapshots, admin_pb2.GetSnapshotsRequest(job=JOB)
            ).steps
        ),
        default=-1,
    )
