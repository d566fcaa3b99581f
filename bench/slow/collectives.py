"""Rows of bench slow on collectives: who comes last, by one look, in traces and in made jobs.

The traces are replayed: each worker waits at the end of each step for those of its stage, as data
parallel ranks do; or its recorded reduce-scatters are taken as they are. Made jobs have tails
(Student-t, 3).
"""

import gc
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from slow.collective_series import MadeJob, noise
from slow.series import NAMES, SLOW_IN_AR, Series, collective_seconds, trace

from everstep_common.codec import json_text
from everstep_common.hangs.node_reports import NodeTold, read_all
from everstep_common.hangs.reports.members import members_text
from everstep_common.hangs.reports.rank_report import GroupReport, RankHangReport
from everstep_common.hangs.reports.recent_collectives import Sample, recent_of
from everstep_controller.slow.collective_arrival.collective_finding import CollectiveFinding
from everstep_controller.slow.collective_arrival.late_ranks import find_late

_RANKS, _EACH = 16_384, 8
_STEPS, _MADE_RANKS = 65, 64
_FACTORS = (1.05, 1.1, 1.2, 1.5)
_SCALES = (0.01, 0.03)
# What the traces do not tell; AR's steps take somewhat less, SE's more.
_TRACE_STEP_S = 40.0
# What, value, unit, target, note.
Measured = tuple[str, float, str, str, str]


def rows(seed: int, looks: int) -> Iterator[Measured]:
    """Yield what one look nominates, and what a look at 16,384 ranks takes."""
    for name in NAMES:
        yield from trace_rows(name)
    yield from _made_rows(seed, looks)
    yield from _scale_rows(seed)


def _nominated(found: CollectiveFinding) -> set[int]:
    return {one.rank for one in found.late if one.nominated}


# --- public traces -------------------------------------------------------------------------------


def trace_rows(name: str) -> Iterator[Measured]:
    """Yield who is named in a trace whose collectives are replayed, and as they were recorded."""
    series = trace(name)
    truth = {series.roster.names.index(SLOW_IN_AR)} if name == "AR" else set[int]()
    for how, found in (("replayed", _replayed(series)), ("recorded", _recorded(name))):
        named = _nominated(found)
        together = sum("one of them may hold" in one.why_not for one in found.late)
        note = f"{found.collectives} collectives; {together} ranks told as late together"
        if truth:
            target = "≥ 1" if how == "replayed" else ""
            yield f"{name} {how}: slow worker named", len(named & truth), "workers", target, note
        yield f"{name} {how}: others named", len(named - truth), "workers", "≤ 0", note


def _stages(series: Series) -> list[list[int]]:
    roles = series.roster.roles
    return [np.flatnonzero(roles == one).tolist() for one in range(int(roles.max()) + 1)]


def _job(series: Series) -> MadeJob:
    stages = _stages(series)
    pipes = [list(one) for one in zip(*stages, strict=True)]
    return MadeJob(series.seconds, stages, outer_name="mesh_dp", silent=pipes)


def _replayed(series: Series) -> CollectiveFinding:
    job = _job(series)
    return find_late(job.reports(), job.places, job.clocks)


def _recorded(name: str) -> CollectiveFinding:
    """Judge the reduce-scatters as they were recorded, as NCCL's durations."""
    series, took = trace(name), collective_seconds(name)
    job = _job(series)
    ends_ns = [10**18 + int(1e9 * _TRACE_STEP_S) * step for step in range(len(took.steps))]
    reports = []
    for stage in job.outer:
        for rank in stage:
            samples = [
                Sample(step + 1, int(at_ns), "reduce_scatter", int(1e6 * seconds))
                for step, (at_ns, seconds) in enumerate(
                    zip(ends_ns, took.seconds[:, rank], strict=True)
                )
            ]
            recent = recent_of({"dp": samples})["dp"]
            pipe = next(one for one in job.silent if rank in one)
            groups = (
                GroupReport("mesh_dp", members_text(stage), len(stage), 1, 1, recent=recent),
                GroupReport("mesh_pp", members_text(pipe), len(pipe), 1, 1),
            )
            node = job.places.nodes[rank]
            reports.append(RankHangReport(rank=rank, node=node, backend="nccl", groups=groups))
    return find_late(reports, job.places, job.clocks)


# --- made jobs -----------------------------------------------------------------------------------


def _made_rows(seed: int, runs: int) -> Iterator[Measured]:
    for scale in _SCALES:
        words = f"made, {_MADE_RANKS} ranks, noise of {100 * scale:.0f} %"
        jobs = [_made(seed * 10_000 + run, scale) for run in range(runs)]
        false = sum(len(_nominated(_look(job))) for job in jobs)
        yield f"{words}: healthy ranks named", false, "ranks", "≤ 0", f"{runs} looks"
        for factor in _FACTORS:
            found, others = 0, 0
            for run, job in enumerate(jobs):
                own = job.own_s.copy()
                own[:, run % _MADE_RANKS] *= factor
                named = _nominated(_look(replace(job, own_s=own)))
                found += run % _MADE_RANKS in named
                others += len(named - {run % _MADE_RANKS})
            target = "≥ 0.95" if factor >= 1.1 else ""
            note = f"{found} of {runs} looks; {others} others named"
            yield f"{words}: recall at x{factor:.2f}", found / runs, "", target, note


def _made(seed: int, scale: float) -> MadeJob:
    own_s = 0.2 * noise(seed, _STEPS, _MADE_RANKS, scale)
    return MadeJob(own_s, [range(_MADE_RANKS)], ranks_per_node=_EACH)


def _look(job: MadeJob) -> CollectiveFinding:
    return find_late(job.reports(), job.places, job.clocks)


# --- 16,384 ranks --------------------------------------------------------------------------------


def _scale_rows(seed: int) -> Iterator[Measured]:
    own_s = 0.2 * noise(seed, _STEPS, _RANKS)
    own_s[:, 777] *= 1.3
    data = [range(first, _RANKS, 256) for first in range(256)]
    tensor = [range(first, first + 8) for first in range(0, _RANKS, 8)]
    mesh = MadeJob(own_s, data, "mesh_dp", tensor, inner_per_step=1, ranks_per_node=_EACH)
    whole = MadeJob(own_s, [range(_RANKS)], ranks_per_node=_EACH)
    for words, job in (("in one group", whole), ("in 256 groups of 64 and 2,048 of 8", mesh)):
        texts = [json_text(one) for one in job.reports()]
        told = [
            NodeTold(node, _EACH * place, _EACH, tuple(texts[_EACH * place : _EACH * (place + 1)]))
            for place, node in enumerate(job.places.nodes)
        ]
        gc.collect()
        gc.disable()  # as the process of the judge does
        began_s = time.process_time()
        reports = read_all(told).reports
        decoded_s = time.process_time() - began_s
        named = _nominated(find_late(reports, job.places, job.clocks))
        spent_s = time.process_time() - began_s
        gc.enable()
        assert named == {777}, named
        note = f"{decoded_s:.2f} s of it decoding {len(texts[0])} bytes a rank"
        yield f"a look at 16,384 ranks, {words}", spent_s, "CPU s", "≤ 2", note
