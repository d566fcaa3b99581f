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


def test_a_job_is_restarted_at_once_for_a_rank_that_cannot_go_on_by_itself() -> None:
    with running_fleet("node-1", "node-2", core_lines=("stall_timeout_s = 1.0",)) as fleet:
        _stop_a_rank(fleet)
        _ends_well(fleet)
        (incident,) = fleet.sheet(JOB).incidents
        assert incident.cause == "stalled"
        first = fleet.first_steps()
        assert set(first) == {1, 2}
        assert first[2] > 0
        told = fleet.everstep("events", "--subject", JOB).stdout
        assert "is stalled: no step for" in told
        assert "its process is stopped" in told or "frozen" in told
        evidence = list(fleet.journal.with_suffix(".hangs").iterdir())
        assert evidence
        assert all(file.stat().st_mode & 0o077 == 0 for file in evidence)
