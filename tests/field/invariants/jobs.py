"""Invariants of jobs: how they end, what they compute, what they repeat, what is accounted."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from field.invariants.violations import Violation, explained
from field.observation.records import Excuse, Redo, Round


def jobs_end_well(round_: Round) -> Sequence[Violation]:
    """Every job comes to its end, and its launchers say so."""
    return [*_unfinished(round_), *_failed(round_)]


def _unfinished(round_: Round) -> Iterator[Violation]:
    for one in round_.results:
        if not one.finished and not any(code > 0 for code in one.codes.values()):
            told = f"{one.shape} on {', '.join(one.nodes)} did not end; it wrote {one.steps} steps"
            yield Violation(one.ended_s, one.job, told, one.begun_s)


def _failed(round_: Round) -> Iterator[Violation]:
    for one in round_.results:
        bad = {node: code for node, code in one.codes.items() if code > 0}
        if bad:
            told = f"{one.shape}: launchers ended with {bad}: {one.told[-600:]}"
            yield Violation(one.ended_s, one.job, told, one.begun_s)


def losses_are_equal(round_: Round) -> Sequence[Violation]:
    """A job that ended has the losses of a run without faults, to the bit."""
    return [
        Violation(one.ended_s, one.job, f"{one.shape}: {one.first_difference}", one.begun_s)
        for one in round_.results
        if one.finished and one.promised_equal and not one.losses_equal
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
    nodes = {one.job: one.nodes for one in round_.results}
    own = {one.job for one in round_.results if one.own_checkpoints}
    found = []
    for job, redone in groupby(sorted(round_.redone, key=_by_job), key=lambda one: one.job):
        for first in _beginnings(list(redone)):
            excuses = (Excuse.REDO, Excuse.OWN_REDO) if job in own else (Excuse.REDO,)
            places = nodes.get(job, ())
            if not any(explained(round_, one, first.at_s, places, job) for one in excuses):
                told = f"step {first.from_step} was made again after {first.to_step}, with no fault"
                found.append(Violation(first.at_s, job, told))
    return found


def _by_job(one: Redo) -> tuple[str, float]:
    return one.job, one.at_s


def _beginnings(redone: list[Redo]) -> list[Redo]:
    """Return where the job went back: a step that follows the one before is the same redo."""
    return [one for one in redone if one.from_step <= one.to_step]


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
        if one.ledger.wall_ns / 1e9 > true_s + _TOLERANCE_S:
            told = f"the ledger has {one.ledger.wall_ns / 1e9:.1f} s, it ran {true_s:.1f} s"
            found.append(Violation(one.ended_s, one.job, told, one.begun_s))
    return found


# A ledger begins with the launchers' first word, which comes after the field started them.
_TOLERANCE_S = 2.0


def journal_replays(round_: Round) -> Sequence[Violation]:
    """A replay of the journal decides as the controller did."""
    if not round_.replay:
        return []
    return [Violation(round_.lasted_s, "journal", f"replay: {round_.replay}")]


def nothing_is_left(round_: Round) -> Sequence[Violation]:
    """When all jobs have ended, no machine holds anything of them."""
    return [Violation(round_.lasted_s, "machines", one) for one in round_.left_behind]
