"""An agent that stays away, in real processes: its ranks bring steps to the job's folder."""

import os
import signal

import pytest

from integration.real_fleet import JOB, TRAINING, RealFleet, running_fleet

pytestmark = pytest.mark.timeout(600)

_NODES = ("node-1", "node-2", "node-3")
_STEPS, _STEP_S = 20_000, 0.05
_PATIENCE_S = 180.0
# Longer than a rank waits before it looks for what it is to write.
_LIMIT_S = 25.0


def _begin(fleet: RealFleet, number: int) -> int:
    """Have two members train beside a spare, the second without its agent; return their step."""
    folder = fleet.folder / "stored"
    folder.mkdir()
    # So seldom that nothing but what is asked of absent ranks is stored.
    fleet.launcher_options = ("--persist", str(folder), "--persist-seconds", "100000")
    script = ["--steps", str(_STEPS), "--step-seconds-min", str(_STEP_S)]
    fleet.launch_script([str(TRAINING), *script], nodes="2")
    fleet.until("steps", _PATIENCE_S, lambda: fleet.step() > 20 and fleet.recoverable_step() > 0)
    agent = fleet.agents.pop(_member(fleet))
    os.kill(agent.process.pid, number)
    return fleet.recoverable_step()


def _bring_back(fleet: RealFleet, name: str, number: int) -> None:
    if number == signal.SIGSTOP:
        stopped = next(one for one in fleet.owned.children if one.name == f"{name}-agent")
        os.kill(stopped.process.pid, signal.SIGCONT)
        fleet.agents[name] = stopped
    else:
        fleet.start_agent(name)


def _waits(fleet: RealFleet, name: str) -> bool:
    """Return whether a node waits as a spare."""
    return name in fleet.job().spares


def _member(fleet: RealFleet) -> str:
    """Return the last member: the first one's agent may be whom all ranks meet at."""
    return max(name for name in _NODES if fleet.rank(name) is not None)


# Each way that an agent is away is in one of the two tests that CI runs.
_ENDED = pytest.param(signal.SIGKILL, id="ended")
_STOPPED = pytest.param(signal.SIGSTOP, id="stopped")


@pytest.mark.parametrize(
    "number", [_STOPPED, pytest.param(signal.SIGKILL, id="ended", marks=pytest.mark.long)]
)
def test_ranks_without_an_agent_bring_steps_to_the_jobs_folder(number: int) -> None:
    with running_fleet(*_NODES, core_lines=(f"unsaved_max_s = {_LIMIT_S}",)) as fleet:
        kept = _begin(fleet, number)
        fleet.until("a stored step", _PATIENCE_S, lambda: fleet.recoverable_step() > kept + 100)
        first = fleet.recoverable_step()
        fleet.until("another one", _PATIENCE_S, lambda: fleet.recoverable_step() > first)
        assert fleet.job().generation == 1
        safe = fleet.recoverable_step()
        rank = fleet.rank(_member(fleet))
        assert rank is not None
        os.kill(rank.pid, signal.SIGKILL)
        fleet.until("the next generation", _PATIENCE_S, lambda: 2 in fleet.first_steps())
        assert fleet.first_steps()[2] > safe, fleet.everstep("job", JOB).stdout
        assert fleet.replay().returncode == 0


@pytest.mark.parametrize(
    "number", [_ENDED, pytest.param(signal.SIGSTOP, id="stopped", marks=pytest.mark.long)]
)
def test_ranks_without_an_agent_move_to_a_spare_where_automation_may(number: int) -> None:
    lines = (f"unsaved_max_s = {_LIMIT_S}", 'enforce = ["StepsUnsaved"]')
    with running_fleet(*_NODES, core_lines=lines) as fleet:
        kept = _begin(fleet, number)
        member = _member(fleet)
        assert fleet.rank(member) is not None
        fleet.until("the next generation", _PATIENCE_S, lambda: 2 in fleet.first_steps())
        first = fleet.first_steps()[2]
        assert first > kept + 100, fleet.everstep("job", JOB).stdout
        moved = next(one for one in fleet.sheet(JOB).incidents if one.cause == "drain")
        assert f"the agent of {member} is away, and a spare takes its place" in moved.message
        # Losses that are computed twice are compared to the bit.
        fleet.until("saved steps", _PATIENCE_S, lambda: fleet.recoverable_step() > first + 100)
        # Nobody could tell it: it has lost those with whom it stepped.
        fleet.until("no rank of before", _PATIENCE_S, lambda: fleet.rank(member) is None)
        _bring_back(fleet, member, number)
        fleet.until("a spare", _PATIENCE_S, lambda: fleet.healthy() and _waits(fleet, member))
        assert fleet.job().generation == 2
        assert fleet.losses()
        assert fleet.replay().returncode == 0
