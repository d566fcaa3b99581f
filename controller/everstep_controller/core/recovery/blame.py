"""Blame: how a generation ended is judged once, and the node at fault is replaced."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby

from everstep_common.failures.classification import side
from everstep_common.judging.findings import Finding, Severity, SuggestedAction
from everstep_controller.core.events import TimeoutJudged
from everstep_controller.core.fleet.incidents import incidents_of_job, open_incident
from everstep_controller.core.jobs.lifecycle import ACTIVE
from everstep_controller.core.model.incident import (
    JUDGEMENTS_MAX,
    STRIKES_MAX,
    AskedRollback,
    Death,
    IncidentPart,
    Judgement,
    Remedy,
    Strike,
    WaitedFor,
)
from everstep_controller.core.model.job import Cause, JobIncident, JobRecord, JobState
from everstep_controller.core.model.node import NodeRecord, OpenFinding
from everstep_controller.core.model.state import jobs_of_node
from everstep_controller.core.recovery import backoff, bearing, causes
from everstep_controller.core.recovery.bearing import RanksFault
from everstep_controller.core.registry import Handlers
from everstep_controller.core.turn import Reconciliation, Turn

# What ended a generation when its ranks died of themselves; all else came from outside.
_FROM_RANKS = frozenset({Cause.PROCESS, Cause.COLLECTIVE})

# Parts of an incident that explain what ranks died of soon before or after.
_FROM_OUTSIDE = (Cause.NODE, Cause.FINDING, Cause.LAUNCHER, Cause.OPERATOR)

# What ends a generation that no program does: a node that is lost or broken, a launcher that
# somebody ends, and people's orders.
NOT_THE_PROGRAM = frozenset(
    {
        Cause.NODE,
        Cause.FINDING,
        Cause.LAUNCHER,
        Cause.OPERATOR,
        Cause.DRAIN,
        Cause.MAINTENANCE,
        Cause.GROWTH,
        Cause.USER,
    }
)

# Number of nodes that a sentence names.
_NAMED_MAX = 3

_HARDWARE = frozenset(
    {
        SuggestedAction.RESET_DEVICE,
        SuggestedAction.REBOOT_NODE,
        SuggestedAction.REPAIR_HARDWARE,
    }
)

# Components whose faults change nothing that a program computes or reads: the agent and its looks,
# the load, the clock, and what belongs to other jobs.
_OF_NO_DATA = re.compile(
    r"(?:agent|job|outbox|peer|probe|service|user)(?:/|$)|host/(?:clock|cpu|tasks)$"
)


def judge_end(turn: Reconciliation, job: JobRecord) -> None:
    """Look, once, at how the generation ended that is to be followed by a new one; and act."""
    incident = open_incident(turn.state, job)
    past = job.recovery.judgements
    if incident is None or (past and past[-1].generation == job.generation.number):
        return
    # The culprit was judged while the job stood still; its end may explain more.
    hung = job.generation.hang_judgement if job.generation.cause is Cause.STALLED else None
    evidence = _evidence(turn, job, incident, job.generation.number)
    judgement = hung or causes.judge(evidence)
    if hung is None:
        # A launcher that is gone was ended by somebody, and comes back by somebody's hand.
        outside = judgement.outside or job.generation.cause is Cause.LAUNCHER
        judgement = replace(judgement, attempt=_may_be_program(job, judgement), outside=outside)
    if past and _explained_in_vain(past[-1], judgement):
        judgement = replace(judgement, outside=True)
    past.append(judgement)
    del past[:-JUDGEMENTS_MAX]
    backoff.note_end(turn, job, judgement)
    if hung is None and causes.counts_against_node(evidence, judgement):
        _strike(turn, job, judgement)
    _act(turn, job, incident, judgement)


def _may_be_program(job: JobRecord, judgement: Judgement) -> bool:
    """Return whether the program may have ended a generation: nobody else is known to have."""
    known = judgement.explained or judgement.outside
    return not known and job.generation.cause not in NOT_THE_PROGRAM


def _explained_in_vain(before: Judgement, judgement: Judgement) -> bool:
    """Return whether what seems to come from outside comes again, whatever finding explains it."""
    kind = judgement.signature.partition(":")[0]
    again = (before.signature, before.step) == (judgement.signature, judgement.step)
    return judgement.explained and again and bool(kind) and side(kind) in causes.OUTSIDE


def died_again(job: JobRecord, node: str) -> bool:
    """Return whether the job has died there twice in a row of the same, where it runs alone."""
    newest = [(one.signature, one.step, one.nodes) for one in job.recovery.judgements[-2:]]
    alone = len(newest) == 2 and len(job.generation.members) == 1
    return alone and newest[0] == newest[1] and bool(newest[0][0]) and newest[0][2] == (node,)


def was_attempt(job: JobRecord) -> bool:
    """Return whether the restart that follows the newest judgement counts, without a new step.

    A finding takes the blame once: no restart in the same place changes what it is about.
    """
    judged = job.recovery.judgements
    if not judged or judged[-1].attempt:
        return True
    explained = judged[-1].explained and not judged[-1].outside
    return explained and any(died_again(job, node) for node in job.generation.members)


def _act(turn: Reconciliation, job: JobRecord, incident: JobIncident, judgement: Judgement) -> None:
    incident.verdict = judgement.sentence
    turn.announce(job.name, "CauseJudged", f"{job.name}: {judgement.sentence}")
    if judgement.remedy is Remedy.STOP:
        job.ending.failed = job.ending.failed or not job.ending.wanted
        job.ending.wanted = job.ending.wanted or judgement.sentence
    elif judgement.remedy is Remedy.REPLACE and judgement.node in turn.state.nodes:
        # Its jobs, this one too, leave it when automation may have it checked.
        turn.state.nodes[judgement.node].blame.reason = judgement.sentence
        turn.mark_node(judgement.node)


def reconcile_node(turn: Reconciliation, node: NodeRecord) -> None:
    """Judge again where a node's word came after the decision, while training stands still."""
    for job in jobs_of_node(turn.state, node):
        incident = open_incident(turn.state, job)
        if (
            incident is None
            or job.state is JobState.ENDED
            or node.name not in job.generation.members
        ):
            continue
        newest = job.recovery.judgements[-1] if job.recovery.judgements else None
        ended_ns = max(incident.onset_ns, newest.at_ns if newest is not None else 0)
        late = turn.now_ns - ended_ns > turn.state.settings.evidence_window_ns
        # One without a signature was not about how ranks died.
        if newest is not None and newest.signature and not late:
            _judge_again(turn, job, incident, newest)


def _judge_again(
    turn: Reconciliation, job: JobRecord, incident: JobIncident, newest: Judgement
) -> None:
    evidence = _evidence(turn, job, incident, newest.generation)
    # What has happened since must not be taken for history.
    strikes = _strikes(turn, job, newest.at_ns)
    again = causes.judge(replace(evidence, outside="", past=evidence.past[:-1], strikes=strikes))
    if again.remedy is Remedy.REPLACE and newest.remedy is Remedy.RESTART:
        outside = any(_explained_in_vain(one, again) for one in job.recovery.judgements[-2:-1])
        job.recovery.judgements[-1] = replace(
            again,
            tried=newest.tried,
            attempt=newest.attempt and not again.explained,
            outside=outside,
        )
        _act(turn, job, incident, again)


def _evidence(
    turn: Reconciliation, job: JobRecord, incident: JobIncident, generation: int
) -> causes.Evidence:
    deaths = tuple(death for death in job.recovery.deaths if death.exit.generation == generation)
    return causes.Evidence(
        generation=generation,
        now_ns=turn.now_ns,
        deaths=deaths,
        faults=tuple(_faults(turn, job, incident, deaths)),
        outside=_outside(job, incident),
        past=tuple(job.recovery.judgements),
        strikes=_strikes(turn, job, turn.now_ns),
        world_size=job.world_size,
        neighbours=_neighbours(turn, job),
        fresh=_is_fresh(job),
        explained=frozenset(_explained(turn, job, incident)),
        rollback=_rollback(job, generation),
        amiss={
            name: why
            for name in job.generation.members
            if (why := _amiss(turn, job, incident, turn.state.nodes[name]))
        },
        members=tuple(job.generation.members),
        finished=_finished(job, generation),
        waited_for=_waited_for(job, generation),
    )


def _finished(job: JobRecord, generation: int) -> tuple[str, ...]:
    """Return some of the nodes whose ranks had all ended well in a generation."""
    known = job.generation.finished if job.generation.number == generation else {}
    return tuple(known)[:_NAMED_MAX]


def _is_fresh(job: JobRecord) -> bool:
    """Return whether a job has never made a step, as far as anybody knows."""
    lineage = job.lineage
    known = lineage.recoverable_step is not None or lineage.adopted is not None
    return not job.ledger.step_count and not known


def _waited_for(job: JobRecord, generation: int) -> WaitedFor | None:
    known = job.recovery.waited_for
    if known is None or known.generation > generation:
        return None
    # Name the rank that departed the last time where the same comes again.
    same = known.generation == generation
    return known if same or _got_unfit_data(job, generation) else None


def _rollback(job: JobRecord, generation: int) -> AskedRollback | None:
    """Return what ranks called bad, if nothing that weighs more ended the generation."""
    ended_so = job.generation.cause is Cause.ROLLBACK and job.generation.number == generation
    return job.generation.asked_rollback if ended_so else None


def _explained(turn: Turn, job: JobRecord, incident: JobIncident) -> Iterator[int]:
    """Yield the generations before, of whose end more has become known than how ranks died."""
    window_ns = turn.state.settings.evidence_window_ns
    outside = [
        part.at_ns
        for part in incident.parts
        if part.cause in _FROM_OUTSIDE and not _follows_from_blame(job, part)
    ]
    for past in job.recovery.judgements:
        fault = RanksFault(past.at_ns, past.at_ns, window_ns)
        raised = any(_hardware(turn, job, name, fault) for name in past.nodes)
        if (
            past.explained
            or raised
            or any(abs(at_ns - past.at_ns) <= window_ns for at_ns in outside)
        ):
            yield past.generation


def _follows_from_blame(job: JobRecord, part: IncidentPart) -> bool:
    """Return whether a node was taken because of a judgement: that explains no death before it."""
    return any(
        one.remedy is Remedy.REPLACE and one.node == part.node and one.at_ns <= part.at_ns
        for one in job.recovery.judgements
    )


def _hardware(turn: Turn, job: JobRecord, name: str, fault: RanksFault) -> list[OpenFinding]:
    """Return the findings of a node's hardware that may be why ranks of a job died there."""
    node = turn.state.nodes.get(name)
    if node is None:
        return []
    return [
        held
        for held in bearing.counting(turn.state, node)
        if _of_hardware(held.finding)
        and fault.is_near(held)
        and bearing.concerns(node, job, held, fault.devices) is not False
    ]


def _amiss(turn: Turn, job: JobRecord, incident: JobIncident, node: NodeRecord) -> str:
    """Return why a node is not known to be clean: its agent looks for all that a check does.

    What it found long before the first of these deaths explains none. Nor does what it found of
    itself, or of devices of others.
    """
    if not node.liveness.connected or node.doubtful:
        return "its agent is away"
    if node.health.check_failed:
        return f"its check failed: {node.health.check_failed}"
    if not node.health.findings:
        return ""
    first_ns = min((incident.onset_ns, *(one.at_ns for one in job.recovery.judgements)))
    fault = RanksFault(first_ns, turn.now_ns, turn.state.settings.evidence_window_ns)
    grave = (
        held.finding.message
        for held in bearing.counting(turn.state, node)
        if held.finding.severity in (Severity.FATAL, Severity.DEGRADED)
        and not _OF_NO_DATA.match(held.finding.component)
        and fault.is_near(held)
        and bearing.concerns(node, job, held, fault.devices) is not False
    )
    return next(grave, "")


def _neighbours(turn: Turn, job: JobRecord) -> dict[str, str]:
    """Return, of each node of a job on which a job of another user steps, that job."""
    found = ((name, neighbour(turn, job, name)) for name in job.generation.members)
    return {name: other for name, other in found if other}


def neighbour(turn: Turn, job: JobRecord, name: str) -> str:
    """Return a job of another user that steps on a node; "" where there is none."""
    if turn.state.nodes[name].jobs.ids == [job.id]:
        return ""
    return next(_jobs_of_others(turn, job, name), "")


def _jobs_of_others(turn: Turn, job: JobRecord, name: str) -> Iterator[str]:
    for other in jobs_of_node(turn.state, turn.state.nodes[name]):
        stranger = other.spec.uid != job.spec.uid and other.state in ACTIVE
        if stranger and name in other.generation.members:
            yield other.name


def _outside(job: JobRecord, incident: JobIncident) -> str:
    """Return what ended the generation, if it was not the death of a rank."""
    if not job.generation.cause or job.generation.cause in _FROM_RANKS:
        return ""
    # An incident keeps the strongest cause of all its generations.
    return (
        incident.message
        if incident.cause == job.generation.cause
        else f"cause: {job.generation.cause}"
    )


def _faults(
    turn: Reconciliation, job: JobRecord, incident: JobIncident, deaths: Iterable[Death]
) -> list[causes.NodeFault]:
    onset_ns = incident.onset_ns
    window_ns = turn.state.settings.evidence_window_ns
    # Attempts without a new step are one incident, which may last for days.
    died = (one.at_ns for one in deaths)
    until_ns = max(onset_ns, min(died, default=onset_ns))
    fault = RanksFault(onset_ns, until_ns, window_ns, bearing.borne_until_ns(job))
    return [
        causes.NodeFault(name, held.finding.message)
        for name in job.generation.members
        for held in _hardware(turn, job, name, fault)
    ]


def _of_hardware(finding: Finding) -> bool:
    """Return whether a finding is of hardware at fault; what is only told explains no death."""
    if finding.severity is Severity.INFO:
        return False
    return finding.severity is Severity.FATAL or finding.suggested_action in _HARDWARE


def _strikes(turn: Reconciliation, job: JobRecord, before_ns: int) -> dict[str, int]:
    """Return the strikes of each member before a time; its only node is not struck by the job."""
    members, since_ns = job.generation.members, turn.now_ns - turn.state.settings.strike_window_ns
    own = job.name if len(members) == 1 else ""
    return {
        name: sum(
            since_ns <= strike.at_ns < before_ns and strike.job != own
            for strike in turn.state.nodes[name].blame.strikes
        )
        for name in members
    }


def _strike(turn: Reconciliation, job: JobRecord, judgement: Judgement) -> None:
    node = turn.state.nodes.get(judgement.node)
    if node is not None:
        node.blame.strikes.append(Strike(turn.now_ns, job.name, judgement.sentence))
        del node.blame.strikes[:-STRIKES_MAX]


def note_plan_tried(job: JobRecord, step: int | None) -> None:
    """Note which plan followed the newest judgement."""
    if job.recovery.judgements:
        begin = "without a snapshot" if step is None else f"from step {step}"
        members = job.generation.members
        plan = f"{(job.recovery.plan or '').replace('_', ' ')} on {', '.join(members[:4])}"
        more = " …" if len(members) > 4 else ""
        job.recovery.judgements[-1] = replace(
            job.recovery.judgements[-1], tried=f"{plan}{more} {begin}"
        )


def tried_summary(job: JobRecord) -> str:
    """Return what was tried in the open incident, for whoever has to go on by hand."""
    runs = groupby(one.tried for one in job.recovery.judgements if one.tried)
    note_plan_tried = [(plan, len(list(times))) for plan, times in runs]
    words = [plan if times == 1 else f"{times} times {plan}" for plan, times in note_plan_tried]
    return f"; tried: {', then '.join(words)}" if words else ""


# --- whom ranks waited for that gave up -----------------------------------------------------------


def timeout_judged(turn: Turn, event: TimeoutJudged) -> None:
    """Take who did not come, of a generation that ended because others gave up waiting.

    How it ended may be judged already, without that; what has explained more is left.
    """
    job = turn.state.jobs.get(event.job)
    if job is None or event.generation > job.generation.number:
        return
    known, unfit = job.recovery.waited_for, _got_unfit_data(job, event.generation)
    departure = unfit and event.is_conclusive
    waited_for = WaitedFor(event.generation, event.sentence, event.nodes, departure)
    # Who departed is not forgotten when the same comes again and less is seen of it.
    says_less = unfit and known is not None and known.is_departure and not departure
    if known == waited_for or says_less:
        return
    job.recovery.waited_for = waited_for
    _correct_incident(turn, job, waited_for)
    why = f"why generation {event.generation} ended"
    turn.announce(job.name, "TimeoutJudged", f"{job.name}: {why}: {event.sentence}")
    turn.mark_job(job.id)


def _got_unfit_data(job: JobRecord, generation: int) -> bool:
    return any(
        one.got_unfit_data for one in job.recovery.deaths if one.exit.generation == generation
    )


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
    if not deaths or incident is None:
        return
    if deaths[0].waited_in_vain:
        death, sentence = deaths[0], causes.sentence_of_wait(waited_for, deaths[0])
    elif unfit := next((one for one in deaths if one.got_unfit_data), None):
        death, sentence = unfit, causes.sentence_of_unfit(waited_for, unfit)
    else:
        return
    if incident.cause is Cause.COLLECTIVE and incident.generation == waited_for.generation:
        incident.message = sentence
        incident.node = waited_for.nodes[0] if len(waited_for.nodes) == 1 else ""
    judged = job.recovery.judgements
    for place, one in enumerate(judged):
        if one.generation == waited_for.generation and one.signature == death.signature:
            judged[place] = replace(one, sentence=sentence)
            incident.verdict = sentence


HANDLERS: Handlers = {
    TimeoutJudged: timeout_judged,
}
