"""An agent that stays away beside a job that goes on, in real processes: what people read."""

import json
import os
import signal
from collections.abc import Iterator

import pytest

from everstep_cli.demo.processes import Child
from integration.real_fleet import JOB, RealFleet, running_fleet

pytestmark = pytest.mark.timeout(600)

_NODES = ("node-1", "node-2", "node-3")
_STEPS, _STEP_S = 100_000, 0.05
_PATIENCE_S = 60.0
_LIMIT_S = 4.0


@pytest.fixture(scope="module")
def fleet() -> Iterator[RealFleet]:
    """One job for all absences: it goes on in its first generation."""
    with running_fleet(*_NODES, core_lines=(f"unsaved_max_s = {_LIMIT_S}",)) as fleet:
        fleet.launch(_STEPS, _STEP_S)
        fleet.until(
            "steps", _PATIENCE_S, lambda: fleet.step() > 20 and fleet.recoverable_step() > 0
        )
        yield fleet


def _is_found(fleet: RealFleet) -> bool:
    return any(one.condition == "StepsUnsaved" for one in fleet.findings())


def _found(fleet: RealFleet) -> list[dict[str, str]]:
    told = json.loads(fleet.everstep("findings", "--json").stdout)["findings"]
    return [one for one in told if one["condition"] == "StepsUnsaved"]


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSTOP], ids=["ended", "killed", "stopped"]
)
def test_a_job_without_the_agent_of_a_member_says_what_a_failure_would_cost(
    fleet: RealFleet, number: int
) -> None:
    agent = fleet.agents.pop("node-2")
    os.kill(agent.process.pid, number)
    fleet.until("a finding", _PATIENCE_S, lambda: _is_found(fleet))
    kept = fleet.recoverable_step()
    (found,) = _found(fleet)
    assert found["component"] == f"controller/snapshots/{JOB}"
    assert f"no step after {kept} is recoverable" in found["message"]
    assert "the agent of node-2 is away" in found["message"]
    for told in (fleet.everstep("why", JOB).stdout, fleet.everstep("job", JOB).stdout):
        words = " ".join(told.split())
        assert "journalctl -u everstep-agent" in words or "StepsUnsaved" in words
        assert f"a failure of {JOB} now costs" in words
    _bring_back(fleet, agent, number)
    fleet.until("saved steps", _PATIENCE_S, lambda: fleet.recoverable_step() > kept)
    fleet.until("no finding", _PATIENCE_S, lambda: not _is_found(fleet))
    fleet.until("its agent", _PATIENCE_S, fleet.healthy)
    assert fleet.job().generation == 1


def _bring_back(fleet: RealFleet, agent: Child, number: int) -> None:
    if number == signal.SIGSTOP:
        os.kill(agent.process.pid, signal.SIGCONT)
        fleet.agents["node-2"] = agent
    else:
        fleet.start_agent("node-2")
