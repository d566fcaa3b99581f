"""Incidents of the fleet: those of all jobs in one list, newest first."""

from everstep_controller.core.model.incident import Incident
from everstep_controller.core.model.state import State


def fleet_incidents(state: State) -> list[Incident]:
    """Return all incidents that are kept, newest first."""
    found: list[Incident] = []
    for job in state.jobs.values():
        found += job.recovery.incidents
    return sorted(found, key=lambda incident: incident.onset_ns, reverse=True)
