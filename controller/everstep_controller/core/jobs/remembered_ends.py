"""Remembered ends: a restored journal learns from agents which of its jobs have ended since.

An agent remembers for a day which jobs it was told to end. Its word is about one job, by its id,
from nodes that the job has to do with. It counts for nothing once somebody has gone on with that
job: an agent has seen a newer generation of it, or a launcher has joined it in a newer term. Nor
does the word of an agent that was away in a newer term than it has seen: a journal may have been
restored then, and gone on with the job.
"""

from collections.abc import Iterable

from everstep_common.endings import is_by_user
from everstep_common.reports import EndedJob
from everstep_controller.core.events import NodeConnected
from everstep_controller.core.fleet.incidents import open_incident
from everstep_controller.core.jobs import adoption, ending
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.model.state import State
from everstep_controller.core.turn import Reconciliation, Turn


def news_of_ends(state: State, told: Iterable[EndedJob]) -> tuple[EndedJob, ...]:
    """Return which of the ends that an agent remembers are of jobs that go on by this journal."""
    return tuple(one for one in told if _is_news(state, one))


def _is_news(state: State, told: EndedJob) -> bool:
    job = state.jobs.get(told.job_id)
    if job is None or job.name != told.job or job.state is JobState.ENDED:
        return False
    return told.term >= job.term


def note_ends(turn: Turn, event: NodeConnected) -> None:
    """Take what an agent says of jobs that go on by this journal, and remembers to have ended."""
    state = turn.state
    for seen in event.jobs:
        job = state.jobs.get(seen.job_id)
        if job is not None and job.state is not JobState.ENDED:
            job.ending.newest_seen = max(job.ending.newest_seen, seen.generation)
    for told in news_of_ends(state, event.ended_jobs):
        job = state.jobs[told.job_id]
        if _concerns(job, event.node) and _weighs_more(job, told, event):
            job.ending.remembered, job.ending.remembered_by = told, event.node
            job.ending.remembered_term = event.highest_term
        if has_ended(state, job) and not state.halted:
            turn.mark_job(job.id)


def _weighs_more(job: JobRecord, told: EndedJob, event: NodeConnected) -> bool:
    """Return whether a word says more of an end than what is known of it.

    What an agent says again has the weight of when it said so first: it has been welcomed since.
    """
    known, by = job.ending.remembered, job.ending.remembered_by
    if known is None:
        return True
    new, old = (told.term, told.generation), (known.term, known.generation)
    heard = by == event.node and new == old
    return not heard and (*new, event.highest_term) > (*old, job.ending.remembered_term)


def _concerns(job: JobRecord, node: str) -> bool:
    """Return whether a job has to do with a node, as far as is known: others may not end it."""
    return node in (*job.launchers, *job.generation.members, *job.lineage.holders)


def has_ended(state: State, job: JobRecord) -> bool:
    """Return whether a job that goes on by this journal has ended, by the word of an agent."""
    told = job.ending.remembered
    if told is None or job.state is JobState.ENDED:
        return False
    if job.ending.remembered_term < state.highest_term_seen:
        return False  # it was away in that term, and whoever was there may have gone on
    return told.term >= job.term and told.generation >= job.ending.newest_seen


def reconcile_job(turn: Reconciliation, job: JobRecord) -> None:
    """End a job that has ended before, and of which the journal has lost that."""
    told = job.ending.remembered
    if told is None or not has_ended(turn.state, job):
        return
    # What agents keep of it is of generations that the journal has lost as well.
    newest = max(told.generation, job.ending.newest_seen)
    if newest > job.generation.number:
        adoption.go_on_from(turn.state, job, newest)
    incident = open_incident(turn.state, job)
    if incident is not None:
        incident.over_ns, job.recovery.plan = turn.now_ns, None
    job.ending.done, job.ending.unsaved = told.succeeded, told.unsaved
    if is_by_user(told.reason):
        job.ending.wanted = told.reason
    reason = (
        f"{told.reason or 'why, is not known'} (it has ended already, as the agent of "
        f"{job.ending.remembered_by} remembers: the journal was restored and had lost that)"
    )
    ending.end_job(turn, job, succeeded=told.succeeded, reason=reason)
    # Those of the journal are gone: who comes from their nodes begins the next job. One that did
    # not hear of the end says whose it is.
    job.launchers.clear()
