"""A rank that stands still, in a real job: it is shown, and the job loses no step."""

import os
import signal

import pytest

from integration.real_fleet import JOB, RealFleet, running_fleet

_PATIENCE_S = 60.0
_STEPS = 60

pytestmark = pytest.mark.timeout(180)


def _stop_a_rank(fleet: RealFleet) -> int:
    """Stop a training process as a debugger does; return its id."""
    fleet.launch(_STEPS, 0.05)
    fleet.until("steps", _PATIENCE_S, lambda: fleet.job().step >= 5)
    process = fleet.rank("node-2")
    assert process is not None
    os.kill(process.pid, signal.SIGSTOP)
    return process.pid


def _ends_well(fleet: RealFleet) -> None:
    launchers = fleet.launchers.values()
    fleet.until("the end", _PATIENCE_S, lambda: all(one.exit_code == 0 for one in launchers))


def test_a_job_whose_rank_stands_still_is_stalled_until_it_goes_on() -> None:
    with running_fleet("node-1", "node-2", core_lines=("stall_timeout_s = 1.0",)) as fleet:
        stopped = _stop_a_rank(fleet)
        fleet.until("stalled", _PATIENCE_S, lambda: fleet.job().state == "stalled")
        os.kill(stopped, signal.SIGCONT)
        _ends_well(fleet)
        assert set(fleet.first_steps()) == {1}
        assert "is stalled: no step for" in fleet.everstep("events", "--subject", JOB).stdout


def test_where_the_operator_wants_it_the_job_is_recovered_from_a_rank_that_stands_still() -> None:
    lines = ("stall_timeout_s = 1.0", "stall_restart_timeout_s = 5.0")
    with running_fleet("node-1", "node-2", core_lines=lines) as fleet:
        _stop_a_rank(fleet)
        _ends_well(fleet)
        (incident,) = fleet.admin.job(JOB).incidents
        assert incident.cause == "stalled"
        first = fleet.first_steps()
        assert set(first) == {1, 2}
        assert first[2] > 0
