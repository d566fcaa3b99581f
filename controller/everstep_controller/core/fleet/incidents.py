"""Incidents of the fleet, of every kind: those of jobs, so far, which are kept with their jobs."""

from everstep_controller.core.model.incident import Incident
from everstep_controller.core.model.state import State


def fleet_incidents(state: State) -> list[Incident]:
    """Return all incidents that are kept, newest first."""
    found: list[Incident] = []
    for job in state.jobs.values():
        found += job.recovery.incidents
    return sorted(found, key=lambda incident: incident.onset_ns, reverse=True)
