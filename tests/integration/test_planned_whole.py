"""Planned work on a real job: real controller, agents and ranks, and not a step is lost."""

import os
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
# Times of an operator's day, in a test's minute.
_CORE = (
    "growth_delay_s = 1.0",
    "growth_interval_min_s = 1.0",
    # So long a busy machine may take to come to the step before the window.
    "maintenance_drain_lead_s = 25.0",
    "maintenance_stop_lead_s = 25.0",
    "maintenance_duration_min_s = 1.0",
    "probation_s = 1.0",
)
# A script that says which version of it was run, and then trains.
_WRAPPED = """import pathlib, runpy, sys
pathlib.Path(sys.argv[-1]).with_suffix(".code").write_text("{version}")
sys.argv[0] = "{training}"
runpy.run_path("{training}", run_name="__main__")
"""


@pytest.fixture
def fleet() -> Iterator[RealFleet]:
    with running_fleet("node-1", "node-2", "node-3", core_lines=_CORE) as fleet:
        yield fleet


@pytest.fixture
def pair() -> Iterator[RealFleet]:
    with running_fleet("node-1", "node-2", core_lines=_CORE) as fleet:
        yield fleet


def _train(fleet: RealFleet, nodes: str, script: Path = _TRAINING) -> None:
    line = [str(script), "--steps", "1000000", "--step-seconds-min", "0.05"]
    fleet.launch_script(line, nodes=nodes)
    fleet.until("training", _PATIENCE_S, lambda: fleet.job().state == "running")
    fleet.until("some steps", _PATIENCE_S, lambda: fleet.step() >= 5)


def _planned(fleet: RealFleet, number: int) -> admin_pb2.Incident:
    """Wait until so many restarts are over, and return the last; each was planned and lossless."""

    def over() -> bool:
        done = _job(fleet).incidents
        return len(done) == number and all(one.over_ns for one in done)

    fleet.until(f"{number} planned restarts", _PATIENCE_S, over)
    last = _job(fleet).incidents[-1]
    assert last.cause in ("operator", "drain", "maintenance", "growth"), last
    assert last.step_restored >= last.step_before, last
    # The controller may hear of a step from another rank before rank 0 has written it down.
    fleet.until("its first step", _PATIENCE_S, lambda: _began_after(fleet) == last.step_restored)
    categories = {cost.name for cost in fleet.ledger(JOB).categories if cost.time_ns}
    assert "planned" in categories
    assert not [name for name in categories if name.startswith("inc.")]
    return last


def _began_after(fleet: RealFleet) -> int:
    """Return the step that the newest generation which has trained went on from."""
    begun = fleet.first_steps()
    return begun[max(begun)] - 1


def _job(fleet: RealFleet) -> admin_pb2.JobDetail:
    try:
        return fleet.sheet(JOB)
    except AdminError:
        return admin_pb2.JobDetail()


def _goes_on(fleet: RealFleet) -> None:
    """Wait for new steps, and see that none of all was computed twice with another result."""
    reached = fleet.step()
    fleet.until("new steps", _PATIENCE_S, lambda: fleet.step() >= reached + 5)
    found = fleet.losses()
    assert sorted(found) == list(range(len(found)))


def _members(fleet: RealFleet) -> list[str]:
    return list(fleet.job().members)


def _summary(fleet: RealFleet, node: str) -> admin_pb2.NodeSummary:
    try:
        return fleet.detail(node).summary
    except AdminError:
        return admin_pb2.NodeSummary()


def _state(fleet: RealFleet, node: str) -> str:
    return str(_summary(fleet, node).state)


def test_a_drained_node_is_left_for_a_spare_and_no_step_is_lost(fleet: RealFleet) -> None:
    _train(fleet, nodes="2")
    left = _members(fleet)[1]
    told = fleet.everstep("drain", left, "--reason", "fan")
    assert "goes on without" in told.stdout, told.stderr
    last = _planned(fleet, 1)
    assert last.plan == "spare"
    assert left not in _members(fleet)
    _goes_on(fleet)
    account = fleet.everstep("job", JOB).stdout
    assert "fan" in account


def test_a_restart_at_a_step_that_the_cadence_leaves_out_takes_the_changed_script(
    pair: RealFleet,
) -> None:
    script = pair.folder / "job.py"
    script.write_text(_WRAPPED.format(version="old", training=_TRAINING))
    pair.launcher_options = ("--snapshot-every", "50")
    _train(pair, nodes="2", script=script)
    step = pair.step() // 50 * 50 + 187
    script.write_text(_WRAPPED.format(version="new", training=_TRAINING))
    line = ("job", JOB, "restart", "--at-step", str(step), "--reason", "new rate")
    told = pair.everstep(*line)
    assert told.returncode == 0, told.stderr
    assert _planned(pair, 1).step_restored == step
    codes = {int(p.stem): p.read_text() for p in (pair.folder / "losses").glob("*.code")}
    assert codes == {1: "old", 2: "new"}
    _goes_on(pair)


def test_a_job_that_left_a_node_grows_when_it_is_released(pair: RealFleet) -> None:
    _train(pair, nodes="1:2")
    left = _members(pair)[1]
    assert pair.everstep("drain", left, "--reason", "fan").returncode == 0
    assert _planned(pair, 1).plan == "reform"
    assert len(_members(pair)) == 1
    assert pair.everstep("release", left).returncode == 0
    assert _planned(pair, 2).cause == "growth"
    assert len(_members(pair)) == 2
    _goes_on(pair)


def test_a_window_moves_the_job_outlives_the_controller_and_judges_nothing(
    fleet: RealFleet,
) -> None:
    _train(fleet, nodes="2")
    node = _members(fleet)[1]
    line = ("maintenance", "add", node, "--from", "in 26s", "--for", "10m", "--reason", "fans")
    told = fleet.everstep(*line)
    assert f"{JOB} goes on elsewhere" in told.stdout, told.stderr
    again = fleet.everstep(*line)
    assert again.returncode == 1
    assert "has a window then: m-1" in again.stderr
    assert _planned(fleet, 1).plan == "spare"
    fleet.until("the window", _PATIENCE_S, lambda: _state(fleet, node) == "maintenance")
    fleet.end_controller()
    _switch_off(fleet, node)
    fleet.start_controller()
    fleet.until("it is back", _PATIENCE_S, lambda: _state(fleet, node) == "maintenance")
    fleet.start_agent(node)
    fleet.until("its agent", _PATIENCE_S, lambda: _summary(fleet, node).connected)
    assert _state(fleet, node) == "maintenance"
    ended = fleet.everstep("maintenance", "cancel", "m-1")
    assert ended.returncode == 0, ended.stderr
    fleet.until("checked", _PATIENCE_S, lambda: _state(fleet, node) in ("probation", "healthy"))
    assert not _summary(fleet, node).claims
    assert "cancelled" in fleet.everstep("maintenance", "list", "--all").stdout
    assert len(_job(fleet).incidents) == 1
    _goes_on(fleet)


@pytest.mark.long
def test_without_a_spare_the_job_waits_for_the_windows_end_and_says_so_before(
    pair: RealFleet,
) -> None:
    _train(pair, nodes="2")
    node = _members(pair)[1]
    line = ("maintenance", "add", node, "--from", "in 26s", "--for", "6s")
    told = pair.everstep(*line)
    assert f"will interrupt {JOB}" in told.stdout, told.stderr
    assert f"will interrupt {JOB}" in pair.everstep("findings").stdout
    assert f"will interrupt {JOB}" in pair.everstep("maintenance", "list").stdout
    waits = "waiting_capacity"
    pair.until("it waits", _PATIENCE_S, lambda: pair.job().state == waits)
    assert _planned(pair, 1).plan == "waited"
    assert node in _members(pair)
    assert "over" in pair.everstep("maintenance", "list", "--all").stdout
    _goes_on(pair)


def _switch_off(fleet: RealFleet, node: str) -> None:
    """End everything of a node, as its power switch does."""
    for child in (fleet.agents.pop(node), fleet.launchers[node]):
        for process in fleet.owned.below(child):
            os.kill(process.pid, signal.SIGKILL)
        child.process.kill()
        child.process.wait(20)
