"""Hangs: who holds a job back, on public dumps, in live jobs, and for 16,384 ranks.

``dumps``: the public fault-injected dumps beside the repository, with torch's own analyser on the
same files where torch is installed. ``scale``: the verdict over as many reports, in CPU
seconds, decoding included. ``live``: real gloo jobs of 4 and 8 ranks with a fault in one rank; the
launcher's watch says when they stand still, and they are looked at twice, as the controller does.
``--only live --kind KIND --seed N --jobs 1`` repeats one. ``--part 1/2`` runs the first half of the
jobs, ``--save`` keeps what came of them, and ``--merge`` scores what was kept. Times are CPU, but
those of ``live`` by the wall clock.
"""

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from hangs.cases import KINDS
from hangs.live_runs import Injections, read, run_lanes, write
from hangs.scores import scored, scores
from harness.session import Benchmark, Part
from harness.table import Line, Told

from everstep_common.codec import from_json, json_text
from everstep_common.hangs.dumps.folder import read_folder
from everstep_common.hangs.judging.judge import judge
from everstep_common.hangs.reports.rank_report import (
    GroupReport,
    Operation,
    OperationState,
    RankHangReport,
)

# Beside the repository, or beside the folder of its worktrees.
_SHARED = [parent / "shared/data/nvrx_hangs" for parent in Path(__file__).parents[3:5]]
DUMPS = next((one for one in _SHARED if one.is_dir()), None)
_TRUTH = re.compile(r"Rank (\d+), fault_type: (\w+)")
_MISSING_RANKS = re.compile(r"missing ranks:? \{([\d, ]+)\}|Culprit rank (\d+)")
_RANKS = 16_384
# As many live injections of each kind, in so many jobs side by side: 210 in all.
_LIVE_SEEDS, _LANES = 15, 3

Row = dict[str, object]


def live(options: argparse.Namespace) -> Iterator[Line]:
    """Inject into real jobs, or read what was kept; yield the scores."""
    if options.merge:
        outcomes = read(options.merge)
    else:
        kinds = (options.kind,) if options.kind else KINDS
        number, _, parts = options.part.partition("/")
        one = Injections(kinds, options.seed, options.jobs, int(number) - 1, int(parts))
        outcomes = run_lanes(one, min(options.lanes, one.count))
    if options.save:
        write(options.save, outcomes)
    yield from scores(outcomes)
    yield from map(Told, scored(outcomes))


def _row(case: str, by: str, truth: set[int], named: set[int], kind: str, seconds: float) -> Row:
    return {
        "case": case,
        "judge": by,
        "culprits": len(truth),
        "found": len(truth & named),
        "false": len(named - truth),
        "missed": len(truth - named),
        "class": kind,
        "CPU ms": f"{1000 * seconds:.1f}",
    }


def public_dumps() -> Iterator[Row]:
    """Yield what is found in each public episode, and what torch's analyser finds there."""
    for folder, truth in episodes():
        yield judged(folder, truth)
        yield from _torchfrtrace(folder, truth)


def episodes() -> Iterator[tuple[Path, set[int]]]:
    """Yield the folders of public dumps, each with its culprits; none where they are not there."""
    for folder in sorted(DUMPS.iterdir()) if DUMPS else []:
        if folder.is_dir():
            told = (folder / "fault_injection.log").read_text(encoding="utf-8")
            yield folder, {int(rank) for rank, _ in _TRUTH.findall(told)}


def judged(folder: Path, truth: set[int]) -> Row:
    """Return what is found in a folder of dumps."""
    started = time.process_time()
    found = read_folder(folder)
    verdict = judge(found.reports.values(), found.world_size)
    seconds = time.process_time() - started
    named = {one.rank for one in verdict.culprits}
    return _row(folder.name, "everstep hang", truth, named, verdict.kind.value, seconds)


def _torchfrtrace(folder: Path, truth: set[int]) -> Iterator[Row]:
    program = Path(sys.executable).with_name("torchfrtrace")
    if not program.exists():
        return
    command = [str(program), str(folder), "-p", "_dump_"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    reports = _MISSING_RANKS.findall(run.stdout + run.stderr)
    found = [{int(one) for one in (many or single).split(",")} for many, single in reports]
    if not found:
        print(f"torchfrtrace {folder.name}: {(run.stderr or run.stdout)[-200:]}", file=sys.stderr)
        return
    yield _row(folder.name, "torchfrtrace, all", truth, set().union(*found), "-", 0.0)
    yield _row(folder.name, "torchfrtrace, first", truth, found[0], "-", 0.0)


# --- 16,384 ranks --------------------------------------------------------------------------------

# Of each group: description, distance of its members, how many they are.
_LAYOUT = (
    ("TENSOR_MODEL_PARALLEL_GROUP", 1, 8),
    ("EXPERT_MODEL_PARALLEL_GROUP", 1, 64),
    ("DATA_PARALLEL_GROUP_WITH_CP", 8, 128),
    ("MODEL_PARALLEL_GROUP", 1024, 16),
    ("TENSOR_AND_DATA_PARALLEL_GROUP_WITH_CP", 1, 1024),
    ("EMBEDDING_GROUP", 1024, 16),
    ("EXPERT_DATA_PARALLEL_GROUP", 64, 16),
    ("TENSOR_AND_CONTEXT_PARALLEL_GROUP", 1, 16),
    ("INTRA_DISTRIBUTED_OPTIMIZER_INSTANCE_GROUP", 1, _RANKS),
    ("default_pg", 1, _RANKS),
)


def large_job(culprits: set[int], ranks: int = _RANKS) -> list[RankHangReport]:
    """Return the reports of a large job in which some ranks sleep and all others wait."""
    return [_large_report(rank, culprits, ranks) for rank in range(ranks)]


def _large_report(rank: int, culprits: set[int], ranks: int) -> RankHangReport:
    groups = []
    for place, (description, distance, size) in enumerate(_LAYOUT):
        size = min(size, ranks)
        block = distance * size
        first = rank // block * block + rank % distance
        members = f"{first}-{first + distance * (size - 1)}"
        text = members if distance == 1 else f"{members}:{distance}"
        near = any(
            c // block == rank // block and c % distance == rank % distance for c in culprits
        )
        waits = near and rank not in culprits and place in (0, 1, 9)
        groups.append(
            GroupReport(
                description=description,
                members=text,
                size=size,
                enqueued=5000 + waits,
                completed=5000,
                pending_count=int(waits),
                pending=(_WAITING,) if waits else (),
                done="_all_gather_base 2048x1x5120 BFloat16 -> 8192x1x5120 BFloat16",
            )
        )
    return RankHangReport(
        rank=rank, world_size=ranks, node=f"gpu-{rank // 8:05}", groups=tuple(groups)
    )


_WAITING = Operation(
    sequence=5001,
    name="_reduce_scatter_base",
    shapes="8192x1x5120 BFloat16 -> 2048x1x5120 BFloat16",
    state=OperationState.SCHEDULED,
    created_ns=1758581237532111217,
    frames=("pipeline_parallel/schedules.py:1203 forward_backward", "train.py:120 step"),
)


def scale() -> Iterator[Row]:
    """Yield the time of a verdict over 16,384 reports, from their JSON."""
    truth = {4711, 9001}
    texts = [json_text(report) for report in large_job(truth)]
    rows = [_large_row(texts, truth) for _ in range(3)]
    yield min(rows, key=lambda one: float(str(one["CPU ms"])))


def _large_row(texts: list[str], truth: set[int]) -> Row:
    started = time.process_time()
    reports = [from_json(RankHangReport, json.loads(text)) for text in texts]
    decoded = time.process_time() - started
    verdict = judge(reports, _RANKS)
    seconds = time.process_time() - started
    size = sum(map(len, texts)) / len(texts)
    case = f"{_RANKS} reports of {size:.0f} B, {decoded:.2f} s of it decoding"
    named = {one.rank for one in verdict.culprits}
    return _row(case, "everstep hang", truth, named, verdict.kind.value, seconds)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kind", choices=KINDS, help="one kind of live injections")
    parser.add_argument("--jobs", type=int, default=_LIVE_SEEDS, help="live jobs of each kind")
    parser.add_argument("--seed", type=int, default=10_000, help="of the first of them")
    parser.add_argument("--lanes", type=int, default=_LANES, help="live jobs side by side")
    parser.add_argument("--part", default="1/1", help="of the live jobs: 1/2 and 2/2 are halves")
    parser.add_argument("--save", type=Path, help="keep what came of live injections in a file")
    parser.add_argument("--merge", type=Path, nargs="+", help="score live files, inject nothing")


BENCHMARK = Benchmark(
    about=__doc__ or "",
    parts=[
        Part("dumps", 10.0, lambda _: map(Told, public_dumps())),
        Part("scale", 15.0, lambda _: map(Told, scale())),
        Part("live", 850.0, live),
    ],
    add_options=_add_options,
    quick={"jobs": 1, "kind": "gil"},
)
