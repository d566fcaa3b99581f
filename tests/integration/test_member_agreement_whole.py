"""The controller is away for a while, in real processes: what a job on three nodes loses by it."""

import os
import signal

import pytest

from integration.real_fleet import RealFleet, running_fleet

pytestmark = pytest.mark.timeout(300)

_NODES = ("node-1", "node-2", "node-3")
_STEPS, _STEP_S = 5000, 0.05
_PATIENCE_S = 60.0
# Steps without the controller: far more than slots hold, and than the members' words need.
_ALONE = 300


def _train_alone(fleet: RealFleet) -> int:
    """Have the job train without a controller; return its step when it went."""
    fleet.launch(_STEPS, _STEP_S)
    fleet.until("steps", _PATIENCE_S, lambda: fleet.step() > 60)
    fleet.end_controller()
    went = fleet.step()
    fleet.until("steps alone", _PATIENCE_S, lambda: fleet.step() > went + _ALONE)
    return went


def test_a_rank_that_dies_without_a_controller_costs_seconds_and_not_the_whole_absence() -> None:
    with running_fleet(*_NODES) as fleet:
        went = _train_alone(fleet)
        rank = fleet.rank("node-2")
        assert rank is not None
        os.kill(rank.pid, signal.SIGKILL)
        died = fleet.step()
        fleet.start_controller()
        fleet.until("the next generation", 2 * _PATIENCE_S, lambda: 2 in fleet.first_steps())
        first = fleet.first_steps()[2]
        assert first > went + _ALONE // 2, f"from {first}; {went} when it went, {died} at the end"


def test_after_the_controller_is_back_all_is_as_before() -> None:
    with running_fleet(*_NODES) as fleet:
        _train_alone(fleet)
        fleet.start_controller()
        fleet.until("the controller", _PATIENCE_S, lambda: fleet.recoverable_step() > 0)
        back = fleet.step()
        fleet.until("new steps", _PATIENCE_S, lambda: fleet.recoverable_step() > back + 20)
        assert fleet.job().generation == 1
        assert fleet.replay().returncode == 0
