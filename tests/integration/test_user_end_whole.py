"""A job that its user ends with SIGTERM: real controller, agents and ranks, and its last step."""

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from integration.real_fleet import RealFleet, running_fleet

pytestmark = pytest.mark.timeout(300)
_PATIENCE_S = 90.0
# So few steps are snapshotted that of those before the end none is.
_SELDOM = ("--snapshot-every", "100000")
_TRAINING = Path(__file__).parents[2] / "examples" / "train_numpy.py"


@pytest.fixture(scope="module")
def fleet() -> Iterator[RealFleet]:
    with running_fleet("node-1", "node-2") as fleet:
        yield fleet


@contextmanager
def training(fleet: RealFleet, name: str, *options: str, step_s: float = 0.02) -> Iterator[None]:
    """Have a job of this name train on both nodes, and end it."""
    fleet.job_name, fleet.launcher_options = name, options
    line = [str(_TRAINING), "--steps", "1000000", "--step-seconds-min", str(step_s)]
    fleet.launch_script(line)
    try:
        fleet.until("training", _PATIENCE_S, lambda: fleet.job().state == "running")
        before = fleet.step()
        fleet.until("some steps", _PATIENCE_S, lambda: fleet.step() >= before + 30)
        yield
    finally:
        fleet.end_launchers()


def ranks(fleet: RealFleet) -> list[int]:
    """Return the training processes of all nodes."""
    return [rank.pid for name in fleet.nodes if (rank := fleet.rank(name)) is not None]


def last_words(fleet: RealFleet) -> list[str]:
    """Return the last line of each launcher, when all have ended by SIGTERM."""
    children = fleet.launchers.values()

    def over() -> bool:
        return all(child.process.poll() is not None for child in children)

    fleet.until("the end", _PATIENCE_S, over)
    said = [child.log.read_text(encoding="utf-8") for child in children]
    assert {child.process.returncode for child in children} == {128 + signal.SIGTERM}, said
    return [text.splitlines()[-1] for text in said]


def saved_step(words: list[str], where: str) -> int:
    """Return the step that all of them name."""
    found = [
        re.search(rf"was ended by its user on node-\d after step (\d+), {where}", w) for w in words
    ]
    assert all(found), words
    (step,) = {int(one[1]) for one in found if one}
    return step


def test_all_processes_of_a_job_get_the_signal_and_its_last_step_is_in_memory(
    fleet: RealFleet,
) -> None:
    with training(fleet, "all", *_SELDOM, "--grace", "30"):
        # As Slurm sends it: to whatever belongs to the step, ranks first.
        launchers = [child.process.pid for child in fleet.launchers.values()]
        for pid in (*ranks(fleet), *launchers):
            os.kill(pid, signal.SIGTERM)
        where = "which stays in memory of node-1, node-2 for 30 min"
        step = saved_step(last_words(fleet), where)
        # The loss of a step is written before its snapshot: one more may be in hand.
        assert fleet.step() - step in (0, 1)
        assert fleet.replay().returncode == 0


def test_its_last_step_is_in_storage_where_it_has_one(fleet: RealFleet, tmp_path: Path) -> None:
    stored = ("--persist", str(tmp_path / "steps"))
    with training(fleet, "stored", *_SELDOM, "--grace", "30", *stored):
        fleet.launchers["node-1"].process.send_signal(signal.SIGTERM)
        fleet.until("its end", _PATIENCE_S, lambda: fleet.job().state == "ended")
        said = fleet.launchers["node-1"].log
        fleet.until("words", _PATIENCE_S, lambda: "in storage" in said.read_text())
        (step,) = re.findall(r"after step (\d+), which is in storage", said.read_text())
        assert fleet.step() - int(step) in (0, 1)
        found = [path.name for path in (tmp_path / "steps").rglob("step-*")]
        assert any(int(re.findall(r"\d+", name)[0]) == int(step) for name in found), found


def test_a_grace_that_is_too_short_for_a_step_keeps_the_newest_that_is_committed(
    fleet: RealFleet,
) -> None:
    with training(fleet, "short", "--snapshot-every", "10", "--grace", "1.2", step_s=0.5):
        launcher = fleet.launchers["node-1"]
        launcher.process.send_signal(signal.SIGTERM)
        fleet.until("its end", _PATIENCE_S, lambda: fleet.job().state == "ended")
        fleet.until("words", _PATIENCE_S, lambda: launcher.process.poll() is not None)
        said = launcher.log.read_text()
        assert "another step would need" in said, said
        (step,) = {int(one) for one in re.findall(r"after step (\d+), which stays", said)}
        assert step % 10 == 0
        assert 0 <= fleet.step() - step <= 12


def test_a_signal_to_one_rank_alone_costs_a_restart_and_ends_no_job(
    fleet: RealFleet,
) -> None:
    with training(fleet, "one", "--snapshot-every", "1", "--grace", "30"):
        os.kill(ranks(fleet)[0], signal.SIGTERM)
        fleet.until("a restart", _PATIENCE_S, lambda: max(fleet.first_steps(), default=0) >= 2)
        fleet.until("running", _PATIENCE_S, lambda: fleet.job().state == "running")
        assert all(child.process.poll() is None for child in fleet.launchers.values())
