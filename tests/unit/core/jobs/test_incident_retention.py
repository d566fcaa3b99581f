"""Incidents of a job that runs for months: the newest are kept, and all are counted."""

from everstep_controller.core.fleet.incidents import (
    failures_of_job,
    incident_count,
    incidents_of_job,
)
from everstep_controller.core.model.job import JobRecord, JobState
from unit.core.test_decisions import S, Story

_FAULTS, _KEPT = 300, 256


class Months(Story):
    """A job that loses a rank every hour and goes on."""

    @property
    def job(self) -> JobRecord:
        return self.core.state.newest("j")

    def hour(self, number: int) -> None:
        self.now_ns += 3600 * S
        self.exit_rank("n0")
        self.stop_all()
        self.choose(self.job.lineage.last_step)
        self.now_ns += 10 * S
        self.progress(number)
        self.now_ns += 10 * S
        self.progress(number + 1)


def test_a_fault_every_hour_leaves_as_many_incidents_as_are_kept_and_counts_all() -> None:
    story = Months()
    story.run()
    for number in range(_FAULTS):
        story.hour(10 * (number + 1))
        assert story.job.state is JobState.RUNNING
    state, job = story.core.state, story.job
    assert len(state.incidents) == len(incidents_of_job(state, job)) == _KEPT
    assert (incident_count(job), failures_of_job(state, job)) == (_FAULTS, _FAULTS)
    assert job.recovery.incidents[-1] == f"{job.id}.{_FAULTS}"
    named = {name for owners in job.ledger.folded.values() for name in owners} - {""}
    assert named <= set(job.recovery.incidents)
    totals = job.ledger.totals(story.now_ns)
    assert sum(totals.values()) == job.ledger.wall_ns(story.now_ns)
