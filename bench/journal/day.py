"""Journal benchmark: what many small jobs that train write in a day, and the processor time of it.

300 jobs of 8 to 64 nodes with a step every 2 s train on a fleet of 12,500 nodes. Their nodes' words
of each step go through the controller's own intake, event loop, journal and core, on a disk, minute
by minute of a made clock; connections and protobuf are left out.
A day's bytes are those by which the file grows, with the history's rows, times what is left of it.
"""

import argparse
import asyncio
import random
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from harness.session import Benchmark, Part
from harness.table import Row, row
from scale.fleet import Bench, connect, start_job

from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.jobs.progress_rows import ProgressRows, ReportedSteps, reporters
from everstep_controller.core.model.node import Origin
from everstep_controller.core.model.state import State
from everstep_controller.journal.group_commit import GroupCommit
from everstep_controller.journal.sqlite.journal import SqliteJournal
from everstep_controller.main import collect_garbage_seldom
from everstep_controller.records.intake import Intake
from everstep_controller.runtime.clock import ControllerClock
from everstep_controller.runtime.fold import Fold
from everstep_controller.runtime.housekeeping import Housekeeping, Retention
from everstep_controller.runtime.runtime import Journaling, Runtime

_NODES, _JOBS, _STEP_S = 12_500, 300, 2.0
_SMALLEST, _LARGEST = 8, 64
_DAY_S, _LEDGER_S, _TICKS = 86_400, 600, 10
_S = 1_000_000_000
# Each node's mark is written for the first time within a minute.
_WARMUP_S = 65
_MOST_MB, _MOST_CORE = 300.0, 0.25


class Nobody:
    """Acknowledging that tells nobody."""

    count = 0

    def acknowledged(self, node: str, outbox: str, sequence: int) -> None:
        """See Acknowledging."""
        self.count += 1

    def refused(self, node: str, outbox: str, sentence: str) -> None:
        """See Acknowledging."""
        raise RuntimeError(sentence)


@dataclass(slots=True)
class Job:
    """A job that trains: its nodes, and when its next step ends."""

    id: str
    generation: int
    members: Sequence[str]
    next_ns: int
    step: int = 1
    skipped: int = 0


@dataclass(slots=True)
class Training:
    """Jobs that train, and what their nodes tell of that."""

    jobs: list[Job]
    rng: random.Random
    sequence: int = 1 << 20

    def words(self, until_ns: int) -> Iterator[ReportedSteps]:
        """Yield what all nodes tell until a time."""
        for job in self.jobs:
            while job.next_ns <= until_ns:
                yield from self._step(job)

    def recoverable(self, job: str) -> int:
        """Return the newest step that is recoverable, which is never far behind."""
        known = next(one for one in self.jobs if one.id == job)
        return max(0, known.step - self.rng.choice((2, 2, 2, 3, 4)))

    def _step(self, job: Job) -> Iterator[ReportedSteps]:
        self.sequence += 1
        job.skipped += self.rng.random() < 0.01
        for node in job.members:
            end_ns = job.next_ns - self.rng.randrange(_S // 50)
            stall_ns = self.rng.randrange(3_000_000)
            yield ReportedSteps(
                job.id,
                job.generation,
                job.step,
                (end_ns,),
                (stall_ns,),
                job.skipped,
                Origin(node, f"outbox-{node}", self.sequence),
            )
        job.step += 1
        job.next_ns += round(_STEP_S * self.rng.uniform(0.97, 1.03) * _S)


@dataclass(frozen=True, slots=True)
class Measured:
    """What a second of training costs, and one round of the history's rows."""

    bytes_per_s: float
    history_bytes: int
    cores: float


@dataclass(slots=True)
class World:
    """A controller without connections, on a made clock."""

    path: Path
    core: Core
    training: Training
    now_ns: int
    spent_s: float = 0.0
    acks: Nobody = field(default_factory=Nobody)

    async def run(self, warmup_s: int, seconds: int) -> Measured:
        """Let the jobs train: for a while in which each node's mark is made, and measured."""
        SqliteJournal(self.path).close()
        history = SqliteJournal(self.path, read_only=True)
        fold = Fold(lambda _: self.core, history)
        clock = ControllerClock(0, 0, lambda: 0, lambda: self.now_ns)
        runtime = Runtime(fold, clock)
        journal = GroupCommit(lambda: SqliteJournal(self.path), runtime)
        journal.start(0)
        runtime.begin(Journaling(journal.append, journal.write), lambda _: None, 0)
        state = self.core.state
        rows = ProgressRows(lambda job: reporters(state, job), self.training.recoverable)
        intake = Intake(runtime, rows, self.acks, {})
        await self._train(warmup_s, intake, journal)
        before, self.spent_s = self._size(), 0.0
        await self._train(seconds, intake, journal)
        grown, spent_s = self._size() - before, self.spent_s
        before = self._size()
        await Housekeeping(runtime, journal, Retention(7, 90, 400)).write_history_whole()
        history_bytes = self._size() - before
        history.close()
        await journal.stop()
        return Measured(grown / seconds, history_bytes, spent_s / seconds)

    async def _train(self, seconds: int, intake: Intake, journal: GroupCommit) -> None:
        for _ in range(seconds * _TICKS):
            self.now_ns += _S // _TICKS
            told = list(self.training.words(self.now_ns))
            began_s = time.process_time()
            for one in told:
                if intake.is_new(one.origin):
                    intake.take_steps(one, self.now_ns)
            intake.tick(self.now_ns)
            await asyncio.sleep(0)
            await journal.call(lambda store: None)
            self.spent_s += time.process_time() - began_s

    def _size(self) -> int:
        """Return the bytes of the file, with all that is committed in it."""
        with closing(sqlite3.connect(self.path)) as db:
            db.execute("PRAGMA wal_checkpoint(FULL)")
            (pages,), (free,) = db.execute("PRAGMA page_count"), db.execute("PRAGMA freelist_count")
            (size,) = db.execute("PRAGMA page_size")
        return int(size[0]) * (int(pages[0]) - int(free[0]))


def trained(nodes: int, jobs: int) -> tuple[State, list[Job]]:
    """Return the state of a fleet whose jobs train, and these jobs."""
    rng, bench = random.Random(1), Bench([f"n{at}" for at in range(nodes)], [])
    connect(bench)
    free = list(bench.nodes)
    for number in range(jobs):
        count = min(rng.randrange(_SMALLEST, _LARGEST + 1), len(free) - (jobs - number) * _SMALLEST)
        name = f"{rng.choice(('llama-70b', 'gpt', 'vit-sft', 'rl'))}-{rng.randrange(10**4)}"
        start_job(bench, f"{name}-{number}", [free.pop() for _ in range(count)])
    state = bench.core.state
    told = [
        Job(
            job.id,
            job.generation.number,
            job.generation.members,
            bench.now_ns + round(rng.random() * _STEP_S * _S),
        )
        for job in state.jobs.values()
    ]
    return state, told


def rows(jobs: int, nodes: int, seconds: int) -> list[Row]:
    """Return the rows of the table."""
    state, told = trained(nodes, jobs)
    collect_garbage_seldom()
    now_ns = max(one.next_ns for one in told)
    with tempfile.TemporaryDirectory(prefix="everstep-bench-") as folder:
        training = Training(told, random.Random(2))
        world = World(Path(folder) / "journal.sqlite", Core(state), training, now_ns)
        found = asyncio.run(world.run(_WARMUP_S, seconds))
    day_mb = (found.bytes_per_s * _DAY_S + found.history_bytes * _DAY_S / _LEDGER_S) / 1e6
    members = sum(len(one.members) for one in told)
    what = f"{jobs} jobs on {members} nodes, a step every {_STEP_S:g} s"
    return [
        row(f"journal of a day, {what}", [day_mb], "MB", target=_MOST_MB),
        row("of these: history", [found.history_bytes * 144 / 1e6], "MB"),
        row("processor time", [found.cores], "cores", target=_MOST_CORE),
    ]


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, default=_JOBS, metavar="N", help="that train")
    parser.add_argument("--nodes", type=int, default=_NODES, metavar="N", help="of the fleet")
    parser.add_argument(
        "--training", type=int, default=180, metavar="S", help="seconds of it, after a minute"
    )


BENCHMARK = Benchmark(
    about=__doc__ or "",
    parts=[Part("day", 300.0, lambda given: rows(given.jobs, given.nodes, given.training))],
    add_options=_add_options,
    quick={"jobs": 20, "nodes": 800, "training": 10},
)
