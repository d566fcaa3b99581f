"""Rollback: a job goes back before a state that its ranks call bad, and may leave out data."""

from everstep_common.reports import DataRange, RollbackAsked
from everstep_common.reports.quantities import RANGES_MAX
from everstep_controller.core.events import Reported
from everstep_controller.core.jobs import incidents
from everstep_controller.core.jobs.lifecycle import ACTIVE
from everstep_controller.core.model.job import Cause, JobRecord, JobState
from everstep_controller.core.model.lineage import StepKey
from everstep_controller.core.turn import Turn

# More bad states than memory and storage keep of one generation.
_STEPS_MAX = 1000

# A rank may be a step ahead of what all ranks have completed, and have committed it.
_AHEAD = 2


def rollback_asked(turn: Turn, event: Reported[RollbackAsked]) -> None:
    """Stop a generation whose state a rank calls bad, and choose none of the bad states again.

    They are only avoided, not cut off: when nothing else is left, the job is still told from where
    it goes on, and ends after the restarts that it may make without progress.
    """
    report = event.report
    job = turn.state.job(event.job)
    node = event.origin.node
    if (
        job is None
        or report.generation != job.generation.number
        or node not in job.generation.members
    ):
        return
    if job.state not in ACTIVE and job.state is not JobState.STOPPING:
        return
    _spoil(turn, job, report.step)
    if report.skip is not None:
        job.lineage.skipped = merged([*job.lineage.skipped, report.skip])[-RANGES_MAX:]
    left_out = (
        f"; data {report.skip.first} to {report.skip.last} is left out" if report.skip else ""
    )
    message = f"rank {report.rank} on {node} asks to go back before step {report.step}"
    told = f"{message}: {report.reason}{left_out}"
    incidents.record_fault(turn, job, event.at_ns, Cause.ROLLBACK, node, told)


def _spoil(turn: Turn, job: JobRecord, step: int) -> None:
    # Steps that a recovery has cut off the branch cannot be chosen any more.
    kept = {
        key for key in job.lineage.spoiled if any(point.has(*key) for point in job.lineage.branch)
    }
    for point in job.lineage.branch:
        newest = job.lineage.last_step if point.through_step is None else point.through_step
        top = max(newest or 0, step) + _AHEAD if point.through_step is None else newest or 0
        kept |= {(point.generation, bad) for bad in range(max(step, top - _STEPS_MAX), top + 1)}
    if (restored := _restored_lately(turn, job, step)) is not None:
        kept.add(restored)
    job.lineage.spoiled = sorted(kept)


def _restored_lately(turn: Turn, job: JobRecord, step: int) -> StepKey | None:
    """Return the state that was restored, if what is bad now may have begun in it."""
    if job.lineage.restored is None or job.incident is None:
        return None
    soon = step - job.lineage.restored[1] <= turn.state.settings.probation_steps
    return job.lineage.restored if soon else None


def merged(ranges: list[DataRange]) -> list[DataRange]:
    """Return the same data in as few ranges as possible, in order."""
    found: list[DataRange] = []
    for one in sorted(ranges):
        if found and one.first <= found[-1].last + 1:
            found[-1] = DataRange(found[-1].first, max(found[-1].last, one.last))
        else:
            found.append(one)
    return found
