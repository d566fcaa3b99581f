"""What befalls a job in the middle of planned work, and what incidents are booked with for it."""

from collections.abc import Callable
from dataclasses import dataclass

from real.fault_world import FaultWorld


@dataclass(frozen=True, slots=True)
class Fault:
    """What is killed, and where; ``cause`` is its incident's, empty where ranks go on."""

    blow: Callable[[FaultWorld, str], None]
    # The node, by that which the plan is about.
    target: Callable[[FaultWorld, str], str]
    cause: str


def _last(world: FaultWorld, _: str) -> str:
    return world.members()[-1]


def _that(_: FaultWorld, node: str) -> str:
    return node


def _another(world: FaultWorld, node: str) -> str:
    return next(name for name in world.members() if name != node)


FAULTS = {
    "process": Fault(FaultWorld.kill_process, _last, "process"),
    "its node": Fault(FaultWorld.kill_node, _that, "node"),
    "another node": Fault(FaultWorld.kill_node, _another, "node"),
    "agent": Fault(FaultWorld.kill_agent, _that, "node"),
    "launcher": Fault(FaultWorld.kill_launcher, _that, "launcher"),
    "controller": Fault(lambda world, _: world.kill_controller(), _that, ""),
}


def strike(world: FaultWorld, fault: Fault, node: str, moment: str) -> set[str]:
    """Kill, and return what an incident is booked with for certain."""
    target = fault.target(world, node)
    # At other moments the job may have left the node, or is about to.
    hit = target in world.members() and moment in ("waiting", "starting")
    fault.blow(world, target)
    return {fault.cause} if hit and fault.cause else set()
