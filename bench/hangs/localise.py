"""Hangs: who holds a job back, on public dumps, in live jobs, and for 16,384 ranks.

    python bench hangs [--only dumps|scale|live|KIND] [--jobs N] [--seed N] [--json]
    python bench hangs --only live [--lanes N] [--part K/N] [--save FILE]
    python bench hangs --merge FILE FILE [--json]

``dumps``: the public fault-injected dumps beside the repository, with torch's own analyser on the
same files where torch is installed. ``scale``: the verdict over as many reports, in CPU
seconds, decoding included. ``live``: real gloo jobs of 4 and 8 ranks with a fault in one rank; the
launcher's watch says when they stand still, and they are looked at twice, as the controller does.
``--only KIND --seed N --jobs 1`` repeats one. ``--part 1/2`` runs the first half of the jobs,
``--save`` keeps what came of them, and ``--merge`` scores what was kept. Times are CPU, but those
of ``live`` by the wall clock.
"""

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from hangs.cases import KINDS, Outcome
from hangs.live_runs import Injections, read, run_lanes, write
from hangs.scores import SCORE_HEAD, scored, scores
from harness.table import lines

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
_HEAD = ("case", "judge", "culprits", "found", "false", "missed", "class", "CPU ms")
_RANKS = 16_384
# As many live injections of each kind, in so many jobs side by side: 210 in all.
_LIVE_SEEDS, _LANES = 15, 3

Row = dict[str, object]


def main() -> int:
    """Measure, and print the tables."""
    options = _options()
    live = options.only in (None, "live", *KINDS)
    outcomes = read(options.merge) if options.merge else _live(options) if live else []
    if options.save:
        write(options.save, outcomes)
    parts = [one for one in sorted(_PARTS) if options.only in (None, one) and not options.merge]
    rows = [*scored(outcomes), *_rows(parts)]
    if options.json:
        print(json.dumps([*(one.row() for one in scores(outcomes)), *rows]))
        return 0
    if outcomes:
        print(
            "\n".join(lines(SCORE_HEAD, [one.cells() for one in scores(outcomes)], [1])), end="\n\n"
        )
    cells = [[str(row[name]) for name in _HEAD] for row in rows]
    print("\n".join(lines(_HEAD, cells, numeric=range(2, 6))))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    names = [*sorted(_PARTS), "live", *KINDS]
    parser.add_argument("--only", choices=names, help="one part, or live kind")
    parser.add_argument("--jobs", type=int, default=0, help="live jobs of each kind (15)")
    parser.add_argument("--seed", type=int, default=10_000, help="of the first of them")
    parser.add_argument("--lanes", type=int, default=_LANES, help="live jobs side by side")
    parser.add_argument("--part", default="1/1", help="of the live jobs: 1/2 and 2/2 are halves")
    parser.add_argument("--save", type=Path, help="keep what came of live injections in a file")
    parser.add_argument("--merge", type=Path, nargs="+", help="score files, and run nothing")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser.parse_args()


def _live(options: argparse.Namespace) -> list[Outcome]:
    """Inject into real jobs; what is wrong, and how far it is, goes to standard error."""
    kinds = (options.only,) if options.only in KINDS else KINDS
    number, _, parts = options.part.partition("/")
    one = Injections(kinds, options.seed, options.jobs or _LIVE_SEEDS, int(number) - 1, int(parts))
    return run_lanes(one, min(options.lanes, one.count))


def _rows(parts: Sequence[str]) -> list[Row]:
    return [row for part in parts for row in _PARTS[part]()]


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


_PARTS: dict[str, Callable[[], Iterator[Row]]] = {
    "dumps": public_dumps,
    "scale": scale,
}


if __name__ == "__main__":
    sys.exit(main())
