"""Remembered ends: a restored journal learns from agents which of its jobs have ended since.

An agent remembers for a day which jobs it was told to end. Its word is about one job, by its id,
from nodes that the job has to do with; of a job that was lost nobody knows these. It counts for
nothing once somebody has gone on with that job: an agent has seen a newer generation of it, one was
planned, or in a newer term a launcher has joined it that did not say already that it is of it. Nor
does the word of an agent that was away in a newer term than it has seen: a journal may have been
restored then, and gone on with the job. That is ruled out where so many nodes have been heard since
that those which have not are too few to run it.
"""

from itertools import islice

from everstep_common.endings import is_by_user
from everstep_common.reports import EndedJob
from everstep_controller.core.events import NodeConnected
from everstep_controller.core.fleet.incidents import open_incident
from everstep_controller.core.jobs import adoption, ending, lost_ends, lost_jobs
from everstep_controller.core.jobs.lost_ends import Word
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.model.state import State
from everstep_controller.core.turn import Reconciliation, Turn


def news_of_ends(state: State, event: NodeConnected) -> tuple[EndedJob, ...]:
    """Return which ends that an agent remembers are of jobs that go on, or are not known, here."""
    told = event.ended_jobs
    return tuple(
        one for one in told if _is_news(state, one) or lost_ends.is_news(state, event, one)
    )


def _is_news(state: State, told: EndedJob) -> bool:
    job = state.jobs.get(told.job_id)
    if job is None or job.name != told.job or job.state is JobState.ENDED:
        return False
    return told.term >= job.term


def note_ends(turn: Turn, event: NodeConnected) -> None:
    """Take what an agent says of jobs, and which it remembers to have ended."""
    state = turn.state
    lost_ends.note_generations(state, event.jobs, turn.now_ns)
    lost_ends.note_ends(state, event, turn.now_ns)
    for seen in event.jobs:
        job = state.jobs.get(seen.job_id)
        if job is not None and job.state is not JobState.ENDED:
            job.ending.newest_seen = max(job.ending.newest_seen, seen.generation)
    for told in event.ended_jobs:
        if not _is_news(state, told):
            continue
        job = state.jobs[told.job_id]
        if _concerns(job, event.node) or lost_jobs.is_unbegun(job):
            end = job.ending
            known = Word(end.remembered, end.remembered_by, end.remembered_term)
            word = lost_ends.put_together(state, known, lost_ends.word_of(event, told))
            end.remembered, end.remembered_by, end.remembered_term = word
        if has_ended(state, job) and not state.halted:
            turn.mark_job(job.id)


def _concerns(job: JobRecord, node: str) -> bool:
    """Return whether a job has to do with a node, as far as is known: others may not end it."""
    return node in (*job.launchers, *job.generation.members, *job.lineage.holders)


def has_ended(state: State, job: JobRecord) -> bool:
    """Return whether a job that goes on by this journal has ended, by the word of an agent."""
    told = job.ending.remembered
    if told is None or job.state is JobState.ENDED:
        return False
    if job.ending.remembered_term < state.highest_term_seen and _may_go_on_elsewhere(state, job):
        return False  # it was away in that term, and whoever was there may have gone on
    newest = job.ending.newest_seen
    if job.first_number and (lost_jobs.is_unbegun(job) or lost_jobs.is_gone_on_with(job)):
        newest = max(newest, job.generation.number)
    gone_on = told.term < job.term or told.generation < newest
    return not gone_on and not lost_ends.is_newer_elsewhere(state, told)


def _may_go_on_elsewhere(state: State, job: JobRecord) -> bool:
    """Return whether nodes that could run a job have not been heard since this term began.

    Of those that have been heard one would have seen its newest generation. Which nodes a job has
    that this journal never began is not known.
    """
    if lost_jobs.is_unbegun(job):
        return True
    unheard = (node for node in state.nodes.values() if node.identity.welcomed_term != state.term)
    return len(list(islice(unheard, job.spec.nodes_min))) == job.spec.nodes_min


def reconsider(turn: Turn) -> None:
    """End jobs whose end is believed now that one more node has been heard."""
    for job in turn.state.newest_jobs():
        if has_ended(turn.state, job):
            turn.mark_job(job.id)


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
