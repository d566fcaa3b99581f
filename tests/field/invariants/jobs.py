"""Invariants of jobs: how they end, what they compute, what they repeat, what is accounted."""

import re
from collections.abc import Iterator, Sequence
from functools import partial

from field.invariants.violations import Violation, concerns, covered_s, explained
from field.observation.records import Excuse, Fault, JobResult, Redo, Round

# A ledger begins with the launchers' first word, which comes after the field started them.
_TOLERANCE_S = 2.0
# Scripts that checkpoint by themselves do it as often at least, where a record does not say it.
_CHECKPOINT_STEPS = 25
# Beyond what was promised: copies under way, and the step in flight, on two processors.
_IN_FLIGHT_S = 6.0
# An agent that is there again needs as long until a newer step can be restored.
_SAVES_AGAIN_S = 15.0
# A job that is stopped ends after a step, and stores its last one if it stores any.
_STOPS_S = 90.0
# Between the last step and the first one that is made again, where that was not kept.
_RESTART_S = 15.0
# Agents find a controller that is there again within this time.
_HEARD_AGAIN_S = 10.0
# Events are read as often at least.
_EVENTS_S = 30.0
# "one step in 5 is snapshotted, and a failure costs up to 5 steps (0.25 s): …"
_PROMISED = re.compile(
    r"costs up to \d+ steps? \((?P<seconds>[\d.e+-]+) s\)"
    r"|one step in (?P<every>\d+) is snapshotted from step"
)
# core.snapshot_interval_max_s, as shipped: more is not promised, whatever is told.
_PROMISED_MAX_S = 60.0


def jobs_end_well(round_: Round) -> Sequence[Violation]:
    """Every job comes to its end, and its launchers say so."""
    return [*_unfinished(round_), *_failed(round_), *_not_stopped(round_)]


def _unfinished(round_: Round) -> Iterator[Violation]:
    for one in round_.results:
        if not one.finished and not any(code > 0 for code in one.codes.values()):
            told = f"{one.shape} on {', '.join(one.nodes)} did not end; it wrote {one.steps} steps"
            yield Violation(one.ended_s, one.job, told, one.begun_s)


def _stopped(round_: Round, result: JobResult) -> Fault | None:
    """Return what ended a job on purpose; None where nobody did."""
    for one in round_.faults:
        if one.job == result.job and concerns(one, Excuse.ENDED, result.nodes, result.job):
            return one
    return None


def _not_stopped(round_: Round) -> Iterator[Violation]:
    """Yield jobs that went on though an operator had stopped them."""
    for one in round_.results:
        stop = _stopped(round_, one)
        if stop is None or explained(round_, Excuse.WAIT, one.ended_s, one.nodes):
            continue
        lasted_s = one.ended_s - stop.begun_s
        if lasted_s > _STOPS_S:
            told = f"{one.shape}: it ended {lasted_s:.0f} s after an operator had stopped it"
            yield Violation(one.ended_s, one.job, told, stop.begun_s)


def _failed(round_: Round) -> Iterator[Violation]:
    for one in round_.results:
        bad = {node: code for node, code in one.codes.items() if code > 0}
        if bad and _stopped(round_, one) is None:
            told = f"{one.shape}: launchers ended with {bad}: {one.told[-600:]}"
            yield Violation(one.ended_s, one.job, told, one.begun_s)


def losses_are_equal(round_: Round) -> Sequence[Violation]:
    """A job that ended has the losses of a run without faults, to the bit."""
    return [
        Violation(one.ended_s, one.job, f"{one.shape}: {one.first_difference}", one.begun_s)
        for one in round_.results
        if one.finished
        and one.promised_equal
        and not one.losses_equal
        and _stopped(round_, one) is None
    ]


def restores_are_right(round_: Round) -> Sequence[Violation]:
    """Every rank was given what it had at that step."""
    return [
        Violation(
            round_.lasted_s,
            one.job,
            f"generation {one.generation}: rank {one.rank} was given another state than step "
            f"{one.step}",
        )
        for one in round_.restores
        if not one.right
    ]


def redone_steps_are_explained(round_: Round) -> Sequence[Violation]:
    """Steps are made again only after a fault of the job or of one of its machines."""
    results = {one.job: one for one in round_.results}
    found = []
    for first in _beginnings(round_):
        result = results.get(first.job)
        own = result is not None and result.own_checkpoints
        # Ranks that stop after a planned step may have made the next one while it was saved.
        in_flight = first.from_step == first.to_step
        excuses = [Excuse.REDO]
        if own or in_flight:
            excuses.append(Excuse.OWN_REDO)
        if result is not None and first.to_step == result.steps - 1:
            # That it had made its last step only an agent could have told that was away.
            excuses.append(Excuse.UNSAVED)
        places = () if result is None else result.nodes
        # A job may wait long for a node after the fault that stopped it.
        since_s = first.at_s if first.since_s is None else first.since_s
        if not any(
            explained(round_, one, first.at_s, places, first.job, since_s=since_s)
            for one in excuses
        ):
            told = f"step {first.from_step} was made again after {first.to_step}, with no fault"
            found.append(Violation(first.at_s, first.job, told))
    return found


def redone_steps_are_few(round_: Round) -> Sequence[Violation]:
    """A failure costs what the script's own checkpoints, or the told cadence, let it cost."""
    results = {one.job: one for one in round_.results}
    found = []
    for first in _beginnings(round_):
        result = results.get(first.job)
        lost = first.to_step - first.from_step + 1
        if result is not None and lost > (limit := _redo_limit(round_, first, result)):
            told = (
                f"{lost} steps, {first.from_step} to {first.to_step}, were made again: "
                f"{limit} are explained"
            )
            found.append(Violation(first.at_s, first.job, told, _since_s(first, result)))
    return found


def _redo_limit(round_: Round, redo: Redo, result: JobResult) -> int:
    """Return how many steps a failure may have cost."""
    if result.own_checkpoints:
        return result.checkpoint_steps or _CHECKPOINT_STEPS
    unsaved = partial(concerns, excuse=Excuse.UNSAVED, nodes=result.nodes, job=result.job)
    since_s = _since_s(redo, result)
    unsaved_s = covered_s(round_, since_s, redo.at_s, unsaved, _SAVES_AGAIN_S)
    promised_s = _promised_s(round_, redo, result)
    return round((promised_s + _IN_FLIGHT_S + unsaved_s) / result.step_s)


def _since_s(redo: Redo, result: JobResult) -> float:
    if redo.since_s is not None:
        return redo.since_s
    made_s = (redo.to_step - redo.from_step + 1) * result.step_s
    return max(0.0, redo.at_s - _RESTART_S - made_s)


def _promised_s(round_: Round, redo: Redo, result: JobResult) -> float:
    """Return the longest training that the job was told a failure may cost."""
    told_s = [result.step_s]
    for event in round_.events:
        if event.reason == "SnapshotCadence" and event.subject == redo.job:
            said = _PROMISED.search(event.message)
            if said is not None and event.at_s <= redo.at_s + _EVENTS_S:
                told_s.append(_told_s(said, result))
    return min(max(told_s), _PROMISED_MAX_S)


def _told_s(said: re.Match[str], result: JobResult) -> float:
    if said["every"]:
        return int(said["every"]) * result.step_s
    return float(said["seconds"])


def _by_job(one: Redo) -> tuple[str, float]:
    return one.job, one.at_s


def _beginnings(round_: Round) -> Iterator[Redo]:
    """Yield where jobs went back: a step that follows the one before is the same redo."""
    for one in sorted(round_.redone, key=_by_job):
        if one.from_step <= one.to_step:
            yield one


def ledgers_sum_to_the_wall_clock(round_: Round) -> Sequence[Violation]:
    """Every nanosecond of a job is in exactly one category, and its wall clock is true."""
    found = []
    for one in round_.results:
        if one.ledger is None:
            found.append(Violation(one.ended_s, one.job, "no ledger could be read at its end"))
            continue
        total = sum(one.ledger.categories.values())
        if total != one.ledger.wall_ns:
            told = f"categories sum to {total} ns, the wall clock is {one.ledger.wall_ns} ns"
            found.append(Violation(one.ended_s, one.job, told, one.begun_s))
        true_s = one.ended_s - one.begun_s
        unknown_s = max(_unheard_s(round_, one), _forgotten_s(round_, one))
        least_s = true_s - one.slack_s - unknown_s
        if not least_s <= one.ledger.wall_ns / 1e9 <= true_s + _TOLERANCE_S:
            told = f"the ledger has {one.ledger.wall_ns / 1e9:.1f} s, it ran {true_s:.1f} s"
            found.append(Violation(one.ended_s, one.job, told, one.begun_s))
    return found


def _unheard_s(round_: Round, result: JobResult) -> float:
    """Return how long after a job's start no controller may have heard of it."""
    reached_s = result.begun_s
    for one in sorted(round_.faults, key=lambda fault: fault.begun_s):
        healed_s = one.ended_s + _HEARD_AGAIN_S
        if one.begun_s <= reached_s < healed_s and concerns(one, Excuse.WAIT, result.nodes):
            reached_s = healed_s
    return min(reached_s, result.ended_s) - result.begun_s


def _forgotten_s(round_: Round, result: JobResult) -> float:
    """Return how much of a job's time its controller cannot know any more."""
    until_s = [
        min(one.ended_s + one.aftermath_s, result.ended_s)
        for one in round_.faults
        if result.begun_s <= one.ended_s <= result.ended_s
        and concerns(one, Excuse.FORGOTTEN, result.nodes, result.job)
    ]
    return max(until_s, default=result.begun_s) - result.begun_s


def journal_replays(round_: Round) -> Sequence[Violation]:
    """A replay of the journal decides as the controller did."""
    if not round_.replay:
        return []
    return [Violation(round_.lasted_s, "journal", f"replay: {round_.replay}")]


def nothing_is_left(round_: Round) -> Sequence[Violation]:
    """When all jobs have ended, no machine holds anything of them."""
    return [Violation(round_.lasted_s, "machines", one) for one in round_.left_behind]
