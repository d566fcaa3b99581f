"""Progress of a generation: phases, steps, the layout of its state, stalls, and its end.

Ranks that live and make no steps are shown, and restarted where that is wanted. What a rank does
between two steps is not known here: it may wait for ever for another one, or evaluate. So a long
silence is a state that people see, and a fault only after the time that an operator has set for it.
A generation that has not made its first steps is not judged.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from statistics import median_low
from types import MappingProxyType

from everstep_common import reports
from everstep_common.hangs.reports.verdict import HangClass
from everstep_common.reports import GenerationFinished, Phase, PhaseReached, StepPause
from everstep_controller.core import events
from everstep_controller.core.accounting.categories import PAUSES, Category
from everstep_controller.core.accounting.ledger import REFERENCE_STEPS, Ledger
from everstep_controller.core.actions import About, Topic
from everstep_controller.core.events import (
    CadenceChosen,
    JobProgressed,
    KeeperChosen,
    LayoutLearned,
    Reported,
    StepRecoverable,
    StoringMeasured,
)
from everstep_controller.core.fleet.incidents import open_incident
from everstep_controller.core.jobs import (
    ending,
    incidents,
    orders,
    restore_point,
    transition,
    unsaved,
    withdrawal,
)
from everstep_controller.core.jobs.lifecycle import ACTIVE, BEGINNING, STEPPING, JobEvent
from everstep_controller.core.model.job import Cause, JobFault, JobIncident, JobRecord, JobState
from everstep_controller.core.model.state import note_node
from everstep_controller.core.nodes import unanswered_orders
from everstep_controller.core.registry import Handlers, Timers, job_timers
from everstep_controller.core.turn import Reconciliation, TimerKind, Turn

# In this order a member comes to them.
ORDER: Mapping[Phase, int] = MappingProxyType(
    {Phase.STARTED: 0, Phase.ATTACHED: 1, Phase.RESTORED: 2}
)

# For phases that are told late: the category that the time was booked under, and the right one.
_LATE: Mapping[Phase, Mapping[Category, Category]] = MappingProxyType(
    {
        Phase.STARTED: {Category.ENV: Category.INIT, Category.INIT_ENV: Category.INIT_PROC},
        Phase.ATTACHED: {
            Category.ENV: Category.RESTORE,
            Category.INIT: Category.RESTORE,
            Category.INIT_ENV: Category.INIT_RESTORE,
            Category.INIT_PROC: Category.INIT_RESTORE,
        },
        Phase.RESTORED: {},
    }
)


def phase_reached(turn: Turn, event: Reported[PhaseReached]) -> None:
    """A node's ranks reached a phase; when all nodes have, so has the job."""
    job = turn.state.job(event.job)
    node = event.origin.node
    if (
        job is None
        or event.report.generation != job.generation.number
        or node not in job.generation.members
    ):
        return
    if job.state not in ACTIVE:
        return
    known = job.generation.phases.get(node)
    _note_answer(turn, job, node)
    if known is event.report.phase:
        return  # it was asked again
    job.awaited.heard_ns = turn.now_ns
    note_phase(job, event.report.phase, event.at_ns)
    if known is not None and ORDER[event.report.phase] <= ORDER[known]:
        restate_overtaken(job, event.report.phase)
        return
    job.generation.phases[node] = event.report.phase
    if len(job.generation.phases) == len(job.generation.members) and not _held_back(job, known):
        job.news.phase = next(phase for phase in ORDER if job.generation.phases.count(phase))


def _note_answer(turn: Turn, job: JobRecord, node: str) -> None:
    """The agent of a member does what it is ordered."""
    job.awaited.silent.pop(node, None)
    job.overdue.pop(node, None)
    unanswered_orders.record_answer(turn, turn.state.nodes[node], f"it takes part in {job.name}")


def _held_back(job: JobRecord, left: Phase | None) -> bool:
    """Return whether some member is still in the phase that another one has left, or before it."""
    if left is None:
        return False
    phases = job.generation.phases
    return any(phases.count(phase) for phase in ORDER if ORDER[phase] <= ORDER[left])


def _enter_phase(turn: Reconciliation, job: JobRecord, phase: Phase) -> None:
    at_ns = min(job.generation.reached_ns[phase], turn.now_ns)
    if job.state in STEPPING:
        job.ledger.relabel(_LATE[phase], at_ns)
    elif phase is Phase.STARTED:
        job.ledger.enter(at_ns, transition.category(turn.state, job, Category.INIT))
    elif phase is Phase.ATTACHED:
        transition.move_job(turn, job, JobEvent.ATTACHED, "all ranks have called in")
        job.ledger.enter(at_ns, transition.category(turn.state, job, Category.RESTORE))
    else:
        transition.move_job(turn, job, JobEvent.RESTORED, "all ranks have their state")
        job.ledger.begin_steps(at_ns, warmup=True)
        _watch_first_step(turn, job)


def progressed(turn: Turn, event: JobProgressed) -> None:
    """Count steps that all ranks completed."""
    job = turn.state.job(event.job)
    if job is None or event.generation != job.generation.number or job.state is JobState.ENDED:
        return
    if not withdrawal.keep_steps(turn, job, event):
        _count_steps(turn, job, event)


def _count_steps(turn: Turn, job: JobRecord, event: JobProgressed) -> None:
    job.snapshots_skipped = max(job.snapshots_skipped, event.snapshots_skipped)
    last = event.first_step + len(event.end_ns) - 1
    if job.lineage.last_step is not None and last <= job.lineage.last_step:
        return  # told again, after a restart of the controller
    if job.state in ACTIVE and job.state not in (*STEPPING, JobState.WARMING):
        # It does not tell its phases, or tells them late: its first steps show that it runs.
        begun_ns, guessed = steps_begun_ns(job, event.end_ns)
        job.ledger.begin_steps(begun_ns, warmup=True, guessed=guessed)
    had_state, recoverable = restore_point.has_state(job), job.lineage.recoverable_step
    _learn_resumption(turn, job, event)
    pauses = _pauses(event.pauses)
    for offset, (end_ns, stall_ns) in enumerate(zip(event.end_ns, event.stall_ns, strict=True)):
        number = event.first_step + offset
        if _is_counted(job, number):
            continue
        incident = open_incident(turn.state, job)
        job.ledger.commit_step(number, end_ns, stall_ns, pauses.get(number, _NO_PAUSE))
        job.snapshot_costs.record(job.cadence, number, stall_ns)
        _note_step(job, incident, number, end_ns)
    if event.recoverable_step is not None:
        job.lineage.recoverable_step = event.recoverable_step
    unsaved.watch(turn, job, recoverable)
    if job.state in ACTIVE:
        watch_steps(turn, job)
    stepped = bool(event.end_ns) and job.state in ACTIVE
    job.news.stepped = stepped and job.state is not JobState.RUNNING
    # Steps alone change nothing that is decided: this comes every second, of every job.
    is_news = job.news.stepped or job.news.new_step is not None
    if is_news or job.planned is not None or restore_point.has_state(job) is not had_state:
        turn.mark_job(job.id)


def _learn_resumption(turn: Turn, job: JobRecord, event: JobProgressed) -> None:
    """Learn from its first step where a job goes on that was restarted without a snapshot.

    Steps that come once its stop was ordered were made before, and tell nothing of what follows.
    """
    began = job.state in BEGINNING and bool(event.end_ns)
    if not began or restore_point.undecided_step(job) is None:
        return
    job.news.resumed = (event.first_step, job.ledger.steps[-1].step)
    incident = open_incident(turn.state, job)
    if incident is not None:
        incident.step_resumed = event.first_step


_NO_PAUSE: Mapping[Category, int] = MappingProxyType({})


def _pauses(told: Sequence[StepPause]) -> Mapping[int, Mapping[Category, int]]:
    """Return, by step, what its ranks declared to be none, in nanoseconds by category."""
    found: dict[int, dict[Category, int]] = {}
    for one in told:
        found.setdefault(one.step, {})[PAUSES[one.kind]] = one.lasted_ns
    return found


def _is_counted(job: JobRecord, number: int) -> bool:
    return job.lineage.last_step is not None and number <= job.lineage.last_step


def _note_step(job: JobRecord, incident: JobIncident | None, number: int, end_ns: int) -> None:
    """Remember the newest step, and that it is new after an incident."""
    job.lineage.last_step = number
    is_new = incident is None or incident.step_before is None or number > incident.step_before
    if not is_new:
        return
    job.recovery.restarts_without_progress = job.recovery.outside_ends = 0
    if incident is not None and job.state in (JobState.STOPPING, JobState.CLOSING):
        # Told late, but made before the fault: going on after it repeats nothing.
        incident.step_before = number
    elif incident is not None and job.news.new_step is None:
        job.news.new_step, job.news.new_step_ns = number, end_ns


def step_recoverable(turn: Turn, event: StepRecoverable) -> None:
    """A newer step can be restored, and no row of progress has said so."""
    job = turn.state.job(event.job)
    if job is not None and event.generation == job.generation.number:
        known, job.lineage.recoverable_step = job.lineage.recoverable_step, event.step
        unsaved.watch(turn, job, known)
        turn.mark_job(job.id)


def keeper_chosen(turn: Turn, event: KeeperChosen) -> None:
    """Ask this node, too, what it has when the job has to go back."""
    job = turn.state.job(event.job)
    if job is not None and job.state is not JobState.ENDED and event.node in turn.state.nodes:
        job.lineage.holders.setdefault(event.node, 0)
        note_node(turn.state, event.node, job)


def cadence_chosen(turn: Turn, event: CadenceChosen) -> None:
    """Remember which steps are snapshotted: costs are theirs, and a restart goes on with it."""
    job = turn.state.job(event.job)
    if job is not None:
        job.cadence = event.cadence


def storing_measured(turn: Turn, event: StoringMeasured) -> None:
    """Remember how long a step is on its way to storage: an end that is planned waits for it."""
    job = turn.state.job(event.job)
    if job is not None:
        job.snapshot_costs.storing_ns = event.took_ns


def layout_learned(turn: Turn, event: LayoutLearned) -> None:
    """Remember which parts a whole state of this generation has."""
    job = turn.state.job(event.job)
    if job is not None:
        job.lineage.branch = [
            replace(point, layouts=event.layouts) if point.generation == event.generation else point
            for point in job.lineage.branch
        ]


def generation_finished(turn: Turn, event: Reported[GenerationFinished]) -> None:
    """All ranks of a node ended well; also where that was behind a cut, and may still count."""
    job = turn.state.job(event.job)
    node = event.origin.node
    if job is None or event.report.generation != job.generation.number:
        return
    counts = job.state in ACTIVE or orders.withdrawal_pending(turn.state, job)
    if counts and node in job.generation.members:
        job.generation.finished[node] = True
        job.generation.still.pop(node, None)


def reconcile_job(turn: Reconciliation, job: JobRecord) -> None:
    """Take a job on to the phase or the steps that all its ranks have come to, or to its end."""
    for row in withdrawal.reconcile_job(turn, job):
        progressed(turn, row)
    news, generation = job.news, job.generation
    if news.phase is not None and job.state in ACTIVE:
        _enter_phase(turn, job, news.phase)
    if news.resumed is not None and job.state in ACTIVE:
        turn.announce(job.name, "JobResumed", _resumed_sentence(job, *news.resumed))
    if news.new_step is not None:
        _end_incident(turn, job, news.new_step, news.new_step_ns)
    if news.stepped:
        _go_on(turn, job)
    if TimerKind.STALLED in news.due:
        _judge_stall(turn, job)
    unsaved.reconcile_job(turn, job)
    if job.state in ACTIVE and len(generation.finished) == len(generation.members):
        ending.finish_job(turn, job, _all_well(job))


def _go_on(turn: Reconciliation, job: JobRecord) -> None:
    """Take a job on of which no step was known of late; rows of steps before a stall end none."""
    # Of a script that only prints its steps, they are those of whichever rank prints first.
    reason = "all ranks make steps" if _all_have_called_in(job) else "it makes steps"
    if job.state is JobState.STALLED:
        if transition.told_late(job):
            job.hang.onset_ns = job.ledger.steps[-1].end_ns
            return
        reason += _stood_words(job)
    transition.move_job(turn, job, JobEvent.PROGRESSED, reason)


def _all_have_called_in(job: JobRecord) -> bool:
    """Return whether all ranks tell of themselves: then a step is one that all have completed."""
    phases = job.generation.phases
    called_in = phases.count(Phase.ATTACHED) + phases.count(Phase.RESTORED)
    return called_in >= len(job.generation.members)


def _stood_words(job: JobRecord) -> str:
    """Return how long a job stood still that makes steps again, and with which it went on."""
    made = list(takewhile(lambda one: one.end_ns > job.hang.onset_ns, reversed(job.ledger.steps)))
    if not made:
        return " again"
    stood_s = (made[-1].end_ns - job.hang.onset_ns) / _S
    return f" again, from step {made[-1].step} on, after {stood_s:.1f} s without one"


def _end_incident(turn: Reconciliation, job: JobRecord, step: int, end_ns: int) -> None:
    incident = open_incident(turn.state, job)
    if incident is None:
        return
    incident.over_ns, job.recovery.plan = end_ns, None
    lasted_s = (end_ns - incident.onset_ns) / 1e9
    turn.announce(
        job.name,
        "IncidentOver",
        f"{job.name} is at new step {step}, {lasted_s:.2f} s after: {incident.message}",
        About(topic=Topic.INCIDENT_OVER),
    )


def _resumed_sentence(job: JobRecord, first: int, newest: int) -> str:
    told = f"{job.name} goes on with step {first} by itself"
    if first > newest:
        return f"{told}: no step that was seen is made again"
    return f"{told}: what it had made from there on, up to step {newest}, is made again"


def _all_well(job: JobRecord) -> str:
    after = "" if job.lineage.last_step is None else f" after step {job.lineage.last_step}"
    return f"all ranks ended well{after}"


def note_phase(job: JobRecord, phase: Phase, at_ns: int) -> None:
    """Remember when the last node yet has told to have reached a phase."""
    job.generation.reached_ns[phase] = max(job.generation.reached_ns.get(phase, 0), at_ns)


def restate_overtaken(job: JobRecord, phase: Phase) -> None:
    """Take the word of a node of a phase that its word of a later one has overtaken."""
    phases = job.generation.phases
    all_are_there = len(phases) == len(job.generation.members)
    if all_are_there and not any(
        phases.count(other) for other in ORDER if ORDER[other] < ORDER[phase]
    ):
        job.ledger.relabel(_LATE[phase], job.generation.reached_ns[phase])


def steps_begun_ns(job: JobRecord, end_ns: Sequence[int]) -> tuple[int, bool]:
    """Return when the first steps began that came before the word that all ranks have their state.

    A job that never gives that word is taken to have needed as long for the first as for the next.
    Whether even that is only known later is returned as well: then this is the earliest time.
    """
    earliest_ns = job.ledger.segments[-1].start_ns
    told_ns = job.generation.reached_ns.get(Phase.RESTORED) if job.generation.phases else None
    if not end_ns:
        return earliest_ns, False
    usual_ns = _usual_ns(job.ledger, end_ns)
    if told_ns is None and usual_ns is None:
        return earliest_ns, True
    begun_ns = told_ns if told_ns is not None else end_ns[0] - (usual_ns or 0)
    return max(earliest_ns, min(begun_ns, end_ns[0])), False


def _usual_ns(ledger: Ledger, end_ns: Sequence[int]) -> int | None:
    if len(end_ns) > 1:
        return end_ns[1] - end_ns[0]
    if ledger.reference_ns:
        return median_low(ledger.reference_ns)
    works = [one.work_ns for one in ledger.steps[-REFERENCE_STEPS:]]
    return median_low(works) if works else None


_S = 1_000_000_000

# Evaluations and checkpoints come again: what took as long before is no news.
_LONGEST_TIMES = 3

# How soon a job is looked at again that would be restarted now, were automation not paused.
_ASKED_AGAIN_NS = 10 * _S


def watch_steps(turn: Turn, job: JobRecord) -> None:
    """Steps were made: look again when there should have been another."""
    timer = f"{TimerKind.STALLED}/{job.id}"
    if turn.state.settings.stall_timeout_ns and timer not in turn.state.timers and job.ledger.steps:
        turn.set_timer(timer, _patience_ns(turn, job))


def _watch_first_step(turn: Reconciliation, job: JobRecord) -> None:
    """Look whether a job has made a step again that was restarted for a hang.

    It goes on where it hung, so it may hang again in its first step, of which nothing was learned.
    """
    incident, settings = open_incident(turn.state, job), turn.state.settings
    least_ns = settings.stall_timeout_ns or settings.hang_patience_ns
    if least_ns and incident is not None and incident.cause is Cause.STALLED:
        wait_ns = max(least_ns, _LONGEST_TIMES * job.recovery.longest_warmup_ns)
        turn.set_timer(f"{TimerKind.STALLED}/{job.id}", wait_ns)


def postpone_stalls(turn: Turn, grace_ns: int) -> None:
    """Judge nothing by steps that nobody was there to hear of, until the agents have told them."""
    for job_id in turn.state.jobs:
        if f"{TimerKind.STALLED}/{job_id}" in turn.state.timers:
            turn.set_timer(f"{TimerKind.STALLED}/{job_id}", grace_ns)


def _judge_stall(turn: Reconciliation, job: JobRecord) -> None:
    """Show a job that has made no step in the meantime as stalled, or restart it."""
    if not job.ledger.steps:
        return
    job_id = job.id
    since_ns = job.ledger.steps[-1].end_ns
    still_ns = turn.now_ns - since_ns
    restart_ns = turn.state.settings.stall_restart_timeout_ns
    if job.state is JobState.WARMING:
        _judge_first_step(turn, job)
        return
    if job.state is JobState.RUNNING and turn.state.settings.stall_timeout_ns:
        if still_ns < _patience_ns(turn, job):
            turn.set_timer(f"{TimerKind.STALLED}/{job_id}", _patience_ns(turn, job) - still_ns)
            return
        transition.move_job(turn, job, JobEvent.STALLED, _stall_sentence(job, still_ns))
    if job.state is not JobState.STALLED or not restart_ns or _is_judged(turn, job):
        return
    wait_ns = max(restart_ns - still_ns, _ASKED_AGAIN_NS if turn.paused(job.name) else 0)
    if wait_ns > 0:
        turn.set_timer(f"{TimerKind.STALLED}/{job_id}", wait_ns)
        return
    message = (
        f"no rank of {job.name} has ended, and none makes steps: {_stall_sentence(job, still_ns)}"
    )
    incidents.judge_fault(turn, job, JobFault(since_ns, Cause.STALLED, "", message))


def _judge_first_step(turn: Reconciliation, job: JobRecord) -> None:
    still_s = (turn.now_ns - job.since_ns) // _S
    step = job.lineage.last_step
    where = "" if step is None else f" after step {step}"
    reason = f"restarted for a stall{where}, and no step for {still_s} s since all ranks have their"
    transition.move_job(turn, job, JobEvent.STALLED, f"{reason} state")


def _is_judged(turn: Turn, job: JobRecord) -> bool:
    """Return whether it is known who holds a job back, and that decides when it is restarted."""
    seen, patience_ns = job.hang.seen, turn.state.settings.hang_patience_ns
    if seen is None or seen.pause or seen.failure:
        return False
    return seen.verdict.kind not in _LEFT_TO_TIME and patience_ns > 0


# What no verdict restarts a job for: nobody waits for a rank, or all do for storage.
_LEFT_TO_TIME = frozenset({HangClass.NO_WAIT, HangClass.STORAGE})


def _patience_ns(turn: Turn, job: JobRecord) -> int:
    longest_ns = job.ledger.steps.longest_ns()
    return max(turn.state.settings.stall_timeout_ns, _LONGEST_TIMES * longest_ns)


def _stall_sentence(job: JobRecord, still_ns: int) -> str:
    last = job.ledger.steps[-1]
    took_s = (last.end_ns - last.start_ns) / _S
    return f"no step for {still_ns // _S} s since step {last.step}, which took {took_s:.2g} s"


HANDLERS: Handlers = {
    reports.PhaseReached: phase_reached,
    reports.GenerationFinished: generation_finished,
    events.JobProgressed: progressed,
    events.StepRecoverable: step_recoverable,
    events.KeeperChosen: keeper_chosen,
    events.CadenceChosen: cadence_chosen,
    events.StoringMeasured: storing_measured,
    events.LayoutLearned: layout_learned,
}
TIMERS: Timers = job_timers(TimerKind.STALLED)
