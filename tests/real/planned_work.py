"""Planned work on the job of a fault world: what is ordered, and the moments of its way."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from everstep_cli.client.admin import AdminError
from everstep_proto.generated import admin_pb2
from integration.real_fleet import JOB
from real.fault_world import FaultWorld, fault_world

SCRIPT = Path(__file__).with_name("fault_job.py")
# Times of an operator's day, in a test's seconds.
CORE = (
    "growth_delay_s = 0.5",
    "growth_interval_min_s = 1.0",
    "maintenance_drain_lead_s = 60.0",
    "maintenance_stop_lead_s = 0.5",
    "maintenance_duration_min_s = 1.0",
)
# Ranks stand before the step after this one until a test lets them go on.
GATE = 10
_OPEN = 1_000_000
_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Plan:
    """Planned work of one kind: what it needs, and what orders it; that returns its node."""

    nodes: int
    options: tuple[str, ...]
    # Steps of the job: where none is named, the last one is three seconds of steps ahead.
    steps: int
    order: Callable[[FaultWorld], str]
    cause: str = "operator"
    # What has befallen the job before the order, and the generation that runs then.
    before: frozenset[str] = frozenset()
    generation: int = 1


def _drain(world: FaultWorld) -> str:
    node = world.members()[-1]
    reply = world.fleet.admin.call(
        lambda stub: stub.Drain, admin_pb2.DrainRequest(node=node, reason="fan")
    )
    assert any("takes its place" in plan for plan in reply.plans), reply
    return node


def _restart(world: FaultWorld) -> str:
    world.fleet.admin.call(
        lambda stub: stub.RestartJob,
        admin_pb2.RestartJobRequest(job=JOB, at_step=GATE + 2, reason="new code"),
    )
    return world.members()[-1]


def _far_window(world: FaultWorld) -> str:
    return _window(world, 60.0)


def _near_window(world: FaultWorld) -> str:
    return _window(world, 2.0)


def _window(world: FaultWorld, in_s: float) -> str:
    """Plan a maintenance window that begins so soon, and whose node is drained at once."""
    node = world.members()[-1]
    asked = admin_pb2.AddMaintenanceRequest(
        nodes=[node], in_ns=round(in_s * _S), duration_ns=600 * _S, reason="fans"
    )
    world.fleet.admin.call(lambda stub: stub.AddMaintenance, asked)
    return node


def _growth(world: FaultWorld) -> str:
    """Lose a node of three, and have it back; nobody orders anything."""
    node = world.members()[-1]
    world.kill_node(node)
    world.until("a smaller job", lambda: len(world.members()) == 2)
    world.gate(2 * GATE)
    world.reached(2 * GATE)
    world.revive(node)
    return node


_LOST = frozenset({"node"})
PLANS = {
    "drain": Plan(4, ("--nnodes", "2"), 100, _drain, "drain"),
    "restart": Plan(3, ("--nnodes", "2"), 40, _restart),
    "window": Plan(4, ("--nnodes", "2"), 100, _far_window, "maintenance"),
    "window that begins": Plan(4, ("--nnodes", "2"), 40, _near_window, "maintenance"),
    "growth": Plan(3, ("--nnodes", "1:3"), 110, _growth, "growth", _LOST, 2),
}


@contextmanager
def planned_world(plan: Plan, *more: str) -> Iterator[FaultWorld]:
    """Yield a world whose job has come to the gate."""
    names = [f"node-{number}" for number in range(1, plan.nodes + 1)]
    script = [SCRIPT, "--steps", str(plan.steps), "--step-seconds", "0.05"]
    with fault_world(names, script, *plan.options, *more, core_lines=CORE) as world:
        world.gate(GATE)
        world.launch()
        world.reached(GATE)
        yield world


# --- moments -------------------------------------------------------------------------------------


def reach(world: FaultWorld, plan: Plan, node: str, moment: str) -> None:
    """Take the job to a moment of what is planned: it waits, saves its last step, or starts."""
    if moment == "beginning":
        world.until("a window that has begun", lambda: _in_maintenance(world, node))
        return
    if moment == "starting":
        world.hold("start")
    if moment == "waiting":
        world.until("a plan", lambda: _line(world) is not None)
        return
    go_on(world)
    so = _saves if moment == "saving" else _starts
    world.until(f"a job that is {moment}", lambda: so(world, plan.generation))


def go_on(world: FaultWorld) -> None:
    """Let ranks start, and train to the end."""
    world.gate(_OPEN)


def _saves(world: FaultWorld, before: int) -> bool:
    """Return whether the last step before the restart is computed, or the job is past it."""
    line, job = _line(world), world.fleet.job()
    if job.generation > before or job.state == "stopping":
        return True
    chosen = line is not None and line.HasField("after_step")
    return line is not None and chosen and world.fleet.step() >= line.after_step


def _starts(world: FaultWorld, before: int) -> bool:
    """Return whether every rank of the generation after the plan waits at its start."""
    job = world.fleet.job()
    if job.generation == before or job.state != "starting" or not world.held():
        return False
    return all(world.ranks(name) for name in job.members)


def _in_maintenance(world: FaultWorld, node: str) -> bool:
    with suppress(AdminError):
        return bool(world.fleet.detail(node).summary.state == "maintenance")
    return False


def _line(world: FaultWorld) -> admin_pb2.PlannedLine | None:
    """Return what is planned of the job; None where nothing is, or nobody can tell."""
    with suppress(AdminError):
        sheet = world.fleet.sheet(JOB)
        return sheet.planned if sheet.HasField("planned") else None
    return None
