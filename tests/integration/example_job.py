"""A script of examples/ as a job, one rank of which is killed in the middle, for tests."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from integration.real_fleet import RealFleet, running_fleet

EXAMPLES = Path(__file__).parents[2] / "examples"
PATIENCE_S = 120.0


def losses_alone(example: str, steps: int, folder: Path) -> dict[int, str]:
    """Return the losses of an example that runs without `everstep run`, on its own."""
    to = folder / "alone.tsv"
    line = [str(EXAMPLES / example), "--steps", str(steps), "--losses", str(to)]
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, *line],
        env=environ,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return read_losses(to)


def losses_in_a_job(
    example: str, steps: int, nodes: tuple[str, ...], processes: int, *kills_at: int
) -> dict[int, str]:
    """Return the losses of a job; after each of so many steps a rank of the last node is killed.

    A step that was computed twice had the same loss, to the bit.
    """
    pace = "0.1" if kills_at else "0"
    with running_fleet(*nodes) as fleet:
        line = [str(EXAMPLES / example), "--steps", str(steps), "--step-seconds-min", pace]
        fleet.launch_script(line, processes)
        for step in kills_at:
            fleet.until("training", PATIENCE_S, lambda step=step: fleet.step() >= step)  # type: ignore[misc]
            _kill_a_rank(fleet, nodes[-1])
        launchers = list(fleet.launchers.values())
        fleet.until("the end", PATIENCE_S, lambda: all(one.exit_code == 0 for one in launchers))
        begun = fleet.first_steps()
        again = [begun[generation] for generation in sorted(begun)][1:]
        assert all(one >= at for one, at in zip(again, kills_at, strict=True)), begun
        return fleet.losses()


def losses_after_a_lost_node(
    example: str, steps: int, nodes: tuple[str, ...], kill_at: int
) -> dict[int, str]:
    """Return each step's loss in the newest generation, of a job that goes on on fewer nodes."""
    with running_fleet(*nodes) as fleet:
        line = [str(EXAMPLES / example), "--steps", str(steps), "--step-seconds-min", "0.1"]
        fleet.launch_script(line, nodes=f"{len(nodes) - 1}:{len(nodes)}")
        fleet.until("training", PATIENCE_S, lambda: _newest(fleet.folder).get(kill_at) is not None)
        for child in (fleet.agents.pop(nodes[-1]), lost := fleet.launchers.pop(nodes[-1])):
            for process in fleet.owned.below(child):
                os.kill(process.pid, signal.SIGKILL)
            child.process.kill()
        lost.process.wait(20)
        left = list(fleet.launchers.values())
        fleet.until("the end", PATIENCE_S, lambda: all(one.exit_code == 0 for one in left))
        begun = fleet.first_steps()
        assert begun[max(begun)] >= kill_at, f"trained again from {begun}"
        return _newest(fleet.folder)


def _newest(folder: Path) -> dict[int, str]:
    found: dict[int, str] = {}
    for path in sorted((folder / "losses").glob("*.tsv"), key=lambda path: int(path.stem)):
        found |= read_losses(path)
    return found


def read_losses(path: Path) -> dict[int, str]:
    """Return what an example has written: the loss of each step."""
    lines = path.read_text(encoding="ascii").split("\n")[:-1]  # the last one may be half a line
    return {int(step): loss for step, loss in (line.split("\t") for line in lines)}


def _kill_a_rank(fleet: RealFleet, node: str) -> None:
    rank = fleet.rank(node)
    assert rank is not None
    os.kill(rank.pid, signal.SIGKILL)
