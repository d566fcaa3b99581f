"""A job that was cancelled, or failed, is run again: it goes on from what its nodes have kept."""

import os
import signal

import pytest

from everstep_cli.client.admin import AdminError
from everstep_proto.generated import admin_pb2
from integration.real_fleet import JOB, RealFleet, running_fleet

_TIMEOUT_S = 60


def _cancelled(fleet: RealFleet, *nodes: str) -> None:
    """Run the job on these nodes until some steps are recoverable, and have its user end it."""
    _trained(fleet, *nodes)
    for child in fleet.launchers.values():
        child.process.send_signal(signal.SIGTERM)
    _ended(fleet)


def _failed(fleet: RealFleet, *nodes: str) -> None:
    """Run it as long, and have a rank die that is not replaced."""
    fleet.launcher_options = ("--max-restarts", "0")
    _trained(fleet, *nodes)
    rank = fleet.rank(nodes[-1])
    assert rank is not None
    os.kill(rank.pid, signal.SIGKILL)
    _ended(fleet)


def _trained(fleet: RealFleet, *nodes: str) -> None:
    _launch(fleet, *nodes, steps=100_000)
    fleet.until("recoverable steps", _TIMEOUT_S, lambda: _recoverable(fleet) >= 10)


def _ended(fleet: RealFleet) -> None:
    fleet.until("its end", _TIMEOUT_S, lambda: _gone(fleet) and fleet.job().state == "ended")


def _launch(fleet: RealFleet, *nodes: str, steps: int) -> None:
    everywhere, fleet.nodes = fleet.nodes, nodes
    fleet.launchers.clear()
    fleet.launch(steps=steps, step_s=0.02)
    fleet.nodes = everywhere


def _gone(fleet: RealFleet) -> bool:
    return all(child.process.poll() is not None for child in fleet.launchers.values())


def _well(fleet: RealFleet) -> bool:
    return all(child.process.poll() == 0 for child in fleet.launchers.values())


def _recoverable(fleet: RealFleet) -> int:
    try:
        sheet = fleet.sheet(JOB)
    except AdminError:
        return -1
    return sheet.recoverable_step if sheet.has_recoverable else -1


def _said(fleet: RealFleet, node: str) -> str:
    return fleet.launchers[node].log.read_text(encoding="utf-8")


@pytest.mark.timeout(240)
def test_it_goes_on_from_the_memory_of_other_nodes_with_another_size_after_a_restart() -> None:
    with running_fleet("node-1", "node-2", "node-3") as fleet:
        _cancelled(fleet, "node-1", "node-2")
        before = max(fleet.losses())
        fleet.end_controller()
        fleet.start_controller()
        fleet.until("healthy nodes", _TIMEOUT_S, fleet.healthy)
        _launch(fleet, "node-3", steps=before + 20)
        fleet.until("the end", _TIMEOUT_S, lambda: _well(fleet))
        # Each step was computed, and one that was computed twice had the same loss, to the bit.
        assert sorted(fleet.losses()) == list(range(before + 20))
        first = fleet.first_steps()[2]
        assert 10 < first <= before + 1
        sentence = f"continues after step {first - 1} of the job that was cancelled"
        said = _said(fleet, "node-3")
        assert sentence in said
        assert "from memory of node-1, node-2; use --fresh to start from scratch" in said
        sheet = fleet.everstep("job", JOB).stdout
        assert "of the job that was cancelled" in " ".join(sheet.split())


@pytest.mark.timeout(240)
def test_it_waits_for_its_nodes_while_the_controller_is_killed() -> None:
    with running_fleet("node-1", "node-2", "node-3") as fleet:
        _failed(fleet, "node-1", "node-2")
        before = max(fleet.losses())
        # One of two launchers has come, then the controller goes, then the other one comes.
        fleet.launcher_options = ("--nnodes", "2")
        _launch(fleet, "node-3", steps=before + 20)
        fleet.until("its launcher", _TIMEOUT_S, lambda: fleet.job().state == "forming")
        fleet.end_controller()
        fleet.start_controller()
        fleet.until("healthy nodes", _TIMEOUT_S, fleet.healthy)
        first = dict(fleet.launchers)
        _launch(fleet, "node-1", steps=before + 20)
        fleet.launchers |= first
        fleet.until("the end", _TIMEOUT_S, lambda: _well(fleet))
        assert sorted(fleet.losses()) == list(range(before + 20))
        assert fleet.first_steps()[2] > 10
        assert "of the job that failed" in _said(fleet, "node-1")


@pytest.mark.timeout(240)
@pytest.mark.parametrize("how", ["fresh", "another token"])
def test_it_begins_anew_where_its_user_wants_so_and_for_another_token(how: str) -> None:
    with running_fleet("node-1", "node-2", "node-3") as fleet:
        _cancelled(fleet, "node-1", "node-2")
        if how == "fresh":
            fleet.launcher_options = ("--fresh",)
        else:
            fleet.variables = {"EVERSTEP_JOB_TOKEN": "of somebody else"}
        _launch(fleet, "node-3", steps=5)
        fleet.until("the end", _TIMEOUT_S, lambda: _well(fleet))
        assert fleet.first_steps()[2] == 0
        said = _said(fleet, "node-3")
        assert ("as --fresh asks" if how == "fresh" else "had another token") in said
        # Nobody can go on from it any more, so nobody keeps it.
        fleet.until("free memory", _TIMEOUT_S, lambda: not _held(fleet))


def _held(fleet: RealFleet) -> bool:
    return any(
        fleet.admin.stream(lambda stub: stub.ListCopies, admin_pb2.ListCopiesRequest(job=JOB))
    )


@pytest.mark.timeout(240)
def test_it_begins_when_the_one_before_has_ended_though_a_launcher_of_that_hangs() -> None:
    with running_fleet("node-1", "node-2", "node-3") as fleet:
        _trained(fleet, "node-1", "node-2")
        left, hanging = (fleet.launchers[name].process for name in ("node-1", "node-2"))
        hanging.send_signal(signal.SIGSTOP)
        left.send_signal(signal.SIGTERM)
        # Its agent gives the other one seconds to stop its ranks, and does it then itself.
        fleet.until("its user is gone", _TIMEOUT_S, lambda: left.poll() is not None)
        _launch(fleet, "node-3", steps=max(fleet.losses()) + 20)
        fleet.until("the end", _TIMEOUT_S, lambda: _well(fleet))
        assert "of the job that was cancelled" in _said(fleet, "node-3")
