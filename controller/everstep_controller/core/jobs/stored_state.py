"""Stored state: what a new job may go on from of what its storage path has.

A path belongs to the jobs of one name and user of one cluster, one after the other. What any other
job has brought there is gone on from only if the user says so.
"""

from everstep_common.job_ids import number_of_job
from everstep_common.reports import LauncherJoined
from everstep_controller.core.events import Reported
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.model.snapshots import BranchPoint
from everstep_controller.core.model.state import State, jobs_of_name


def refusal(state: State, job: JobRecord | None, event: Reported[LauncherJoined]) -> str:
    """Return why a launcher's job must not begin with what its storage has; "" where it may.

    ``job`` is the one that it takes part in, None for one that is new.
    """
    report = event.report
    begun = job is not None and (job.lineage.started or job.lineage.fresh or job.lineage.continued)
    if report.storage is None or report.running_generation or report.fresh or begun:
        return ""
    where = f"{report.storage.path}/{event.job}"
    if report.continues:
        if report.stored_doubt and report.latest is None:
            return f"{where}: {report.stored_doubt}; use --fresh to start from scratch"
        return ""
    if whose := _other_owner(state, event):
        return (
            f"{where} has steps of {whose}: use --continue to go on from them, --fresh to start"
            " from scratch beside them, or another --persist or --job"
        )
    if report.stored_doubt and not _is_held(state, event):
        return (
            f"{where}: {report.stored_doubt}; use --continue to go on from the newest step that is"
            " complete, or --fresh to start from scratch"
        )
    return ""


def _other_owner(state: State, event: Reported[LauncherJoined]) -> str:
    """Return whose newest generation is in storage, if it is no job of this name and user."""
    report = event.report
    if not (report.stored_job and report.stored_cluster and state.cluster_id):
        return ""
    if report.stored_cluster != state.cluster_id:
        return f"job {report.stored_job}, which ran under another controller"
    known = state.jobs.get(report.stored_job)
    # Storage says it of a job that nobody here knows any more.
    uid = report.stored_uid if known is None else known.spec.uid
    if number_of_job(report.stored_job, event.job) is None:
        return f"another job, {report.stored_job}"
    if uid is not None and uid != report.uid:
        return f"job {report.stored_job} of another user"
    return ""


def _is_held(state: State, event: Reported[LauncherJoined]) -> bool:
    """Return whether nodes hold the state of the job before it, which is newer than storage's."""
    ended = [
        job
        for job in jobs_of_name(state, event.job)
        if job.spec.uid == event.report.uid and job.state is JobState.ENDED
    ]
    return bool(ended) and ended[-1].ending.leaves_state and bool(ended[-1].lineage.holders)


def branch_of(report: LauncherJoined) -> list[BranchPoint]:
    """Return the branch that ends at the newest step in storage."""
    latest = report.latest
    if latest is None:
        return []
    older = (one for one in report.stored_branch if one.generation < latest.generation)
    # Of how many ranks a generation was that nobody here knows, no copy in memory has to tell.
    before = [BranchPoint(one.generation, one.step, 0) for one in older]
    return [*before, BranchPoint(latest.generation, latest.step, latest.world_size)]
