"""Jobs under real agents that are run again with other numbers of ranks: 4, 3 and 5."""

import signal
from dataclasses import dataclass
from pathlib import Path

import pytest

from integration.real_fleet import JOB, RealFleet, running_fleet
from with_torch.job import train_alone
from with_torch.world import run_world

SCRIPT = Path(__file__).parent / "sized_job.py"
STEPS = 18
_PATIENCE_S = 120


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["fsdp-steady", "ddp-steady"])
def test_what_four_ranks_saved_three_go_on_with_and_then_five(kind: str, tmp_path: Path) -> None:
    run_world(4, tmp_path, train_alone, kind, STEPS, tmp_path / "alone.tsv")
    alone = _read(tmp_path / "alone.tsv")
    with running_fleet("node-1", "node-2", "node-3") as fleet:
        _run_until(fleet, 4, _Ranks(kind, ("node-1", "node-2"), 2))
        _run_until(fleet, 9, _Ranks(kind, ("node-1", "node-2", "node-3"), 1))
        _launch(fleet, _Ranks(kind, ("node-3",), 5), 0.0)
        fleet.until("the end", _PATIENCE_S, lambda: _newest(fleet) == STEPS - 1)
        begun = fleet.first_steps()
        assert [generation for generation, step in begun.items() if step == 0] == [1]
        assert begun[max(begun)] >= 9
        with_four = _read(fleet.folder / "losses" / "1.tsv")
        assert with_four == {step: alone[step] for step in with_four}, "of as many ranks"
        found = _losses(fleet)
        restored = _restored(fleet)
    assert found == pytest.approx(alone, rel=1e-3)
    assert len(restored) >= 2
    assert all(state == left for state, left in restored), "what was restored is what was left"


@dataclass(frozen=True, slots=True)
class _Ranks:
    """A kind of job with so many ranks on each of these nodes."""

    kind: str
    nodes: tuple[str, ...]
    processes: int


def _run_until(fleet: RealFleet, step: int, ranks: _Ranks) -> None:
    """Run the job on these nodes until a step is recoverable, and have its user end it."""
    _launch(fleet, ranks, 0.2)
    fleet.until(f"step {step}", _PATIENCE_S, lambda: fleet.sheet(JOB).recoverable_step >= step)
    for child in fleet.launchers.values():
        child.process.send_signal(signal.SIGTERM)
    fleet.until("its end", _PATIENCE_S, lambda: _ended(fleet))


def _launch(fleet: RealFleet, ranks: _Ranks, step_s: float) -> None:
    everywhere, fleet.nodes = fleet.nodes, ranks.nodes
    fleet.launchers.clear()
    line = [str(SCRIPT), "--kind", ranks.kind, "--steps", str(STEPS)]
    fleet.launch_script([*line, "--step-seconds-min", str(step_s)], ranks.processes)
    fleet.nodes = everywhere
    fleet.until("its start", _PATIENCE_S, lambda: fleet.job().state not in ("", "ended"))


def _ended(fleet: RealFleet) -> bool:
    gone = all(child.process.poll() is not None for child in fleet.launchers.values())
    return gone and fleet.job().state == "ended"


def _losses(fleet: RealFleet) -> dict[int, float]:
    """Return each step's loss in the newest generation that computed it."""
    found: dict[int, float] = {}
    for path in _of_generations(fleet, "tsv"):
        found |= _read(path)
    return found


def _restored(fleet: RealFleet) -> list[tuple[str, str]]:
    """Return the state of each restore, and what it was after that step when it was computed."""
    found: list[tuple[str, str]] = []
    after: dict[str, str] = {}
    for path in _of_generations(fleet, "states"):
        for line in path.read_text(encoding="ascii").split("\n")[:-1]:
            what, step, digest = line.split("\t")
            if what == "restored":
                found.append((digest, after[step]))
            else:
                after[step] = digest
    return found


def _of_generations(fleet: RealFleet, kind: str) -> list[Path]:
    paths = (fleet.folder / "losses").glob(f"*.{kind}")
    return sorted(paths, key=lambda path: int(path.stem))


def _read(path: Path) -> dict[int, float]:
    """Return the losses of a file, without a line that is still being written."""
    lines = path.read_text(encoding="ascii").split("\n")[:-1]
    pairs = (line.split("\t") for line in lines)
    return {int(step): float.fromhex(loss) for step, loss in pairs}


def _newest(fleet: RealFleet) -> int:
    return max(_losses(fleet), default=-1)
