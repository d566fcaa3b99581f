"""A whole job under the real torchrun with Everstep's rendezvous; one of its ranks is killed."""

import contextlib
import os
import signal
import sqlite3
import sys
from pathlib import Path

import pytest

from integration.real_fleet import JOB, RealFleet, running_fleet
from with_torch.job import train_alone
from with_torch.torchrun_nodes import advertise, torchrun
from with_torch.world import run_world

_SCRIPT = Path(__file__).parent / "job.py"
_STEPS = 14
_PER_GENERATION = 'exec "$@" --losses "$LOSSES/$EVERSTEP_GENERATION.tsv"'


@pytest.mark.long
@pytest.mark.parametrize(("kind", "ranks"), [("ddp", 2), ("fsdp", 2)])
def test_a_job_under_torchrun_goes_on_when_a_rank_is_killed(
    kind: str, ranks: int, tmp_path: Path
) -> None:
    nodes = ("node-1", "node-2")
    wanted = _losses_alone(kind, len(nodes) * ranks, tmp_path)
    path = os.pathsep.join([str(advertise(tmp_path)), *filter(None, sys.path)])
    with running_fleet(*nodes, variables={"PYTHONPATH": path}) as fleet:
        for name in nodes:
            _start(fleet, name, kind, ranks)
        fleet.until("training", 90, lambda: fleet.step() >= 4)
        killed = fleet.rank(nodes[-1])
        assert killed is not None
        os.kill(killed.pid, signal.SIGKILL)
        ended = fleet.launchers.values()
        fleet.until("the end", 120, lambda: all(one.exit_code is not None for one in ended))
        assert [one.exit_code for one in ended] == [0, 0], fleet.logs()
        assert fleet.losses() == wanted
        begun = fleet.first_steps()
        assert begun[max(begun)] >= 4, f"trained again from {begun}"
        assert fleet.job().state == "ended", fleet.logs()
        assert not [one for one in ended if fleet.owned.below(one)]


_DONE_AND_FAILED = """
echo ran > "$LOSSES/$EVERSTEP_GENERATION.$RANK"
[ "$EVERSTEP_GENERATION.$RANK" = 1.1 ] || exit 0
until [ -e "$LOSSES/go" ]; do sleep 0.05; done
exit 3
"""


@pytest.mark.long
def test_a_node_whose_ranks_had_ended_well_takes_part_after_a_fault_elsewhere(
    tmp_path: Path,
) -> None:
    nodes = ("node-1", "node-2")
    path = os.pathsep.join([str(advertise(tmp_path)), *filter(None, sys.path)])
    with running_fleet(*nodes, variables={"PYTHONPATH": path}) as fleet:
        for name in nodes:
            line = _line(fleet, name, "--max-restarts", "3")
            fleet.start_other_launcher(name, *line, "sh", "-c", _DONE_AND_FAILED)
        fleet.until("one is done", 90, lambda: _journaled(fleet, "GenerationFinished") == 1)
        (fleet.folder / "losses" / "go").touch()
        ended = fleet.launchers.values()
        fleet.until("the end", 120, lambda: all(one.exit_code is not None for one in ended))
        assert [one.exit_code for one in ended] == [0, 0], fleet.logs()
        ran = {path.name.partition(".")[0] for path in (fleet.folder / "losses").glob("*.?")}
        assert len(ran) >= 2, fleet.logs()
        newest = max(ran, key=int)
        assert {path.name for path in (fleet.folder / "losses").glob(f"{newest}.?")} == {
            f"{newest}.0",
            f"{newest}.1",
        }
        assert fleet.job().state == "ended", fleet.logs()


def _journaled(fleet: RealFleet, kind: str) -> int:
    with contextlib.closing(sqlite3.connect(f"file:{fleet.journal}?mode=ro", uri=True)) as journal:
        (count,) = journal.execute("SELECT count(*) FROM event WHERE kind = ?", (kind,)).fetchone()
    return int(count)


def _line(fleet: RealFleet, name: str, *options: str) -> list[str]:
    given = ["--rdzv-conf", f"token_file={fleet.folder / 'token'}", *options]
    socket = fleet.folder / name / "run" / "agent.sock"
    return list(torchrun(socket, "2", *given, job=JOB))[1:]


def _start(fleet: RealFleet, name: str, kind: str, ranks: int) -> None:
    options = ["--nproc-per-node", str(ranks), "--max-restarts", "3"]
    line = [*_line(fleet, name, *options), "sh", "-c", _PER_GENERATION, "sh"]
    line += [sys.executable, str(_SCRIPT), "--kind", kind, "--steps", str(_STEPS)]
    fleet.start_other_launcher(name, *line, "--step-seconds-min", "0.1")


def _losses_alone(kind: str, size: int, folder: Path) -> dict[int, str]:
    """Return the losses of the same training without Everstep."""
    run_world(size, folder, train_alone, kind, _STEPS, folder / "alone.tsv")
    words = (folder / "alone.tsv").read_text(encoding="ascii").split()
    return {int(step): loss for step, loss in zip(words[::2], words[1::2], strict=True)}
