"""Incidents of the fleet: whatever reads or keeps one does it here, by the job that it hit."""

from everstep_controller.core.accounting.ledger import failure_count
from everstep_controller.core.model.job import JobIncident, JobRecord
from everstep_controller.core.model.state import State

# Of each job so many are kept: ten days of one an hour. Every snapshot of the state holds them all.
_KEPT_MAX = 256


def fleet_incidents(state: State) -> list[JobIncident]:
    """Return all incidents that are kept, newest first."""
    return sorted(state.incidents.values(), key=lambda one: one.onset_ns, reverse=True)


def incidents_of_job(state: State, job: JobRecord) -> list[JobIncident]:
    """Return the incidents of a job, oldest first."""
    return [state.incidents[name] for name in job.recovery.incidents]


def open_incident(state: State, job: JobRecord) -> JobIncident | None:
    """Return the incident of a job that is not over yet."""
    newest = state.incidents[job.recovery.incidents[-1]] if job.recovery.incidents else None
    return newest if newest is not None and not newest.over_ns else None


def failures_of_job(state: State, job: JobRecord) -> int:
    """Return how many incidents a job had that nobody planned."""
    kept = failure_count(incident.cause for incident in incidents_of_job(state, job))
    return job.recovery.older_failures + kept


def failures_ns_of_job(state: State, job: JobRecord) -> list[int]:
    """Return when the kept failures of a job began, oldest first."""
    found = incidents_of_job(state, job)
    return sorted(one.onset_ns for one in found if failure_count([one.cause]))


def incident_count(job: JobRecord) -> int:
    """Return how many incidents a job had, those among them that are kept no more."""
    return job.recovery.older_incidents + len(job.recovery.incidents)


def next_id(job: JobRecord) -> str:
    """Return the id of a job's next incident."""
    return f"{job.id}.{incident_count(job) + 1}"


def keep_incident(state: State, job: JobRecord, incident: JobIncident) -> None:
    """Make a new incident one of the fleet, and the newest of the job that it hit."""
    state.incidents[incident.id] = incident
    job.recovery.incidents.append(incident.id)
    for name in job.recovery.incidents[:-_KEPT_MAX]:
        _forget_oldest(state, job, name)


def _forget_oldest(state: State, job: JobRecord, name: str) -> None:
    """Keep of the oldest incident of a job that there was one, and its time as nobody's."""
    old = state.incidents.pop(name)
    job.recovery.incidents.remove(name)
    job.recovery.older_incidents += 1
    job.recovery.older_failures += failure_count([old.cause])
    job.ledger.forget_incident(name)


def forget_incidents(state: State, job: JobRecord) -> None:
    """Forget the incidents of a job that is forgotten itself."""
    for name in job.recovery.incidents:
        del state.incidents[name]
    job.recovery.incidents.clear()
