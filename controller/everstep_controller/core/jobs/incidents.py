"""Incidents of a job: opened by a fault that stops a generation, joined by faults of one cause."""

from bisect import insort
from collections.abc import Sequence
from dataclasses import replace

from everstep_common import reports
from everstep_common.node_lists import fold
from everstep_common.printable import quoted
from everstep_common.quantities import RANGES_MAX
from everstep_common.reports import DataRange, GenerationStopped, RollbackAsked
from everstep_controller.core.accounting.categories import Category
from everstep_controller.core.actions import About, Topic
from everstep_controller.core.events import Reported
from everstep_controller.core.fleet.incidents import (
    incidents_of_job,
    keep_incident,
    next_id,
    open_incident,
)
from everstep_controller.core.jobs import transition
from everstep_controller.core.jobs.lifecycle import ACTIVE, STEPPING, JobEvent
from everstep_controller.core.model.incident import (
    AskedRollback,
    Death,
    IncidentKind,
    IncidentPart,
)
from everstep_controller.core.model.job import Cause, JobFault, JobIncident, JobRecord, JobState
from everstep_controller.core.model.node import MAINTENANCE, OPERATOR, NodeState
from everstep_controller.core.model.snapshots import StepKey
from everstep_controller.core.model.state import State
from everstep_controller.core.registry import Handlers
from everstep_controller.core.turn import Reconciliation, Turn

# How much a cause explains: a later, stronger one replaces the blame within one incident.
STRENGTH = {
    Cause.COLLECTIVE: 0,
    Cause.PROCESS: 1,
    Cause.STALLED: 1,
    Cause.ROLLBACK: 2,
    Cause.LAUNCHER: 3,
    Cause.USER: 3,
    Cause.FINDING: 4,
    Cause.OPERATOR: 5,
    Cause.DRAIN: 5,
    Cause.MAINTENANCE: 5,
    Cause.GROWTH: 5,
    Cause.NODE: 5,
}

_WANTED = frozenset({Cause.OPERATOR, Cause.DRAIN, Cause.MAINTENANCE, Cause.GROWTH})

# Causes that the stop of a generation cannot bring about: ranks die of them by themselves.
_OF_ITSELF = frozenset({Cause.ROLLBACK, Cause.LAUNCHER, Cause.FINDING, Cause.NODE})

# Kinds of death that the loss of another node does not bring about; of other kinds, such as an
# exception with words that no table knows, it may be the cause.
_UNEXPLAINED_BY_LOSS = frozenset(
    {"killed", "host_memory", "nan", "assertion", "import", "usage", "device_memory", "device"}
)

# Ledger category of the time in which a job runs nothing, by its state.
_PHASES = {
    JobState.STOPPING: Category.DRAIN,
    JobState.BACKING_OFF: Category.BACKOFF,
    JobState.REPLANNING: Category.SCHEDULE,
}

# The first death explains the rest; after so many ranks nobody reads on.
DEATHS_MAX = 8
# Generation, whether it only gave up waiting, when, and rank.
DeathOrder = tuple[int, bool, int, int]

_NODES_MAX = 8

# The faults that come later are what the first ones led to.
_PARTS_MAX = 16

# Of what a rank said, so many characters are enough to find it in its output again.
_SAID_MAX = 200

# Older incidents keep their sentences and costs only.
_INCIDENTS_MAX = 32

_NAMED_MAX = 8


def record_fault(turn: Turn, job: JobRecord, fault: JobFault) -> None:
    """Remember a reported fault of a job, until the job is reconciled."""
    job.news.faults.append(fault)
    turn.mark_job(job.id)


def reconcile_job(turn: Reconciliation, job: JobRecord) -> None:
    """Take the faults that were told of a job for its open incident, or for a new one."""
    faults, job.news.faults = job.news.faults, []
    for fault in faults:
        judge_fault(turn, job, fault)
        if fault.death is not None:
            keep_death(turn.state, job, fault.death)


def judge_fault(turn: Reconciliation, job: JobRecord, fault: JobFault) -> None:
    """Something broke a running generation, or says more about what broke it: it is stopped."""
    at_ns, cause, node, message = fault.at_ns, fault.cause, fault.node, fault.message
    turn.mark_job(job.id)
    if not job.generation.cause or STRENGTH[cause] > STRENGTH[job.generation.cause]:
        job.generation.cause = cause
    runs = job.state in ACTIVE
    known = open_incident(turn.state, job)
    part = IncidentPart(at_ns, cause, node, message)
    if known is None and runs:
        _open(turn.state, job, _new_incident(turn.state, job, part, cause))
    elif known is not None and not _is_part(turn, job, known, fault):
        _interrupt(turn, job, known, _new_incident(turn.state, job, part, cause))
    elif known is not None:
        _add_part(known, part, cause)
        if runs:
            known.generation, known.members = job.generation.number, fold(job.generation.members)
    if runs:
        _stop_generation(turn, job, at_ns, message)


def _new_incident(state: State, job: JobRecord, first: IncidentPart, cause: Cause) -> JobIncident:
    return JobIncident(
        id=next_id(job),
        kind=IncidentKind.JOB,
        subjects=[job.id],
        onset_ns=first.at_ns,
        cause=cause,
        node=first.node,
        message=first.message,
        parts=[first],
        step_before=job.lineage.last_step,
        generation=job.generation.number,
        members=fold(job.generation.members),
    )


def _add_part(incident: JobIncident, part: IncidentPart, cause: Cause) -> None:
    """Take a fault for one of an incident's, and for its cause if it explains more."""
    if _explains_more(incident, cause, part.at_ns):
        incident.cause, incident.node, incident.message = cause, part.node, part.message
        incident.onset_ns = min(incident.onset_ns, part.at_ns)
    # An agent that comes back says again what it has said.
    if len(incident.parts) < _PARTS_MAX and part not in incident.parts:
        incident.parts.append(part)


def _is_part(turn: Turn, job: JobRecord, incident: JobIncident, fault: JobFault) -> bool:
    """Return whether a fault belongs to an incident that is open, whichever came first."""
    cause = fault.cause
    if (cause in _WANTED) == (incident.cause in _WANTED) or Cause.USER in (cause, incident.cause):
        planned = incident.cause in _WANTED or Cause.USER in (cause, incident.cause)
        return planned or not _is_another(turn, job, incident, fault)
    if job.state in ACTIVE:
        return False
    if cause in _WANTED or cause not in _OF_ITSELF or job.state not in _PHASES:
        return True
    return _expected(turn, fault.node, cause)


def _is_another(turn: Turn, job: JobRecord, incident: JobIncident, fault: JobFault) -> bool:
    """Return whether a fault came by itself while a job recovers from another one.

    What the next generation dies of before its first step may come of the same, and what is said of
    a node that has its part in the incident does.
    """
    follows = 0 < incident.generation < job.generation.number and job.state in ACTIVE
    concerned = {part.node for part in incident.parts}
    if job.state is JobState.BACKING_OFF:
        return _comes_after(turn, job, incident, fault)
    if fault.cause is Cause.NODE and fault.node not in concerned:
        # It was still there when the next generation began, or when a rank had died elsewhere.
        return (
            fault.node in job.generation.phases if follows else _began_before(job, incident, fault)
        )
    if not follows or job.state not in STEPPING:
        return False
    if fault.death is not None:
        return not _is_the_same_again(job, fault.death)
    if fault.cause in (Cause.LAUNCHER, Cause.FINDING, Cause.NODE):
        return fault.node not in concerned
    return fault.cause is not incident.cause


def _comes_after(turn: Turn, job: JobRecord, incident: JobIncident, fault: JobFault) -> bool:
    """Return whether a fault comes so long after ranks died that it does not explain that."""
    judged, window_ns = job.recovery.judgements, turn.state.settings.evidence_window_ns
    same = (fault.cause, fault.node) == (incident.cause, incident.node)
    return bool(judged) and not same and fault.at_ns > judged[-1].at_ns + window_ns


def _began_before(job: JobRecord, incident: JobIncident, fault: JobFault) -> bool:
    """Return whether an incident began, in a generation that ends, before a node fell silent.

    Of ranks that died so that the loss of another node does not explain it, however late the word
    of that loss came.
    """
    died = [death.at_ns for death in incident.deaths if death.exit.kind in _UNEXPLAINED_BY_LOSS]
    return job.state in _PHASES and bool(died) and fault.at_ns > min(died)


def _is_the_same_again(job: JobRecord, death: Death) -> bool:
    """Return whether an earlier generation died of the same at the same step."""
    same = (death.signature, death.exit.step)
    return any((one.signature, one.step) == same for one in job.recovery.judgements)


def _expected(turn: Turn, name: str, cause: Cause) -> bool:
    """Return whether somebody works on a node, who may switch it off or end its launcher."""
    node = turn.state.nodes.get(name)
    kept = node is not None and any(
        c.owner in (OPERATOR, MAINTENANCE) for c in node.isolation.claims
    )
    away = node is not None and node.state is NodeState.MAINTENANCE
    return kept and (away or cause is Cause.LAUNCHER)


def _explains_more(incident: JobIncident, cause: Cause, at_ns: int) -> bool:
    """Return whether a report tells more of the cause: a stronger one, or who went first.

    When one process dies, the collectives of all others fail: theirs is the consequence.
    """
    if (cause in _WANTED) != (incident.cause in _WANTED):
        return False
    known = STRENGTH[incident.cause]
    return STRENGTH[cause] > known or (STRENGTH[cause] == known and at_ns < _cause_ns(incident))


def _cause_ns(incident: JobIncident) -> int:
    """Return when its cause happened; what it led to may have been noticed before."""
    cause = (incident.cause, incident.node, incident.message)
    told = (part.at_ns for part in incident.parts if (part.cause, part.node, part.message) == cause)
    return min(told, default=incident.onset_ns)


def _open(state: State, job: JobRecord, incident: JobIncident) -> None:
    keep_incident(state, job, incident)
    job.recovery.judgements.clear()


def _interrupt(turn: Reconciliation, job: JobRecord, known: JobIncident, news: JobIncident) -> None:
    """Have an incident end where another one begins, and the time be the newer one's from there.

    How the generations since its last new step have ended is remembered as long as there is none.
    """
    known.over_ns = max(news.onset_ns, known.onset_ns, 1)
    made = [step for step in (known.step_before, news.step_before) if step is not None]
    news.step_before = max(made, default=None)
    planned = Cause(known.cause) in _WANTED or Cause(news.cause) in _WANTED
    if planned:
        _open(turn.state, job, news)
    else:
        keep_incident(turn.state, job, news)
    if job.state in _PHASES:
        message = f"{news.message}, while {job.name} is {job.state.value}{' as planned' * planned}"
        turn.announce(job.name, "JobFault", message, _begun(news))
        job.ledger.record_interruption(news.onset_ns, turn.now_ns, news.id)
        job.ledger.enter(turn.now_ns, _PHASES[job.state])


def _begun(incident: JobIncident) -> About:
    return About(topic=Topic.INCIDENT_BEGUN, evidence_ns=incident.onset_ns)


def _stop_generation(turn: Reconciliation, job: JobRecord, at_ns: int, message: str) -> None:
    """Stop a running generation for the incident that is open."""
    incident = incidents_of_job(turn.state, job)[-1]
    stops = f"{message}; {job.name} stops generation {job.generation.number}"
    turn.announce(job.name, "JobFault", stops, _begun(incident))
    job.ledger.record_fault(at_ns, turn.now_ns, incident.id, incident.cause)
    transition.move_job(turn, job, JobEvent.FAULT, message)


def keep_death(state: State, job: JobRecord, death: Death) -> None:
    """Keep a death in the open incident, if it is one of the first."""
    incident = open_incident(state, job)
    if incident is None or _is_late(incident, _death_order(death)):
        return
    exit = death.exit
    said = replace(exit, exception=exit.exception[:_SAID_MAX], last_line=exit.last_line[:_SAID_MAX])
    insort(incident.deaths, replace(death, exit=said), key=_death_order)
    del incident.deaths[DEATHS_MAX:]
    for name in job.recovery.incidents[-_INCIDENTS_MAX - 1 : -_INCIDENTS_MAX]:
        state.incidents[name].deaths.clear()
        state.incidents[name].parts.clear()


def is_one_more(turn: Turn, job: JobRecord, cause: Cause, node: str, order: DeathOrder) -> bool:
    """Return whether a death adds nothing to what is known of a generation that ends.

    Of a hundred thousand ranks that die with the first one nearly all are so.
    """
    incident, known = open_incident(turn.state, job), job.generation.cause
    if incident is None or known is None or job.state in ACTIVE:
        return False
    listed = len(incident.parts) >= _PARTS_MAX and _is_late(incident, order)
    if not listed or STRENGTH[cause] > STRENGTH[known]:
        return False
    at_ns = order[2]
    told = _is_part(turn, job, incident, JobFault(at_ns, cause, node, ""))
    return told and not _explains_more(incident, cause, at_ns)


def _is_late(incident: JobIncident, order: DeathOrder) -> bool:
    full = len(incident.deaths) >= DEATHS_MAX
    return full and order >= _death_order(incident.deaths[-1])


def keep_left_behind(turn: Turn, job: JobRecord, event: Reported[GenerationStopped]) -> None:
    """Keep what a node still has of a generation: processes in the kernel, or device memory."""
    report = event.report
    launcher = job.launchers.get(event.origin.node)
    left = report.abandoned or report.held_devices
    if not left or launcher is None or launcher.holds_generation >= report.generation:
        return
    launcher.holds_generation = report.generation
    sentence = _left_behind(event) if report.abandoned else _memory_left(event)
    reason = "ProcessesLeftBehind" if report.abandoned else "DeviceMemoryLeft"
    turn.announce(job.name, reason, f"{job.name}: {sentence}")
    incident = open_incident(turn.state, job)
    known = incident.left_behind if incident else []
    # A launcher that comes back says it again.
    if sentence not in known and len(known) < _NODES_MAX:
        known.append(sentence)


def _left_behind(event: Reported[GenerationStopped]) -> str:
    report = event.report
    return (
        f"generation {report.generation} on {event.origin.node} was left with processes that were "
        "killed, but that the kernel holds for a device or a file system: "
        f"{_listed(report.abandoned)}"
    )


def _memory_left(event: Reported[GenerationStopped]) -> str:
    report = event.report
    return (
        f"all processes of generation {report.generation} on {event.origin.node} are gone, and "
        f"memory of its devices is still in use: {_listed(report.held_devices)}; another node is "
        "taken where there is one"
    )


def _listed(named: Sequence[object]) -> str:
    return ", ".join(map(str, named[:_NAMED_MAX])) + (" …" if len(named) > _NAMED_MAX else "")


def _death_order(death: Death) -> DeathOrder:
    return (death.exit.generation, death.waited_in_vain, death.at_ns, death.exit.rank)


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
        job.lineage.skipped = merge_ranges([*job.lineage.skipped, report.skip])[-RANGES_MAX:]
    left_out = (
        f"; data {report.skip.first} to {report.skip.last} is left out" if report.skip else ""
    )
    message = f"rank {report.rank} on {node} asks to go back before step {report.step}"
    told = f"{message}: {quoted(report.reason)}{left_out}"
    known = job.generation.asked_rollback
    if known is None or report.step < known.step:
        job.generation.asked_rollback = AskedRollback(node, report.step, told, report.skip)
    record_fault(turn, job, JobFault(event.at_ns, Cause.ROLLBACK, node, told))


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
    if job.lineage.restored is None or open_incident(turn.state, job) is None:
        return None
    soon = step - job.lineage.restored[1] <= turn.state.settings.probation_steps
    return job.lineage.restored if soon else None


def merge_ranges(ranges: list[DataRange]) -> list[DataRange]:
    """Return the same data in as few ranges as possible, in order."""
    found: list[DataRange] = []
    for one in sorted(ranges):
        if found and one.first <= found[-1].last + 1:
            found[-1] = DataRange(found[-1].first, max(found[-1].last, one.last))
        else:
            found.append(one)
    return found


HANDLERS: Handlers = {
    reports.RollbackAsked: rollback_asked,
}
