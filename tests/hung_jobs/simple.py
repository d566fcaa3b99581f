"""Synthetic hangs: jobs with TP, PP, DP and EP groups and a fault, as dumps with the truth.

Each rank has a program of operations. Its CPU enqueues them, at most so many ahead of its GPU; its
GPU takes them in order; a collective completes when it comes first at all its members. The job runs
until nothing moves any more, and each rank's dump tells what a Flight Recorder would.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from everstep_common.hangs.dumps.flight_recorder import report_of_dump
from everstep_common.hangs.reports.rank_report import ProcessFacts, ProcessState, RankHangReport

FAULTS = ("cpu", "gpu", "frozen", "dead", "skipped", "shape", "gil", "silent")


@dataclass(frozen=True, slots=True)
class Call:
    """One operation of a program."""

    group: str
    members: tuple[int, ...]
    name: str
    size: int
    # The other end, for a send or recv.
    peer: int | None = None


@dataclass(slots=True)
class Rank:
    """One rank: what it will call, and how far its CPU and its GPU have come."""

    program: list[Call]
    enqueued: int = 0
    completed: int = 0
    # The calls before which its CPU, and its GPU, stop.
    cpu_stops: int | None = None
    gpu_stops: int | None = None
    # From which call on its completions are not noticed.
    unnoticed: int | None = None


@dataclass(frozen=True, slots=True)
class HungJob:
    """A job that stands still: what its ranks tell, and who does it."""

    seed: int
    fault: str
    world_size: int
    culprits: frozenset[int]
    reports: tuple[RankHangReport, ...]
    missing: frozenset[int] = field(default_factory=frozenset)


def hung_job(seed: int, fault: str = "", *, missing: float = 0.0) -> HungJob:
    """Return a job with a random layout, fault, rank and moment; the seed tells everything.

    ``missing`` is the share of the innocent ranks that leave no dump. A fault that nobody ever
    waits for is drawn again.
    """
    draw = random.Random(f"hung job {seed}")
    fault = fault or draw.choice(FAULTS)
    while True:
        ranks, culprits = _run(draw, fault)
        if culprits and any(rank.enqueued > rank.completed for rank in ranks):
            break
    lost = frozenset(
        one for one in range(len(ranks)) if one not in culprits and draw.random() < missing
    )
    backend = "gloo" if draw.random() < 0.3 else "nccl"
    only_active = backend == "nccl" and draw.random() < 0.5
    reports = tuple(
        report
        for number, rank in enumerate(ranks)
        if number not in lost
        for report in _reports(
            number, rank, fault, number in culprits, len(ranks), backend, only_active
        )
    )
    return HungJob(seed, fault, len(ranks), culprits, reports, lost)


def _run(draw: random.Random, fault: str) -> tuple[list[Rank], frozenset[int]]:
    programs = _programs(draw)
    ranks = [Rank(list(program)) for program in programs]
    ahead = draw.choice((1, 1, 4, 12))
    many = fault in ("cpu", "gpu", "frozen", "dead", "gil", "silent") and draw.random() < 0.25
    chosen = draw.sample(range(len(ranks)), 2 if many and len(ranks) > 4 else 1)
    for number in chosen:
        place = draw.randrange(len(ranks[number].program) // 3, len(ranks[number].program) - 4)
        _break(ranks[number], fault, place, draw)
    _settle(ranks, ahead)
    if fault == "skipped":
        bitten = frozenset(chosen)
    elif fault == "shape":
        # It is called: then the others of its group call another one.
        bitten = frozenset(n for n in chosen if ranks[n].enqueued > (ranks[n].gpu_stops or 0))
    else:
        bitten = frozenset(n for n in chosen if _is_bitten(ranks[n]))
    return ranks, bitten


def _break(rank: Rank, fault: str, place: int, draw: random.Random) -> None:
    if fault == "skipped":
        while len(rank.program[place].members) < 3 or rank.program[place].peer is not None:
            place = (place + 1) % len(rank.program)
        del rank.program[place]
        # What stands there now is another operation of the same group, or one of another.
    elif fault == "shape":
        while len(rank.program[place].members) < 3 or rank.program[place].name != "all_reduce":
            place = (place + 1) % len(rank.program)
        call = rank.program[place]
        rank.program[place] = Call(call.group, call.members, call.name, call.size + 1)
        rank.gpu_stops = place
    elif fault == "gpu":
        rank.gpu_stops = place
        rank.unnoticed = max(0, place - draw.randrange(6, 14))
    else:
        rank.cpu_stops = place


def _is_bitten(rank: Rank) -> bool:
    stops = rank.cpu_stops if rank.cpu_stops is not None else rank.gpu_stops
    done = rank.enqueued if rank.cpu_stops is not None else rank.completed
    return stops is not None and done >= stops


def _settle(ranks: list[Rank], ahead: int) -> None:
    """Run a job until nothing moves."""
    moved = True
    while moved:
        moved = False
        for rank in ranks:
            last = min(len(rank.program), rank.completed + ahead)
            if rank.cpu_stops is not None:
                last = min(last, rank.cpu_stops)
            if rank.enqueued < last:
                rank.enqueued, moved = last, True
        for rank in ranks:
            while (call := _first(rank)) is not None and _can_complete(call, ranks):
                for member in call.members:
                    ranks[member].completed += 1
                moved = True


def _first(rank: Rank) -> Call | None:
    """Return the operation at which a GPU is, if it may take it."""
    if rank.completed >= rank.enqueued or rank.completed == rank.gpu_stops:
        return None
    return rank.program[rank.completed]


def _can_complete(call: Call, ranks: Sequence[Rank]) -> bool:
    for member in call.members:
        other = _first(ranks[member])
        if other is None or (other.group, other.members) != (call.group, call.members):
            return False
        if other.name != call.name and call.peer is None:
            return False
    return True


# --- programs ------------------------------------------------------------------------------------


def _programs(draw: random.Random) -> list[list[Call]]:
    tensor, pipeline, data = draw.choice(
        ((2, 2, 2), (1, 1, 4), (1, 1, 8), (2, 1, 4), (4, 2, 2), (1, 4, 2), (2, 2, 4), (4, 4, 2))
    )
    size = tensor * pipeline * data
    programs: list[list[Call]] = [[] for _ in range(size)]
    for step in range(draw.randrange(6, 12)):
        _add_step(programs, tensor, pipeline, data, step)
    return programs


def _add_step(programs: list[list[Call]], tensor: int, pipeline: int, data: int, step: int) -> None:
    stage = tensor * data
    for forward in (True, False):
        stages = range(pipeline) if forward else range(pipeline - 1, -1, -1)
        for number in stages:
            first = number * stage
            before = number - 1 if forward else number + 1
            if 0 <= before < pipeline:
                _add_transfers(programs, before * stage, first, stage)
            _add_layers(programs, first, tensor, data)
    for first in range(0, len(programs), stage):
        for lane in range(tensor):
            members = tuple(range(first + lane, first + stage, tensor))
            _add(programs, "DATA_PARALLEL_GROUP", members, "_reduce_scatter_base", 4096)
            _add(programs, "DATA_PARALLEL_GROUP", members, "_all_gather_base", 4096)
    _add(programs, "default_pg", tuple(range(len(programs))), "all_reduce", 1)
    if step % 3 == 2:
        _add(programs, "default_pg", tuple(range(len(programs))), "broadcast", 16)


def _add_layers(programs: list[list[Call]], first: int, tensor: int, data: int) -> None:
    for replica in range(data):
        members = tuple(range(first + replica * tensor, first + (replica + 1) * tensor))
        for size in (512, 1024):
            _add(programs, "TENSOR_MODEL_PARALLEL_GROUP", members, "all_reduce", size)
    if data > 1:
        members = tuple(range(first, first + tensor * data))
        _add(programs, "EXPERT_MODEL_PARALLEL_GROUP", members, "all_to_all", 256)


def _add_transfers(programs: list[list[Call]], source: int, target: int, count: int) -> None:
    for lane in range(count):
        members = tuple(sorted((source + lane, target + lane)))
        for rank, name, peer in (
            (source + lane, "send", target + lane),
            (target + lane, "recv", source + lane),
        ):
            call = Call("PIPELINE_MODEL_PARALLEL_GROUP", members, name, 2048, peer)
            programs[rank].append(call)


def _add(
    programs: list[list[Call]], group: str, members: tuple[int, ...], name: str, size: int
) -> None:
    if len(members) > 1:
        for rank in members:
            programs[rank].append(Call(group, members, name, size))


# --- dumps ---------------------------------------------------------------------------------------


def _reports(
    number: int,
    rank: Rank,
    fault: str,
    is_culprit: bool,
    world_size: int,
    backend: str,
    only_active: bool,
) -> Iterator[RankHangReport]:
    if is_culprit and fault == "silent":
        return
    if is_culprit and fault in ("frozen", "dead"):
        state = ProcessState.STOPPED if fault == "frozen" else ProcessState.DEAD
        yield RankHangReport(rank=number, world_size=world_size, process=ProcessFacts(state=state))
        return
    dump = dump_of(number, rank, backend, only_active)
    report = report_of_dump(dump, number, world_size=world_size)
    if is_culprit and fault == "gil":
        held = ProcessFacts(ProcessState.SLEEPING, answers_ping=True, gil_held=True)
        report = RankHangReport(
            rank=number, world_size=world_size, groups=report.groups, process=held
        )
    yield report


def dump_of(number: int, rank: Rank, backend: str, only_active: bool) -> dict[str, object]:
    """Return what a Flight Recorder would write of a rank."""
    names = sorted({(call.group, call.members) for call in rank.program})
    config = {
        str(place): {"name": str(place), "desc": group, "ranks": str(list(members))}
        for place, (group, members) in enumerate(names)
    }
    entries = list(_entries(number, rank, backend, names))
    status: dict[str, dict[str, int]] = {}
    for entry in entries:
        one = status.setdefault(
            str(entry["pg_id"]),
            {
                "last_enqueued_collective": 0,
                "last_started_collective": -1,
                "last_completed_collective": 0,
            },
        )
        sequence = entry["p2p_seq_id"] if entry["is_p2p"] else entry["collective_seq_id"]
        assert isinstance(sequence, int)
        one["last_enqueued_collective"] = sequence
        if entry["retired"]:
            one["last_completed_collective"] = sequence
    kept = [one for one in entries if not (only_active and one["retired"])]
    return {"version": "2.10", "pg_config": config, "pg_status": status, "entries": kept}


def _entries(
    number: int, rank: Rank, backend: str, names: Sequence[tuple[str, tuple[int, ...]]]
) -> Iterator[Mapping[str, object]]:
    counts: dict[tuple[str, tuple[int, ...]], list[int]] = {}
    noticed = rank.completed
    if rank.unnoticed is not None and rank.completed == rank.gpu_stops:
        noticed = min(noticed, rank.unnoticed)
    for place, call in enumerate(rank.program[: rank.enqueued]):
        key = (call.group, call.members)
        seen = counts.setdefault(key, [0, 0])
        is_p2p = call.peer is not None
        seen[is_p2p] += 1
        done = place < noticed
        name = call.name
        if call.peer is not None:
            ends = (call.members.index(number), call.members.index(call.peer))
            name = f"{call.name} {ends[0]}{'->' if call.name == 'send' else '<-'}{ends[1]}"
        yield {
            "record_id": place,
            "pg_id": names.index(key),
            "process_group": (str(names.index(key)), call.group),
            "collective_seq_id": seen[0],
            "p2p_seq_id": seen[1],
            "op_id": place,
            "profiling_name": f"{backend}:{name}",
            "time_created_ns": 1_000_000_000 + place,
            "input_sizes": [[call.size]],
            "input_dtypes": ["Float"],
            "output_sizes": [[call.size]],
            "output_dtypes": ["Float"],
            "state": "completed" if done and backend == "nccl" else "scheduled",
            "retired": done,
            "timeout_ms": 600_000,
            "is_p2p": is_p2p,
        }
