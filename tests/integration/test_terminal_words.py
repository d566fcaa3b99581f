"""What people read at their terminals, of a real controller, real agents and a real job."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep_cli.client.admin import AdminError
from everstep_proto.generated import admin_pb2
from integration.real_fleet import JOB, RealFleet, running_fleet

pytestmark = pytest.mark.timeout(600)
_PATIENCE_S = 90.0
_TRAINING = Path(__file__).parents[2] / "examples" / "train_numpy.py"
_CORE = ("maintenance_duration_min_s = 1.0", "probation_s = 1.0")
# No test lives to see it.
_FAR_STEP = 500_000


@pytest.fixture
def pair() -> Iterator[RealFleet]:
    with running_fleet("node-1", "node-2", core_lines=_CORE) as fleet:
        yield fleet


def _launch(fleet: RealFleet) -> None:
    line = [str(_TRAINING), "--steps", "1000000", "--step-seconds-min", "0.05"]
    fleet.launch_script(line, nodes="2")


def _train(fleet: RealFleet) -> None:
    _launch(fleet)
    fleet.until("training", _PATIENCE_S, lambda: fleet.job().state == "running")
    fleet.until("some steps", _PATIENCE_S, lambda: fleet.step() >= 5)


def _said(fleet: RealFleet, node: str) -> str:
    return fleet.launchers[node].log.read_text(encoding="utf-8", errors="replace")


def _planned(fleet: RealFleet) -> admin_pb2.PlannedLine | None:
    """Return what is planned; a controller that is away plans something that nobody waits for."""
    try:
        detail = fleet.sheet(JOB)
    except AdminError:
        return admin_pb2.PlannedLine()
    return detail.planned if detail.HasField("planned") else None


def test_a_planned_restart_is_shown_outlives_the_controller_and_is_taken_back(
    pair: RealFleet,
) -> None:
    _train(pair)
    order = ("job", JOB, "restart", "--at-step", str(_FAR_STEP), "--reason", "new rate")
    assert pair.everstep(*order).returncode == 0
    shown = pair.everstep("job", JOB).stdout
    assert f"a restart after step {_FAR_STEP}, ordered by " in shown
    assert "new rate" in shown
    assert f"for step {_FAR_STEP}, the newest is" in shown
    undo = f"everstep job {JOB} restart --cancel"
    assert undo in shown
    pair.end_controller()
    pair.start_controller()
    pair.until(
        "the plan",
        _PATIENCE_S,
        lambda: (line := _planned(pair)) is not None and line.after_step == _FAR_STEP,
    )
    told = pair.everstep(*undo.split()[1:])
    assert told.returncode == 0, told.stderr
    assert f"{JOB} goes on as it is" in told.stdout
    assert _planned(pair) is None
    assert "to undo" not in pair.everstep("job", JOB).stdout
    assert "RestartCancelled" in pair.everstep("events", "--subject", JOB).stdout
    again = pair.everstep(*undo.split()[1:])
    assert again.returncode == 1
    assert "no restart of train is planned" in again.stderr
    reached = pair.step()
    pair.until("it trains on", _PATIENCE_S, lambda: pair.step() >= reached + 5)
    assert set(pair.first_steps()) == {1}
    pair.end_controller()
    replayed = pair.replay()
    assert replayed.returncode == 0, replayed.stdout


def test_a_launcher_on_a_node_in_maintenance_says_until_when_and_a_release_what_ends_it(
    pair: RealFleet,
) -> None:
    line = ("maintenance", "add", "node-1", "--from", "now", "--for", "1h", "--reason", "fans")
    assert pair.everstep(*line).returncode == 0
    undo = "everstep maintenance cancel m-1"
    _launch(pair)
    pair.until("why it waits", _PATIENCE_S, lambda: undo in _said(pair, "node-1"))
    assert ": fans)" in _said(pair, "node-1")
    pair.until(
        "why the other waits", _PATIENCE_S, lambda: "node-1 takes none now" in _said(pair, "node-2")
    )
    told = pair.everstep("release", "node-1")
    assert told.returncode == 0, told.stderr
    assert undo in told.stdout
    assert pair.everstep(*undo.split()[1:]).returncode == 0
    pair.until("training", _PATIENCE_S, lambda: pair.job().state == "running")


def test_who_ended_a_job_is_what_is_read_last_on_every_node(pair: RealFleet) -> None:
    _train(pair)
    pair.launchers["node-1"].process.send_signal(signal.SIGINT)
    launchers = [pair.launchers["node-1"], pair.launchers["node-2"]]
    pair.until("the end", _PATIENCE_S, lambda: None not in [one.exit_code for one in launchers])
    last = _said(pair, "node-2").splitlines()[-1]
    assert last.startswith(f"everstep: job {JOB} was ended by its user on node-1 after step ")
    assert last.endswith(", which stays in memory of node-1, node-2 for 30 min")
    assert _said(pair, "node-1").splitlines()[-1] == last
    assert "SIGINT" in _said(pair, "node-1")
