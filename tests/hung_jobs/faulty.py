"""Faults in jobs of realistic layouts: what each rank tells then, and who did it."""

import random
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from everstep_common.hangs.dumps.flight_recorder import report_of_dump
from everstep_common.hangs.reports.rank_report import ProcessFacts, ProcessState, RankHangReport
from everstep_common.hangs.reports.verdict import HangClass
from hung_jobs.layouts import Layout, Op, Program, drawn_layout
from hung_jobs.runs import (
    Recorder,
    Run,
    RunningRank,
    drawn_recorder,
    dump_of,
    launches_of,
    names_of,
)

# The class that each fault is to be told as.
FAULTS = {
    "cpu": HangClass.CPU_SIDE,
    "gpu": HangClass.GPU_SIDE,
    "gpu_error": HangClass.GPU_SIDE,
    "frozen": HangClass.FROZEN,
    "dead": HangClass.DEAD,
    "gil": HangClass.GIL_HELD,
    "silent": HangClass.SILENT,
    "shape": HangClass.DESYNC,
    "reorder": HangClass.DESYNC,
    "skip": HangClass.DESYNC,
}
PROGRAM_FAULTS = ("shape", "reorder", "skip")
_TOLD_BY_PROCESS = {
    "frozen": ProcessFacts(ProcessState.STOPPED),
    "dead": ProcessFacts(ProcessState.DEAD),
}


@dataclass(frozen=True, slots=True)
class FaultyJob:
    """A job that stands still, what its ranks tell, and who did it."""

    seed: int
    fault: str
    layout: str
    reports: tuple[RankHangReport, ...]
    world_size: int
    culprits: frozenset[int]
    # Of the culprits, those that wait for another one themselves: they cannot be seen.
    hidden: frozenset[int]


def faulty_job(seed: int, fault: str, *, missing: float = 0.0, layout: str = "") -> FaultyJob:
    """Return a job that a fault has stopped; the seed tells everything."""
    draw = random.Random(f"faulty job {seed} {fault}")
    while True:
        found = _attempt(draw, seed, fault, missing, layout)
        if found is not None:
            return found


def _attempt(
    draw: random.Random, seed: int, fault: str, missing: float, kind: str
) -> FaultyJob | None:
    layout = drawn_layout(draw, kind)
    with_p2p = any(
        isinstance(one, Op) and one.peer is not None for p in layout.programs for one in p
    )
    how = drawn_recorder(draw, with_p2p=with_p2p)
    chosen = _chosen(draw, fault, len(layout.programs))
    if fault in PROGRAM_FAULTS and not _depart(draw, fault, layout, chosen[0]):
        return None
    ranks = [
        RunningRank(launches_of(number, program, blocking=how.backend == "gloo"))
        for number, program in enumerate(layout.programs)
    ]
    for number in chosen if fault not in PROGRAM_FAULTS else ():
        _stop(draw, fault, ranks[number])
    Run(ranks, draw.choice((2, 8, 32, 100))).settle()
    bitten = frozenset(
        chosen if fault in PROGRAM_FAULTS else (n for n in chosen if ranks[n].is_bitten)
    )
    waiting = [n for n, one in enumerate(ranks) if n not in bitten and len(one.done) < one.enqueued]
    if not bitten or not waiting:
        return None
    for number in set(chosen) - bitten:
        ranks[number].unnoticed = None
    lost = {n for n in range(len(ranks)) if n not in bitten and draw.random() < missing}
    told = [n for n in range(len(ranks)) if n not in lost]
    reports = _reports(fault, layout, how, ranks, bitten, told)
    hidden = frozenset(n for n in bitten if _is_hidden(ranks[n], fault))
    return FaultyJob(seed, fault, layout.name, tuple(reports), len(ranks), bitten, hidden)


def _reports(
    fault: str,
    layout: Layout,
    how: Recorder,
    ranks: Sequence[RunningRank],
    bitten: Collection[int],
    told: Iterable[int],
) -> Iterator[RankHangReport]:
    names = names_of(layout.programs, layout.everybody)
    for number in told:
        if number in bitten and fault == "silent":
            continue
        if number in bitten and fault in _TOLD_BY_PROCESS:
            process = _TOLD_BY_PROCESS[fault]
            yield RankHangReport(rank=number, world_size=len(ranks), process=process)
            continue
        dump = dump_of(number, ranks[number], names, how)
        report = report_of_dump(dump, number, world_size=len(ranks))
        if number in bitten and fault == "gil":
            held = ProcessFacts(ProcessState.SLEEPING, answers_ping=True, gil_held=True)
            report = replace(report, process=held)
        yield report


def _is_hidden(rank: RunningRank, fault: str) -> bool:
    """Return whether a culprit waits itself: its GPU stands in an operation that others lack."""
    if fault in ("frozen", "dead", *PROGRAM_FAULTS):
        return False
    return bool(rank.started - rank.done)


def _chosen(draw: random.Random, fault: str, ranks: int) -> list[int]:
    many = fault not in PROGRAM_FAULTS and draw.random() < 0.4
    return draw.sample(range(ranks), draw.choice((2, 2, 3, 4)) if many else 1)


def _stop(draw: random.Random, fault: str, rank: RunningRank) -> None:
    length = len(rank.launches)
    place = draw.randrange(length // 3, length - max(2, length // 10))
    if fault in ("gpu", "gpu_error"):
        rank.gpu_stops = place
        if fault == "gpu_error":
            rank.unnoticed = max(0, place - draw.randrange(1, 12))
    else:
        rank.cpu_stops = place


def _depart(draw: random.Random, fault: str, layout: Layout, rank: int) -> bool:
    """Change a rank's program; return whether there was a place for it."""
    program = layout.programs[rank]
    first = len(program) // 3
    places = [at for at in range(first, len(program) - 8) if _fits(fault, program, at)]
    if not places:
        return False
    at = draw.choice(places)
    one = program[at]
    assert isinstance(one, Op)
    if fault == "skip":
        del program[at]
    elif fault == "shape":
        program[at] = replace(one, size=one.size + 1)
    else:
        program[at], program[at + 1] = program[at + 1], one
    return True


def _fits(fault: str, program: Program, at: int) -> bool:
    one, following = program[at], program[at + 1]
    if not isinstance(one, Op) or one.peer is not None or len(one.group[1]) < 3:
        return False
    if fault == "shape":
        return one.name in ("all_reduce", "_all_gather_base", "_reduce_scatter_base", "broadcast")
    if fault == "reorder":
        other = isinstance(following, Op) and following.peer is None and len(following.group[1]) > 2
        return (
            other
            and isinstance(following, Op)
            and (
                following.group != one.group
                or (following.name, following.size) != (one.name, one.size)
            )
        )
    return True
