"""Faults in jobs of realistic layouts: whom the judge names, how often rightly, and as what."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from functools import partial

from harness.session import Benchmark, Part
from harness.table import Told

from everstep_common.hangs.judging.judge import judge
from everstep_common.hangs.reports.members import MembersError, members_of
from everstep_common.hangs.reports.verdict import HangClass, HangVerdict
from hung_jobs.faulty import FAULTS, FaultyJob, faulty_job


def scored(fault: str, jobs: Sequence[FaultyJob], *, show: bool = False) -> dict[str, object]:
    """Return the scores of the judge on jobs with one fault."""
    culprits = found = suspected = false = with_false = right = named_all = 0
    for job in jobs:
        verdict = judge(job.reports, job.world_size)
        named = {one.rank for one in verdict.culprits}
        culprits += len(job.culprits - job.hidden)
        found += len((job.culprits - job.hidden) & named)
        suspected += len(job.culprits & _ranks_in(verdict.suspects) - named)
        false += len(named - job.culprits)
        with_false += bool(named - job.culprits)
        named_all += len(named)
        is_right = verdict.kind is FAULTS[fault] or _is_fabric(fault, job, verdict)
        right += is_right
        wrong = named - job.culprits or (job.culprits - job.hidden) - named or not is_right
        if show and wrong:
            print(
                f"{fault} {job.seed} {job.layout} of {job.world_size}: truth {sorted(job.culprits)}"
                f" (hidden {sorted(job.hidden)}); {verdict.kind.value} {sorted(named)}"
                f" suspects {verdict.suspects}: {verdict.sentence[:250]}",
                file=sys.stderr,
            )
    return {
        "fault": fault,
        "jobs": len(jobs),
        "culprits": culprits,
        "found": found,
        "suspects": suspected,
        "false": false,
        "jobs with false": with_false,
        "precision": f"{1 - false / max(1, named_all):.3f}",
        "recall": f"{found / max(1, culprits):.3f}",
        "class": f"{right}/{len(jobs)}",
    }


def _is_fabric(fault: str, job: FaultyJob, verdict: HangVerdict) -> bool:
    """Return whether a GPU that never came to an operation is told as one of its members.

    A recorder without timing does not tell which of them has not started it.
    """
    told = job.culprits <= _ranks_in(verdict.suspects) | {one.rank for one in verdict.culprits}
    return fault == "gpu" and verdict.kind is HangClass.FABRIC and told


def _ranks_in(text: str) -> set[int]:
    try:
        return set(members_of(text)) if text else set()
    except MembersError:
        return set()


def measure(fault: str, options: argparse.Namespace) -> Iterator[Told]:
    """Yield the scores of a fault."""
    seeds = range(options.seed, options.seed + options.jobs)
    made = [
        faulty_job(seed, fault, missing=options.missing, layout=options.layout) for seed in seeds
    ]
    yield Told(scored(fault, made, show=options.wrong))


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, default=60, metavar="N", help="of each fault")
    parser.add_argument("--seed", type=int, default=50_000, help="of the first of them")
    parser.add_argument("--missing", type=float, default=0.0, help="share of innocent dumps")
    layouts = ("megatron", "fsdp", "ddp")
    parser.add_argument("--layout", choices=layouts, default="", help="of all jobs; else in turn")
    parser.add_argument("--wrong", action="store_true", help="tell what is wrong")


BENCHMARK = Benchmark(
    about=__doc__ or "",
    parts=[Part(fault, 12.0, partial(measure, fault)) for fault in FAULTS],
    add_options=_add_options,
    quick={"jobs": 3},
)
