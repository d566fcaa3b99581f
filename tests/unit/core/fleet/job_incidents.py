"""Incidents of a job for tests that need no more of them than how many, and their causes."""

from everstep_controller.core.model.incident import IncidentKind
from everstep_controller.core.model.job import Cause, JobIncident


def incidents_of(job: str, *causes: Cause, over_ns: int = 0) -> list[JobIncident]:
    """Return an incident for each cause."""
    return [
        JobIncident(
            id=f"{job}-{number}",
            kind=IncidentKind.JOB,
            subjects=[job],
            onset_ns=0,
            over_ns=over_ns,
            cause=cause,
            node="",
            message="",
            step_before=None,
        )
        for number, cause in enumerate(causes)
    ]
