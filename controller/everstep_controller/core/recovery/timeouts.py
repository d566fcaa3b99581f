"""Timeouts of collectives: whom the ranks waited for that gave up, as their nodes saw it."""

from dataclasses import replace

from everstep_controller.core.events import TimeoutJudged
from everstep_controller.core.fleet.incidents import incidents_of_job
from everstep_controller.core.model.incident import WaitedFor
from everstep_controller.core.model.job import Cause, JobRecord
from everstep_controller.core.recovery import causes
from everstep_controller.core.registry import Handlers
from everstep_controller.core.turn import Turn


def timeout_judged(turn: Turn, event: TimeoutJudged) -> None:
    """Take who did not come, of a generation that ended because others gave up waiting.

    How it ended may be judged already, without that; what has explained more is left.
    """
    job = turn.state.jobs.get(event.job)
    if job is None or event.generation > job.generation.number:
        return
    waited_for = WaitedFor(event.generation, event.sentence, event.nodes)
    if job.recovery.waited_for == waited_for:
        return
    job.recovery.waited_for = waited_for
    _correct_incident(turn, job, waited_for)
    turn.announce(job.name, "TimeoutJudged", f"{job.name}: {event.sentence}")
    turn.mark_job(job.id)


def _correct_incident(turn: Turn, job: JobRecord, waited_for: WaitedFor) -> None:
    """Have the incident name whom ranks waited for, not who gave up waiting first."""
    deaths = [one for one in job.recovery.deaths if one.exit.generation == waited_for.generation]
    incident = next(
        (
            one
            for one in incidents_of_job(turn.state, job)
            if one.generation >= waited_for.generation
        ),
        None,
    )
    if not deaths or not deaths[0].waited_in_vain or incident is None:
        return
    sentence = causes.sentence_of_wait(waited_for, deaths[0])
    if incident.cause is Cause.COLLECTIVE and incident.generation == waited_for.generation:
        incident.message = sentence
        incident.node = waited_for.nodes[0] if len(waited_for.nodes) == 1 else ""
    judged = job.recovery.judgements
    for place, one in enumerate(judged):
        if one.generation == waited_for.generation and one.signature == deaths[0].signature:
            judged[place] = replace(one, sentence=sentence)
            incident.verdict = sentence


HANDLERS: Handlers = {
    TimeoutJudged: timeout_judged,
}
