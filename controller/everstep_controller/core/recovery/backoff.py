"""Backoff: how long a job waits for its next attempt when what ended it is outside of it.

Storage that gives errors, a service that nobody reaches and a signal that somebody sends are not
the program's doing, so no number of them ends a job that has trained. Each attempt without a new
step is twice as far from the one before it. A job that has never made a step and dies of one error
each time is the exception: it names what was never there.
"""

from collections.abc import Mapping
from types import MappingProxyType

from everstep_controller.core.model.incident import JUDGEMENTS_MAX, Judgement
from everstep_controller.core.model.job import Cause, JobRecord, PlannedKind
from everstep_controller.core.model.settings import Settings
from everstep_controller.core.registry import Timers, job_timers
from everstep_controller.core.turn import TimerKind, Turn

_S = 1_000_000_000
# The first attempt comes at once, since most of it is over by then; the second one so much later.
_FIRST_NS = 5 * _S
# Of a script whose steps nobody sees, only a life of so long shows that it has got going.
_LIVED_NS = 600 * _S
# So many ends in a row of the same at the same step make the program worth a look.
_ALIKE_MIN = 3
# Causes of an end that may be over later.
_WAITED_FOR = frozenset({Cause.PROCESS, Cause.COLLECTIVE, Cause.LAUNCHER})
# Kinds of death by which a program may name what is not there.
_NAMED_BY_PROGRAM = frozenset({"storage", "network"})
# Number of nodes that a sentence names.
_NAMED_MAX = 3

# What to do, by the kind of the death.
_ADVICE: Mapping[str, str] = MappingProxyType(
    {
        "storage": "see to the file system that its ranks read and write",
        "network": "see whether what its ranks connect to is up",
        "killed": "see who or what kills its ranks",
        "state": "see to the copies of its state, by 'everstep snapshots {job}'",
        "collective": "see to the network between its nodes",
    }
)
_OF_LAUNCHERS = "see what ends its launchers"


def backoff_ns(settings: Settings, ends: int) -> int:
    """Return how long a job waits after so many ends from outside in a row before this one."""
    longest_ns = settings.restart_backoff_max_ns
    if not ends:
        return 0
    # More doublings than that are longer than any limit.
    return min(_FIRST_NS << min(ends - 1, 32), longest_ns)


def note_end(turn: Turn, job: JobRecord, judgement: Judgement) -> None:
    """Count an end that came from outside, and begin to wait for the next attempt."""
    settings, recovery = turn.state.settings, job.recovery
    if _has_lived(turn, job):
        recovery.outside_ends, recovery.got_going = 0, True
    if not judgement.outside:
        turn.drop_timer(f"{TimerKind.BACKOFF}/{job.id}")
        return
    wait_ns = backoff_ns(settings, recovery.outside_ends)
    recovery.outside_ends += 1
    if wait_ns:
        turn.set_timer(f"{TimerKind.BACKOFF}/{job.id}", wait_ns)


def _has_lived(turn: Turn, job: JobRecord) -> bool:
    """Return whether a generation ran until it got going, whenever its end is judged."""
    began_ns, number = job.generation.began_ns, job.generation.number
    died = [one.at_ns for one in job.recovery.deaths if one.exit.generation == number]
    return bool(began_ns) and min(died, default=turn.now_ns) - began_ns >= _LIVED_NS


def waits(turn: Turn, job: JobRecord) -> bool:
    """Return whether it is not time yet for a job's next attempt.

    A node that turns out to be lost, or a finding, explains what its ranks died of; and whoever
    has ordered a restart while they were stopped knows what it was.
    """
    if job.planned is not None and job.planned.kind is PlannedKind.RESTART:
        return False
    return job.generation.cause in _WAITED_FOR and turn.has_timer(TimerKind.BACKOFF, job.id)


def end_wait(turn: Turn, job: JobRecord) -> None:
    """Have the next attempt begin now."""
    turn.drop_timer(f"{TimerKind.BACKOFF}/{job.id}")
    turn.mark_job(job.id)


def never_reached(job: JobRecord) -> str:
    """Return why what seems to come from outside is the program's after all; "" where it is not.

    Every attempt died of one error and no generation ever got going, on more than one node where
    there are several: what it names is not there for anybody, and perhaps never was.
    """
    limit, ends = job.spec.restarts_max, _ends_in_a_row(job)
    got_going = job.ledger.step_count or job.recovery.got_going
    if job.recovery.outside_ends <= limit or got_going or not ends:
        return ""
    last, nodes = ends[-1], {name for one in ends for name in one.nodes}
    alike = len(ends) >= min(limit + 1, JUDGEMENTS_MAX) and _are_alike(ends)
    everywhere = len(nodes) > 1 or len(job.generation.members) == 1
    if not alike or not everywhere or _kind_of(last) not in _NAMED_BY_PROGRAM:
        return ""
    restarts = "1 restart" if limit == 1 else f"{limit} restarts"
    return (
        f"given up after {restarts}, each of which died of the same before any step was seen: what "
        f"it names was never there; the last one: {last.sentence}; correct the address or the path "
        "or start what is there, and start the job again"
    )


def sentence(turn: Turn, job: JobRecord) -> str:
    """Return why a job waits for its next attempt, and what to do meanwhile."""
    ends, settings = job.recovery.outside_ends, turn.state.settings
    wait_s = backoff_ns(settings, ends - 1) // _S
    last, command = job.recovery.judgements[-1], f"everstep job {job.name}"
    return (
        f"{last.sentence}; the next attempt, {ends} without a new step so far, is {wait_s} s after "
        f"the last one: {_advice(job, last)}{_suspicion(job)}; to try now: '{command} restart "
        f"--reason …', to end it: '{command} stop --reason …'"
    )


def _advice(job: JobRecord, last: Judgement) -> str:
    if job.generation.cause is Cause.LAUNCHER:
        return _OF_LAUNCHERS
    known = _ADVICE.get(_kind_of(last), "see what its ranks say")
    return known.format(job=job.name)


def _suspicion(job: JobRecord) -> str:
    """Return what speaks for one node, or for the program, as the end of a sentence."""
    ends = _ends_in_a_row(job)
    if len(ends) < _ALIKE_MIN or not _are_alike(ends) or ends[-1].step != ends[0].step:
        return ""
    nodes = sorted({name for one in ends for name in one.nodes})
    if len(nodes) == 1 and len(job.generation.members) > 1:
        return f"; it is {nodes[0]} each time: 'everstep drain {nodes[0]}' tries without it"
    more = f" and {len(nodes) - _NAMED_MAX} more" if len(nodes) > _NAMED_MAX else ""
    named = f" on {', '.join(nodes[:_NAMED_MAX])}{more}" if nodes else ""
    where = "before any step" if ends[-1].step is None else f"after step {ends[-1].step}"
    return (
        f"; it is the same each time, {where}{named}: look also at the address or the path that "
        "its script names"
    )


def _ends_in_a_row(job: JobRecord) -> list[Judgement]:
    """Return the newest judgements that are all of ends from outside, oldest first."""
    found: list[Judgement] = []
    for one in reversed(job.recovery.judgements[-job.recovery.outside_ends :]):
        if not one.outside:
            break
        found.insert(0, one)
    return found if job.recovery.outside_ends else []


def _are_alike(ends: list[Judgement]) -> bool:
    return bool(ends[-1].signature) and len({one.signature for one in ends}) == 1


def _kind_of(judgement: Judgement) -> str:
    return judgement.signature.partition(":")[0]


TIMERS: Timers = job_timers(TimerKind.BACKOFF)
