"""A sharded job under real agents that is run again with other numbers of ranks: 4, 3 and 5."""

import signal
from pathlib import Path

import pytest

from integration.real_fleet import JOB, RealFleet, running_fleet
from with_torch.job import train_alone
from with_torch.world import run_world

SCRIPT = Path(__file__).parent / "job.py"
STEPS = 18
_PATIENCE_S = 120


@pytest.mark.long
@pytest.mark.timeout(600)
def test_what_four_ranks_saved_three_go_on_with_and_then_five(tmp_path: Path) -> None:
    run_world(4, tmp_path, train_alone, "fsdp-steady", STEPS, tmp_path / "alone.tsv")
    words = (tmp_path / "alone.tsv").read_text(encoding="ascii").split()
    with running_fleet("node-1", "node-2", "node-3") as fleet:
        _run_until(fleet, 4, ("node-1", "node-2"), 2)
        _run_until(fleet, 9, ("node-1", "node-2", "node-3"), 1)
        _launch(fleet, ("node-3",), 5, 0.0)
        fleet.until("the end", _PATIENCE_S, lambda: _newest(fleet) == STEPS - 1)
        begun = fleet.first_steps()
        assert [generation for generation, step in begun.items() if step == 0] == [1]
        assert begun[max(begun)] >= 9
        found = _losses(fleet)
    for step, loss in zip(words[::2], words[1::2], strict=True):
        assert found[int(step)] == pytest.approx(float.fromhex(loss), rel=1e-3), f"step {step}"


def _run_until(fleet: RealFleet, step: int, nodes: tuple[str, ...], processes: int) -> None:
    """Run the job on these nodes until a step is recoverable, and have its user end it."""
    _launch(fleet, nodes, processes, 0.2)
    fleet.until(f"step {step}", _PATIENCE_S, lambda: fleet.admin.job(JOB).recoverable_step >= step)
    for child in fleet.launchers.values():
        child.process.send_signal(signal.SIGTERM)
    fleet.until("its end", _PATIENCE_S, lambda: _ended(fleet))


def _launch(fleet: RealFleet, nodes: tuple[str, ...], processes: int, step_s: float) -> None:
    everywhere, fleet.nodes = fleet.nodes, nodes
    fleet.launchers.clear()
    line = [str(SCRIPT), "--kind", "fsdp-steady", "--steps", str(STEPS)]
    fleet.launch_script([*line, "--step-seconds-min", str(step_s)], processes)
    fleet.nodes = everywhere
    fleet.until("its start", _PATIENCE_S, lambda: fleet.job().state not in ("", "ended"))


def _ended(fleet: RealFleet) -> bool:
    gone = all(child.process.poll() is not None for child in fleet.launchers.values())
    return gone and fleet.job().state == "ended"


def _losses(fleet: RealFleet) -> dict[int, float]:
    """Return each step's loss in the newest generation that computed it."""
    found: dict[int, float] = {}
    for path in sorted((fleet.folder / "losses").glob("*.tsv"), key=lambda path: int(path.stem)):
        lines = path.read_text(encoding="ascii").split("\n")[:-1]
        pairs = (line.split("\t") for line in lines)
        found |= {int(step): float.fromhex(loss) for step, loss in pairs}
    return found


def _newest(fleet: RealFleet) -> int:
    return max(_losses(fleet), default=-1)
