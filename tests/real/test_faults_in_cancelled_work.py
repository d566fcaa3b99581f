"""Faults while a restart is taken back, a drain that has nowhere to go, and a rank that hangs."""

import os
import signal
from dataclasses import replace

import pytest

from everstep_cli.client.admin import AdminError
from everstep_proto.generated import admin_pb2
from integration.real_fleet import JOB
from real.fault_books import check_planned_books, safe_step
from real.fault_world import FaultWorld, alone
from real.planned_faults import FAULTS, strike
from real.planned_work import GATE, PLANS, SCRIPT, go_on, planned_world, reach

pytestmark = [pytest.mark.real, pytest.mark.timeout(280)]
_CELLS = [(moment, fault) for moment in ("waiting", "saving", "starting") for fault in FAULTS]
_ALWAYS = {("saving", "launcher")}
_GOES_ON = f"{JOB} goes on as it is"


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    most = max(plan.steps for plan in PLANS.values())
    return alone(tmp_path_factory.mktemp("alone"), [SCRIPT, "--steps", str(most)])


@pytest.mark.parametrize(
    ("moment", "fault"),
    [cell if cell in _ALWAYS else pytest.param(*cell, marks=pytest.mark.long) for cell in _CELLS],
)
def test_a_restart_is_taken_back_or_it_is_said_why_not_whatever_breaks(
    moment: str, fault: str, wanted: dict[int, str]
) -> None:
    plan = PLANS["restart"]
    with planned_world(plan) as world:
        node = plan.order(world)
        reach(world, plan, node, moment)
        safe = safe_step(world, stored=False)
        certain = strike(world, FAULTS[fault], node, moment)
        answer = _take_back(world)
        world.hold("")
        go_on(world)
        world.ends_well({step: wanted[step] for step in range(plan.steps)})
        taken_back = answer == _GOES_ON
        assert taken_back or "too late" in answer or "no restart" in answer, answer
        assert not (taken_back and moment == "starting")
        # It is satisfied by a restart for a fault, and taken back before that is known.
        allowed = {FAULTS[fault].cause} if taken_back else {plan.cause, FAULTS[fault].cause}
        certain |= {plan.cause} if moment == "starting" else set()
        check_planned_books(world, allowed, certain, safe)
        assert not world.fleet.sheet(JOB).HasField("planned")


def _take_back(world: FaultWorld) -> str:
    """Take a restart back, once there is a controller that answers; return what it says."""
    world.until("a controller", lambda: bool(world.state()))
    try:
        return str(
            world.fleet.admin.call(
                lambda stub: stub.CancelRestart,
                admin_pb2.CancelRestartRequest(job=JOB, reason="not today"),
            ).plan
        )
    except AdminError as error:
        return str(error)


@pytest.mark.long
def test_a_drain_whose_only_spare_is_lost_restarts_nothing_and_says_what_it_waits_for(
    wanted: dict[int, str],
) -> None:
    plan = replace(PLANS["restart"], steps=PLANS["drain"].steps)
    with planned_world(plan) as world:
        (spare,) = set(world.fleet.nodes) - set(world.members())
        node = world.members()[-1]
        world.fleet.admin.call(
            lambda stub: stub.Drain, admin_pb2.DrainRequest(node=node, reason="fan")
        )
        world.kill_node(spare)
        go_on(world)
        world.until("why it stays", lambda: f"stays on {node}" in _waits(world))
        world.ends_well({step: wanted[step] for step in range(plan.steps)})
        check_planned_books(world, set(), set(), GATE)


def _waits(world: FaultWorld) -> str:
    try:
        return str(world.fleet.sheet(JOB).planned.waits)
    except AdminError:
        return ""


@pytest.mark.long
def test_a_job_with_a_rank_that_hangs_goes_on_when_an_operator_restarts_it(
    wanted: dict[int, str],
) -> None:
    plan = PLANS["restart"]
    with planned_world(plan) as world:
        go_on(world)
        world.computed(GATE + 5)
        for pid in world.ranks(world.members()[-1]):
            os.kill(pid, signal.SIGSTOP)
        safe = safe_step(world, stored=False)
        told = world.fleet.everstep("job", JOB, "restart", "--reason", "a rank hangs")
        assert told.returncode == 0, told.stderr
        world.until("a job that stops", lambda: world.fleet.job().generation > 1)
        world.ends_well({step: wanted[step] for step in range(plan.steps)})
        check_planned_books(world, {"operator"}, {"operator"}, safe)
        # Of all that was computed, only the step that the rank hung in was not complete.
        assert world.fleet.first_steps()[2] >= _newest_of(world, 1)


def _newest_of(world: FaultWorld, generation: int) -> int:
    lines = (world.folder / f"{generation}.tsv").read_text(encoding="ascii").splitlines()
    return int(lines[-1].split("\t")[0])
