"""What the books must say once a job with faults is over, and what must be given back by then."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from everstep_cli.client.admin import AdminError
from everstep_proto.generated import admin_pb2
from integration.real_fleet import JOB
from real.fault_world import FaultWorld

# Each of these takes time in every recovery, of whatever: a plan, processes, their state.
_STAGES = {"inc.schedule", "inc.env", "inc.init", "inc.restore"}
# Before them somebody has to hear of the fault, judge it, and stop what is left.
_BEFORE = {"inc.detect", "inc.diagnose", "inc.drain", "inc.capacity"}
# What people or the controller want of a job that nothing is wrong with.
_WANTED = {"operator", "drain", "maintenance", "growth"}


def safe_step(world: FaultWorld, *, stored: bool) -> int:
    """Return the newest step that no fault to come may cost: recoverable, or even in storage."""
    sheet = world.fleet.sheet(JOB)
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
    incidents = list(world.fleet.ledger(JOB).incidents)
    found = {incident.cause for incident in incidents}
    assert found <= set(wanted), (incidents, world.fleet.logs())
    assert not sure or set(wanted[:1]) <= found, (incidents, world.fleet.logs())
    for incident in incidents:
        _has_stages(incident, incidents, world)
    _check_rest(world, incidents, safe)


def check_planned_books(
    world: FaultWorld, allowed: set[str], certain: set[str], safe: int, since: int = 1
) -> None:
    """Check what must be true of a job with planned work that a fault came into.

    What was planned costs planned time and nothing else, what broke costs none of it; ``certain``
    causes must be there, and no others than those that are ``allowed``. Step ``safe`` was so in
    generation ``since``.
    """
    ledger = world.fleet.ledger(JOB)
    incidents = list(ledger.incidents)
    found = {incident.cause for incident in incidents}
    assert certain <= found <= allowed, (certain, allowed, incidents, world.fleet.logs())
    planned = 0
    for incident in incidents:
        costs = {cost.name: cost.time_ns for cost in incident.costs if cost.time_ns > 0}
        if incident.cause in _WANTED:
            planned += costs.get("planned", 0)
            assert not [name for name in costs if name.startswith("inc.")], (incident, costs)
        else:
            assert "planned" not in costs, (incident, costs)
            _has_stages(incident, incidents, world)
    total = {category.name: category.time_ns for category in ledger.categories}
    assert total.get("planned", 0) == planned, (total, incidents)
    _check_rest(world, incidents, safe, since)


def _check_rest(
    world: FaultWorld, incidents: list[admin_pb2.Incident], safe: int, since: int = 1
) -> None:
    assert (world.fleet.job().generation > 1) == bool(incidents), world.fleet.logs()
    firsts = world.fleet.first_steps()
    again = {number: step for number, step in firsts.items() if number > since and step <= safe}
    assert not again, f"step {safe} was safe: {firsts}\n{world.fleet.logs()}"
    world.until("no memory is held", lambda: not _held(world))


def _stored(world: FaultWorld) -> bool:
    with suppress(AdminError):
        return world.fleet.sheet(JOB).storage.has_step
    return False


def _has_stages(
    incident: admin_pb2.Incident, incidents: list[admin_pb2.Incident], world: FaultWorld
) -> None:
    """Check the stages of an incident; of several at once the first is noticed, the last ends."""
    at = incidents.index(incident)
    costs = {cost.name for cost in incident.costs if cost.time_ns > 0}
    assert incident.message, incident
    if not any(incident.onset_ns <= one.over_ns for one in incidents[:at]):
        assert costs & _BEFORE, (incident, world.fleet.logs())
    if any(one.onset_ns <= incident.over_ns for one in incidents[at + 1 :]):
        return
    assert costs >= _STAGES, (incident, world.fleet.logs())
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
