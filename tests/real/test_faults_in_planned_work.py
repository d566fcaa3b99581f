"""Faults in planned work: the job goes on, the books are right, and no order is left open."""

import pytest

from integration.real_fleet import JOB
from real.fault_books import check_planned_books, safe_step
from real.fault_world import FaultWorld, alone
from real.planned_faults import FAULTS, strike
from real.planned_work import PLANS, SCRIPT, go_on, planned_world, reach

pytestmark = [pytest.mark.real, pytest.mark.timeout(280)]
_MOMENTS = {
    "drain": ("waiting", "saving", "starting"),
    "restart": ("waiting", "saving", "starting"),
    "window": ("waiting", "saving", "starting"),
    "window that begins": ("beginning",),
    "growth": ("waiting", "saving", "starting"),
}
_CELLS = [(plan, moment, fault) for plan in PLANS for moment in _MOMENTS[plan] for fault in FAULTS]
# Some that are not among the long tests.
_ALWAYS = {
    ("restart", "waiting", "another node"),
    ("restart", "saving", "controller"),
    ("restart", "starting", "process"),
}


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    most = max(plan.steps for plan in PLANS.values())
    return alone(tmp_path_factory.mktemp("alone"), [SCRIPT, "--steps", str(most)])


@pytest.mark.parametrize(
    ("name", "moment", "fault"),
    [cell if cell in _ALWAYS else pytest.param(*cell, marks=pytest.mark.long) for cell in _CELLS],
)
def test_a_job_ends_as_if_nothing_had_been_whatever_breaks_in_planned_work(
    name: str, moment: str, fault: str, wanted: dict[int, str]
) -> None:
    plan = PLANS[name]
    with planned_world(plan) as world:
        node = plan.order(world)
        reach(world, plan, node, moment)
        safe = safe_step(world, stored=False)
        certain = strike(world, FAULTS[fault], node, moment)
        world.hold("")
        go_on(world)
        world.ends_well({step: wanted[step] for step in range(plan.steps)})
        if moment in ("starting", "beginning"):
            certain.add(plan.cause)
        certain |= plan.before
        allowed = {plan.cause, FAULTS[fault].cause, *plan.before}
        check_planned_books(world, allowed, certain, safe, plan.generation)
        _no_order_is_left(world, name, node)


def _no_order_is_left(world: FaultWorld, name: str, node: str) -> None:
    """See that what was planned is done, and that nobody has to do more about it."""
    assert not world.fleet.sheet(JOB).HasField("planned")
    line = world.fleet.detail(node).summary
    owners = [claim.owner for claim in line.claims]
    if name == "growth":
        assert node in world.members() or node in world.down
    elif name == "restart":
        assert world.fleet.job().generation > 1
    else:
        assert node not in world.members(), world.fleet.logs()
        assert ("operator" if name == "drain" else "maintenance") in owners, line
    if name == "window that begins":
        world.until("a window that has begun", lambda: _state(world, node) == "maintenance")


def _state(world: FaultWorld, node: str) -> str:
    return str(world.fleet.detail(node).summary.state)
