"""What the books must say once a job with faults is over, and what must be given back by then."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from everstep_cli.admin import AdminError
from everstep_proto.generated import admin_pb2
from integration.real_fleet import JOB
from real.fault_world import FaultWorld

# Each of these takes time in every recovery, of whatever: a plan, processes, their state.
_STAGES = {"inc.schedule", "inc.env", "inc.init", "inc.restore"}
# Before them somebody has to hear of the fault, judge it, and stop what is left.
_BEFORE = {"inc.detect", "inc.diagnose", "inc.drain", "inc.capacity"}


def safe_step(world: FaultWorld, *, stored: bool) -> int:
    """Return the newest step that no fault to come may cost: recoverable, or even in storage."""
    sheet = world.fleet.admin.job(JOB)
    return int(sheet.storage.step if stored else sheet.recoverable_step)


def storing(world: FaultWorld) -> None:
    """Return when a step of the job is in storage."""
    world.until("a step in storage", lambda: _stored(world))


def check_books(world: FaultWorld, causes: Iterable[str], safe: int, *, sure: bool = True) -> None:
    """Check what must be true of a job that ended well.

    ``causes`` are those that incidents may be booked with, the strongest first: that one must be
    there if ranks were ``sure`` to be started again. No step up to ``safe`` was computed again.
    """
    wanted = list(causes)
    incidents = list(world.fleet.admin.ledger(JOB).incidents)
    found = {incident.cause for incident in incidents}
    assert found <= set(wanted), (incidents, world.fleet.logs())
    assert not sure or set(wanted[:1]) <= found, (incidents, world.fleet.logs())
    assert (world.fleet.job().generation > 1) == bool(incidents), world.fleet.logs()
    for incident in incidents:
        _has_stages(incident, world)
    firsts = world.fleet.first_steps()
    again = {number: step for number, step in firsts.items() if number > 1 and step <= safe}
    assert not again, f"step {safe} was safe: {firsts}\n{world.fleet.logs()}"
    world.until("no memory is held", lambda: not _held(world))


def _stored(world: FaultWorld) -> bool:
    with suppress(AdminError):
        return world.fleet.admin.job(JOB).storage.has_step
    return False


def _has_stages(incident: admin_pb2.Incident, world: FaultWorld) -> None:
    costs = {cost.name for cost in incident.costs if cost.time_ns > 0}
    assert costs >= _STAGES, (incident, world.fleet.logs())
    assert costs & _BEFORE, (incident, world.fleet.logs())
    assert incident.message, incident
    assert incident.verdict, incident
    assert incident.has_restored, incident


def _held(world: FaultWorld) -> list[str]:
    """Return the memory that agents still hold for the job."""
    agents = [agent.process.pid for agent in world.fleet.agents.values()]
    return [name for pid in agents for name in _open_files(pid) if "memfd:everstep" in name]


def _open_files(pid: int) -> list[str]:
    names = []
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            names.append(os.readlink(path))
    return names
