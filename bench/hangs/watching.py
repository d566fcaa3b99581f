"""Cost of watching ranks that train: in a rank, at its launcher, its agent and the controller.

All rows are processor time. A rank is read where torch is installed; the other rows need none. On
the GPU nothing is measured, for nothing runs there: what is read, the host has.
"""

import argparse
import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from harness.session import Benchmark, Part
from harness.table import Row, row

from everstep.launch.inspection.rank_pages import RankPages
from everstep.launch.inspection.rank_watch import RankWatch
from everstep.rank.declared import DeclaredProgress
from everstep.rank.interpreter import everstep_rank_page as layout
from everstep.rank.interpreter.everstep_frontier_watch import FrontierWatch, reader_of
from everstep_agent.jobs.standing.standing_watch import StandingWatch
from everstep_agent.jobs.state.plan import NO_PLAN
from everstep_common.clock import boot_ns
from everstep_common.codec import from_json, to_json
from everstep_common.launcher_messages import RanksWatched
from everstep_common.reports import SampleBatch
from everstep_common.reports.rank_columns import RankRow, pack_ranks
from everstep_common.stamp import Stamp
from everstep_controller.telemetry.rank_progress import RankProgressTable
from everstep_proto.generated import fleet_pb2
from everstep_proto.record_codec import from_wire, to_wire

RANKS = 8
NODES = 12_500
# The project's target for all that watches on a node while nothing happens.
_NODE_TARGET_PERCENT = 0.1
_GROUPS = 60


def cost_us(work: Callable[[], object], calls: int = 2000) -> float:
    """Return the processor time of one call, in microseconds."""
    began_s = time.process_time()
    for _ in range(calls):
        work()
    return (time.process_time() - began_s) / calls * 1e6


def reading(groups: int) -> Callable[[], float]:
    """Return what measures a reading of a rank in so many process groups, in microseconds."""
    import torch
    import torch.distributed as dist
    from torch._C import _distributed_c10d

    if not dist.is_initialized():
        dist.init_process_group("gloo", store=_distributed_c10d.HashStore(), rank=0, world_size=1)
    ones = torch.ones(4)
    for group in [dist.new_group([0]) for _ in range(groups - 1)]:
        for _ in range(4):
            dist.all_reduce(ones, group=group)
    read = reader_of(_distributed_c10d)
    assert read is not None
    pages = RankPages([0])
    watch = FrontierWatch(layout.Page(pages.environment(0), layout.WATCH_PID), read)

    def once() -> None:
        dist.all_reduce(ones)
        watch.read_once(boot_ns())

    bare_us = cost_us(lambda: dist.all_reduce(ones))
    return lambda: cost_us(once) - bare_us


def launcher_five_seconds() -> Callable[[], object]:
    """Return what a launcher of eight ranks does in five seconds: five looks, one word."""
    now_ns = [10**15]
    told: list[object] = []
    watch = RankWatch(told.append, lambda: {rank: 1 for rank in range(RANKS)}, lambda: now_ns[0])
    watch.begin(1, range(RANKS), RANKS)
    for rank in range(RANKS):
        page = layout.Page(watch.environment(rank), layout.WATCH_PID)
        page.words[layout.READ_AT] = page.words[layout.MOVED_AT] = now_ns[0]
        page.words[layout.MOVES] = 1000
        page.words[layout.COUNTS] = 1000
        page.words[layout.GAPS] = 10**9

    def five_seconds() -> None:
        told.clear()
        for _ in range(5):
            now_ns[0] += 10**9
            watch.advance({0: 1})
        for one in told:
            to_json(one)

    return five_seconds


def agent_five_seconds() -> Callable[[], object]:
    """Return what an agent does in five seconds for eight ranks, besides their steps."""
    loop = asyncio.new_event_loop()
    plan = replace(NO_PLAN, job="demo", job_id="demo-1", generation=1, processes=RANKS)
    watch = StandingWatch(lambda _: None, boot_ns, lambda: True)

    async def begin() -> None:
        watch.begin(plan)
        watch.close()

    loop.run_until_complete(begin())
    for step in range(600):
        for rank in range(RANKS):
            watch.add_step(rank, step, boot_ns())
    ranks = tuple(range(RANKS))
    message = to_json(
        RanksWatched(
            generation=1,
            at_boot_ns=boot_ns(),
            usual_ns=3 * 10**9,
            phases=("forward",),
            ranks=ranks,
            rank_phases=(0,) * RANKS,
        )
    )
    newest = [600]

    def five_seconds() -> None:
        newest[0] += 1
        for rank in range(RANKS):
            watch.add_step(rank, newest[0], boot_ns())
        watch.add_watched(from_json(RanksWatched, message))
        for _ in range(5):
            watch.tell_standing()
        columns = watch.columns()
        assert columns is not None
        to_wire(columns, fleet_pb2.RankColumns)

    return five_seconds


def controller_message(*, ranks: bool) -> Callable[[], object]:
    """Return what the controller does with one message of samples."""
    rows = [RankRow(rank, 41_370 + rank, 512, 700, 120, "forward") for rank in range(RANKS)]
    columns = (pack_ranks("llama-1042", 3, rows),) if ranks else ()
    batch = SampleBatch(1, Stamp("b", 1, 1), 10**9, b"f" * 280, columns)
    content = to_wire(batch, fleet_pb2.SampleBatch).SerializeToString()
    table = RankProgressTable()

    def take() -> None:
        taken = from_wire(SampleBatch, fleet_pb2.SampleBatch.FromString(content))
        table.replace("node-1", taken.ranks, 1)

    return take


def measure(options: argparse.Namespace) -> Iterator[Row]:
    """Yield all rows."""
    repeats: int = options.repeats
    page = layout.Page(RankPages([0]).environment(0), layout.SDK_PID)
    declared = DeclaredProgress(page, lambda _: True)
    phases = [cost_us(lambda: declared.enter_phase("f")) for _ in range(repeats)]
    yield row("rank: a phase", phases, "us")
    threads: list[float] = []
    for groups in (1, _GROUPS):
        read = reading(groups)
        values = [read() for _ in range(repeats)]
        yield row(f"rank: one reading, {groups} process groups", values, "us")
        busy = [2 * value / 1e4 for value in values]
        yield row(f"rank: two readings a second, {groups} groups", busy, "% of a core")
        threads = threads or busy
    node: list[float] = [0.0] * repeats
    for name, work in (("launcher", launcher_five_seconds()), ("agent", agent_five_seconds())):
        values = [cost_us(work) / 5 / 1e4 for _ in range(repeats)]
        node = [before + value for before, value in zip(node, values, strict=True)]
        yield row(f"{name}: a node of {RANKS} ranks", values, "% of a core")
    together, most = "launcher and agent together", _NODE_TARGET_PERCENT
    yield row(together, node, "% of a core", target=most)
    whole = [both + RANKS * one for both, one in zip(node, threads, strict=True)]
    name = f"the same with the threads of {RANKS} ranks, 1 group each"
    yield row(name, whole, "% of a core", target=most)
    yield from _controller_rows(repeats)


def _controller_rows(repeats: int) -> Iterator[Row]:
    without, with_ranks = (
        [cost_us(work) * NODES / 5 / 1e6 for _ in range(repeats)]
        for work in (controller_message(ranks=False), controller_message(ranks=True))
    )
    bare = row(f"controller: samples of {NODES:,} nodes", without, "CPU s/s")
    yield bare
    yield row(f"controller: the same with {RANKS} ranks each", with_ranks, "CPU s/s", bare)


BENCHMARK = Benchmark(about=__doc__ or "", parts=[Part("watching", 25.0, measure)], repeats=5)
