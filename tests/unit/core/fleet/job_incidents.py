"""Incidents of a job for tests that need no more of them than how many, and their causes."""

from everstep_controller.core.fleet.incidents import keep_incident, next_id
from everstep_controller.core.model.incident import IncidentKind
from everstep_controller.core.model.job import Cause, JobIncident, JobRecord
from everstep_controller.core.model.state import State


def add_incidents(state: State, job: JobRecord, *causes: Cause, over_ns: int = 0) -> None:
    """Let a job have had an incident of each cause."""
    for cause in causes:
        incident = JobIncident(
            id=next_id(state, job),
            kind=IncidentKind.JOB,
            subjects=[job.name],
            onset_ns=0,
            over_ns=over_ns,
            cause=cause,
            node="",
            message="",
            step_before=None,
        )
        keep_incident(state, job, incident)
