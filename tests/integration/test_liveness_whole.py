"""Silences that are no loss, in real processes: ranks step on, in their first generation."""

import os
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from everstep_cli.client.admin import list_nodes
from everstep_cli.demo.processes import Child
from integration.real_fleet import RealFleet, running_fleet

pytestmark = pytest.mark.timeout(600)

_NODES = ("node-1", "node-2", "node-3")
# More than the tests wait for: they end the job, not the job the tests.
_STEPS, _STEP_S = 100_000, 0.05
_STEPS_AFTER = 20
_PATIENCE_S = 60.0

Disturbance = Callable[[RealFleet], None]


def _pause(child: Child | None, seconds: float) -> None:
    assert child is not None
    os.kill(child.process.pid, signal.SIGSTOP)
    time.sleep(seconds)
    os.kill(child.process.pid, signal.SIGCONT)


def _paused_agent(seconds: float) -> Disturbance:
    return lambda fleet: _pause(fleet.agents["node-2"], seconds)


def _paused_agents(seconds: float) -> Disturbance:
    def pause(fleet: RealFleet) -> None:
        pids = [agent.process.pid for agent in fleet.agents.values()]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)

    return pause


def _restarted_agent(number: int, away_s: float) -> Disturbance:
    def restart(fleet: RealFleet) -> None:
        agent = fleet.agents.pop("node-2")
        agent.process.send_signal(number)
        agent.process.wait(20)
        time.sleep(away_s)
        fleet.start_agent("node-2")

    return restart


def _paused_controller(seconds: float) -> Disturbance:
    return lambda fleet: _pause(fleet.controller, seconds)


@pytest.fixture(scope="module")
def fleet() -> Iterator[RealFleet]:
    """One job for all silences: none of them ends its first generation."""
    with running_fleet(*_NODES) as fleet:
        fleet.launch(_STEPS, _STEP_S)
        fleet.until("steps", _PATIENCE_S, lambda: fleet.step() > _STEPS_AFTER)
        yield fleet


@pytest.mark.parametrize(
    "disturb",
    [
        pytest.param(_paused_agent(2.0), id="an agent stopped for 2 s"),
        pytest.param(_paused_agent(6.0), id="an agent stopped for 6 s"),
        pytest.param(_paused_agent(20.0), id="an agent stopped for 20 s", marks=pytest.mark.long),
        pytest.param(_paused_agents(6.0), id="all agents stopped for 6 s"),
        pytest.param(_restarted_agent(signal.SIGTERM, 1.0), id="an agent restarted"),
        pytest.param(
            _restarted_agent(signal.SIGTERM, 10.0), id="one away 10 s", marks=pytest.mark.long
        ),
        pytest.param(_restarted_agent(signal.SIGKILL, 3.0), id="an agent killed, back after 3 s"),
        pytest.param(
            _paused_controller(20.0), id="the controller stopped for 20 s", marks=pytest.mark.long
        ),
    ],
)
def test_a_job_whose_ranks_step_loses_no_step_to_a_silence(
    fleet: RealFleet, disturb: Disturbance
) -> None:
    disturb(fleet)
    reached = fleet.step()
    fleet.until("more steps", _PATIENCE_S, lambda: fleet.step() > reached + _STEPS_AFTER)
    fleet.until("all nodes connected", _PATIENCE_S, lambda: _connected(fleet))
    assert list(fleet.first_steps()) == [1], fleet.logs()
    assert fleet.job().generation == 1
    # On a busy machine an agent may come back after the time at which its absence is a finding.
    fleet.until("healthy nodes", _PATIENCE_S, fleet.healthy)


@pytest.mark.long
def test_a_stopped_agent_hangs_also_when_its_stream_has_ended_and_a_killed_one_is_gone() -> None:
    with running_fleet(*_NODES) as fleet:
        hung, gone = fleet.agents["node-2"], fleet.agents.pop("node-3")
        os.kill(hung.process.pid, signal.SIGSTOP)
        os.kill(gone.process.pid, signal.SIGKILL)
        wanted = {("node-2", "AgentHung"), ("node-3", "AgentGone")}
        fleet.until("findings", _PATIENCE_S, lambda: wanted <= _found(fleet))
        fleet.until("the end of its stream", _PATIENCE_S, lambda: not _is_open(fleet, "node-2"))
        time.sleep(5.0)  # a third finding would come with the next looks at streams
        assert _found(fleet) == wanted, fleet.logs()
        os.kill(hung.process.pid, signal.SIGCONT)
        fleet.start_agent("node-3")
        fleet.until("no finding", _PATIENCE_S, lambda: not _found(fleet))


def _found(fleet: RealFleet) -> set[tuple[str, str]]:
    found = fleet.findings()
    return {(one.node, one.condition) for one in found if one.condition.startswith("Agent")}


def _is_open(fleet: RealFleet, name: str) -> bool:
    return next(node.connected for node in list_nodes(fleet.admin).nodes if node.node == name)


def _connected(fleet: RealFleet) -> bool:
    return all(node.connected for node in list_nodes(fleet.admin).nodes)
