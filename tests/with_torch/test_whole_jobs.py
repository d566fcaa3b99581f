"""Whole jobs on a real controller, real agents and real torch processes, one of which is killed."""

import os
import signal
from pathlib import Path

import pytest

from integration.real_fleet import RealFleet, running_fleet
from with_torch.job import train_alone
from with_torch.world import run_world

SCRIPT = Path(__file__).parent / "job.py"
STEPS = 14


@pytest.mark.parametrize(
    ("kind", "nodes", "processes"),
    [
        ("ddp", ("node-1", "node-2"), 1),
        # FSDP without a checkpoint of torch goes on in fewer ranks below.
        pytest.param("fsdp", ("node-1",), 3, marks=pytest.mark.long),
        ("dcp", ("node-1",), 2),
    ],
)
def test_the_losses_of_a_job_whose_rank_is_killed_are_those_of_one_that_ran_through(
    kind: str, nodes: tuple[str, ...], processes: int, tmp_path: Path
) -> None:
    wanted = _losses_alone(kind, len(nodes) * processes, tmp_path)
    with running_fleet(*nodes) as fleet:
        line = [str(SCRIPT), "--kind", kind, "--steps", str(STEPS), "--step-seconds-min", "0.1"]
        fleet.launch_script(line, processes)
        fleet.until("training", 60, lambda: fleet.step() >= 4)
        _kill_a_rank(fleet, nodes[-1])
        fleet.until("the end", 60, lambda: fleet.step() == STEPS - 1)
        assert fleet.losses() == wanted
        begun = fleet.first_steps()
        assert begun[max(begun)] >= 4, f"trained again from {begun}"


def test_a_job_that_lost_a_node_goes_on_with_the_same_state_in_fewer_ranks(tmp_path: Path) -> None:
    wanted = _losses_alone("fsdp-steady", 3, tmp_path)
    with running_fleet("node-1", "node-2", "node-3") as fleet:
        line = [str(SCRIPT), "--kind", "fsdp-steady", "--steps", str(STEPS)]
        fleet.launch_script([*line, "--step-seconds-min", "0.1"], nodes="2:3")
        fleet.until("training", 60, lambda: _steps(fleet) >= 4)
        _lose_node(fleet, "node-3")
        fleet.until("the end", 90, lambda: _steps(fleet) == STEPS - 1)
        begun = fleet.first_steps()
        assert begun[max(begun)] >= 4, f"trained again from {begun}"
        found = _newest_losses(fleet)
        for step, loss in found.items():
            assert loss == pytest.approx(float.fromhex(wanted[step]), rel=1e-3), f"step {step}"


def _lose_node(fleet: RealFleet, node: str) -> None:
    for child in (fleet.agents.pop(node), fleet.launchers[node]):
        for process in fleet.owned.below(child):
            os.kill(process.pid, signal.SIGKILL)
        child.process.kill()


def _newest_losses(fleet: RealFleet) -> dict[int, float]:
    """Return each step's loss in the newest generation that computed it."""
    found: dict[int, float] = {}
    files = sorted((fleet.folder / "losses").glob("*.tsv"), key=lambda path: int(path.stem))
    for path in files:
        words = path.read_text(encoding="ascii").rpartition("\n")[0].split()
        pairs = zip(words[::2], words[1::2], strict=True)
        found |= {int(step): float.fromhex(loss) for step, loss in pairs}
    return found


def _steps(fleet: RealFleet) -> int:
    return max(_newest_losses(fleet), default=0)


def _kill_a_rank(fleet: RealFleet, node: str) -> None:
    rank = fleet.rank(node)
    assert rank is not None
    os.kill(rank.pid, signal.SIGKILL)


def _losses_alone(kind: str, size: int, folder: Path) -> dict[int, str]:
    """Return the losses of the same training without Everstep."""
    run_world(size, folder, train_alone, kind, STEPS, folder / "alone.tsv")
    words = (folder / "alone.tsv").read_text(encoding="ascii").split()
    return {int(step): loss for step, loss in zip(words[::2], words[1::2], strict=True)}
