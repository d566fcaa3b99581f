"""A real controller is killed, then a rank: the job goes on without it, and it adopts that."""

import json
import os
import signal

import pytest

from integration.real_fleet import JOB, RealFleet, running_fleet

pytestmark = pytest.mark.timeout(240)
_PATIENCE_S = 60
_LAST = 260


def _kill_rank(fleet: RealFleet) -> None:
    rank = fleet.rank("n0")
    assert rank is not None
    os.kill(rank.pid, signal.SIGKILL)


def _generations(fleet: RealFleet) -> list[int]:
    return sorted(fleet.first_steps())


def test_a_job_of_one_node_outlives_its_controller_and_is_adopted() -> None:
    with running_fleet("n0") as fleet:
        fleet.launch(_LAST, 0.05)
        fleet.until("steps", _PATIENCE_S, lambda: fleet.step() > 20)
        fleet.end_controller()
        gone_at = fleet.step()
        # Further than the slots reach: the agent itself frees what is not needed any more.
        fleet.until("steps without it", _PATIENCE_S, lambda: fleet.step() > gone_at + 20)
        before = fleet.step()
        _kill_rank(fleet)
        fleet.until("a new generation", _PATIENCE_S, lambda: _generations(fleet) == [1, 2])
        fleet.until("new steps", _PATIENCE_S, lambda: fleet.step() > before + 5)
        # Lost steps: those in flight between a commit and its verification.
        assert fleet.first_steps()[2] >= before - 2
        said = fleet.launchers["n0"].log.read_text(encoding="utf-8")
        assert "restarted here while the controller is away, because rank 0 was killed" in said
        fleet.start_controller()
        fleet.until("adoption", _PATIENCE_S, lambda: fleet.job().generation == 2)
        fleet.until("the end", 2 * _PATIENCE_S, lambda: fleet.job().state == "ended")
        assert _generations(fleet) == [1, 2]
        steps = sorted(fleet.losses())
        assert steps == list(range(steps[0], steps[0] + _LAST))
        detail = fleet.sheet(JOB)
        assert detail.restarts == 1
        (incident,) = detail.incidents
        assert incident.plan == "in_place"
        assert incident.over_ns > incident.onset_ns
        ledger = fleet.ledger(JOB)
        assert sum(one.time_ns for one in ledger.categories) == ledger.wall_ns
        replayed = fleet.replay()
        assert replayed.returncode == 0, json.dumps(replayed.stdout + replayed.stderr)


def test_a_job_of_two_nodes_waits_for_the_controller_and_says_so() -> None:
    with running_fleet("n0", "n1") as fleet:
        fleet.launch(10_000, 0.05)
        fleet.until("steps", _PATIENCE_S, lambda: fleet.step() > 10)
        fleet.end_controller()
        rank = fleet.rank("n1")
        assert rank is not None
        os.kill(rank.pid, signal.SIGKILL)
        log = fleet.launchers["n1"].log
        waits = "the controller is away: the job waits for it"
        fleet.until("its word", _PATIENCE_S, lambda: waits in log.read_text(encoding="utf-8"))
        assert _generations(fleet) == [1]
        fleet.start_controller()
        fleet.until("a new generation", _PATIENCE_S, lambda: _generations(fleet) == [1, 2])
