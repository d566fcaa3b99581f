"""Faults and what there is to recover with: every job reaches its end as if nothing had been."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from everstep_proto.generated import admin_pb2
from integration.real_fleet import JOB
from real.fault_books import check_books, safe_step, storing
from real.fault_world import FaultWorld, alone, fault_world

pytestmark = [pytest.mark.real, pytest.mark.timeout(280)]
_SCRIPT = Path(__file__).with_name("fault_job.py")
_STEPS = 60
# Long enough for a fault in the middle: sixty steps take some seconds.
_PACE = ("--step-seconds", "0.05")
Fault = Callable[[FaultWorld], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a job may recover with."""

    nodes: int
    options: tuple[str, ...]
    # What is lost comes back when the job waits for it, and not before.
    waits: bool = False


_PLANS = {
    "in place": Plan(2, ("--nnodes", "2")),
    "spare": Plan(4, ("--nnodes", "2")),
    "re-form": Plan(3, ("--nnodes", "1:3")),
    "wait": Plan(2, ("--nnodes", "2", "--policy", "wait"), waits=True),
}


def _process(world: FaultWorld) -> None:
    world.kill_process(world.members()[-1])


def _node(world: FaultWorld) -> None:
    world.kill_node(world.members()[0])


def _holder(world: FaultWorld) -> None:
    """Kill the node that holds the replica of the first rank's state."""
    first, *others = world.members()
    copies = [
        copy
        for copy in world.fleet.admin.stream(
            lambda stub: stub.ListCopies, admin_pb2.ListCopiesRequest(job=JOB)
        )
        if copy.rank == 0
    ]
    held = [copy.node for copy in copies if copy.node != first and not copy.unreachable]
    assert set(held) <= set(others), "a replica on a node that does not train"
    world.kill_node(held[0])


def _two_nodes(world: FaultWorld) -> None:
    world.kill_node(*world.members()[:2])


def _agent(world: FaultWorld) -> None:
    world.kill_agent(world.members()[-1])


def _agent_back(world: FaultWorld) -> None:
    _agent(world)
    world.revive(*world.down)


def _launcher(world: FaultWorld) -> None:
    world.kill_launcher(world.members()[-1])


def _launcher_back(world: FaultWorld) -> None:
    _launcher(world)
    world.revive(*world.down)


def _controller(world: FaultWorld) -> None:
    world.kill_controller()


def _controller_and_process(world: FaultWorld) -> None:
    name = world.members()[-1]
    world.fleet.end_controller()
    world.kill_process(name)
    world.fleet.start_controller()


def _controller_and_node(world: FaultWorld) -> None:
    name = world.members()[0]
    world.fleet.end_controller()
    world.kill_node(name)
    world.fleet.start_controller()


@dataclass(frozen=True, slots=True)
class Case:
    """One cell of the table."""

    fault: Fault
    plan: str
    # What the incident is booked with; empty when ranks go on, and there is none.
    cause: str = ""
    # Two nodes at once can hold all copies of a part, so that storage is needed.
    stored: bool = False
    # On a busy machine what comes back at once may be too late not to be missed.
    sure: bool = True


_CASES = {
    "process, in place": Case(_process, "in place", "process"),
    "launcher, in place": Case(_launcher_back, "in place", "launcher"),
    "agent, in place": Case(_agent_back, "in place", "node", sure=False),
    "controller, in place": Case(_controller, "in place"),
    "controller and process, in place": Case(_controller_and_process, "in place", "process"),
    "process, spare": Case(_process, "spare", "process"),
    "launcher, spare": Case(_launcher, "spare", "launcher"),
    "agent, spare": Case(_agent, "spare", "node"),
    "controller, spare": Case(_controller, "spare"),
    "node, spare": Case(_node, "spare", "node"),
    "holder, spare": Case(_holder, "spare", "node"),
    "two nodes, spare": Case(_two_nodes, "spare", "node", stored=True),
    "controller and node, spare": Case(_controller_and_node, "spare", "node"),
    "process, re-form": Case(_process, "re-form", "process"),
    "launcher, re-form": Case(_launcher, "re-form", "launcher"),
    "agent, re-form": Case(_agent, "re-form", "node"),
    "controller, re-form": Case(_controller, "re-form"),
    "node, re-form": Case(_node, "re-form", "node"),
    "holder, re-form": Case(_holder, "re-form", "node"),
    "two nodes, re-form": Case(_two_nodes, "re-form", "node", stored=True),
    "controller and node, re-form": Case(_controller_and_node, "re-form", "node"),
    "process, wait": Case(_process, "wait", "process"),
    "launcher, wait": Case(_launcher, "wait", "launcher"),
    "agent, wait": Case(_agent, "wait", "node"),
    "controller, wait": Case(_controller, "wait"),
    "node, wait": Case(_node, "wait", "node"),
    "holder, wait": Case(_holder, "wait", "node"),
    "two nodes, wait": Case(_two_nodes, "wait", "node", stored=True),
    "controller and node, wait": Case(_controller_and_node, "wait", "node"),
}


# Of each fault and of each plan one that is not among the long tests.
_ALWAYS = {
    "launcher, in place",
    "controller and process, in place",
    "agent, spare",
    "holder, re-form",
    "two nodes, re-form",
    "node, wait",
}


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    return alone(tmp_path_factory.mktemp("alone"), [_SCRIPT, "--steps", str(_STEPS)])


@pytest.mark.parametrize(
    "name", [n if n in _ALWAYS else pytest.param(n, marks=pytest.mark.long) for n in _CASES]
)
def test_a_job_ends_as_if_nothing_had_been_whatever_breaks(
    name: str, wanted: dict[int, str], tmp_path: Path
) -> None:
    case = _CASES[name]
    plan = _PLANS[case.plan]
    names = [f"node-{number}" for number in range(1, plan.nodes + 1)]
    options = list(plan.options)
    if case.stored:
        options += ["--persist", str(tmp_path / "stored"), "--persist-every", "1"]
    script = [_SCRIPT, "--steps", str(_STEPS), *_PACE]
    with fault_world(names, script, *options) as world:
        world.launch()
        world.training()
        if case.stored:
            storing(world)
        safe = safe_step(world, stored=case.stored)
        case.fault(world)
        if plan.waits and world.down:
            world.until("a job that waits", lambda: world.state() == "waiting_capacity")
            world.revive(*world.down)
        world.ends_well(wanted)
        check_books(world, filter(None, [case.cause]), safe, sure=case.sure)
