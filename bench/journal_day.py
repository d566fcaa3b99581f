"""Journal benchmark: what many small jobs that train write in a day, and the processor time of it.

300 jobs of 8 to 64 nodes with a step every 2 s train on a fleet of 12,500 nodes. Their nodes' words
of each step go through the controller's own intake, event loop, journal and core, on a disk, minute
by minute of a made clock; connections and protobuf are left out (`transport.py` has these).
A day's bytes are those by which the file grows, with the ledgers' rows, times what is left of it.
"""

import argparse
import asyncio
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import planned_scale
from scale_fleet import Bench
from table import Row, show

from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.events import StepRecoverable
from everstep_controller.core.jobs.progress_rows import ProgressRows, ReportedSteps, reporters
from everstep_controller.core.model.node import Origin
from everstep_controller.core.model.state import State
from everstep_controller.journal.codec import decode_state, encode
from everstep_controller.journal.group_commit import GroupCommit
from everstep_controller.journal.store import JournalStore
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


@dataclass(slots=True)
class World:
    """A controller without connections, on a made clock."""

    path: Path
    core: Core
    training: Training
    time_ns: list[int]
    spent_s: float = 0.0
    acks: Nobody = field(default_factory=Nobody)

    async def run(self, warmup_s: int, seconds: int) -> tuple[float, float]:
        """Return bytes a second, without the ledgers', and cores, after a warm-up."""
        JournalStore(self.path).close()
        history = JournalStore(self.path, read_only=True)
        fold = Fold(lambda _: self.core, history)
        fold.core = self.core
        clock = ControllerClock(0, 0, lambda: 0, lambda: self.time_ns[0])
        runtime = Runtime(fold, clock)
        journal = GroupCommit(lambda: JournalStore(self.path), runtime)
        journal.start(0)
        runtime.begin(Journaling(journal.append, journal.write), lambda _: None, 0)
        state = self.core.state
        rows = ProgressRows(lambda job: reporters(state, job), self.training.recoverable)
        intake = Intake(runtime, rows, self.acks, {})
        await self._seconds(warmup_s, intake, journal)
        before = self._bytes(history)
        self.spent_s = 0.0
        await self._seconds(seconds, intake, journal)
        grown = self._bytes(history) - before
        await self._ledgers(runtime, journal, history)
        history.close()
        await journal.stop()
        return grown / seconds, self.spent_s / seconds

    async def _seconds(self, seconds: int, intake: Intake, journal: GroupCommit) -> None:
        for _ in range(seconds * _TICKS):
            self.time_ns[0] += _S // _TICKS
            told = list(self.training.words(self.time_ns[0]))
            began_s = time.process_time()
            for one in told:
                if intake.is_new(one.origin):
                    intake.take_steps(one, self.time_ns[0])
            intake.tick(self.time_ns[0])
            await asyncio.sleep(0)
            await journal.call(lambda store: None)
            self.spent_s += time.process_time() - began_s

    def _bytes(self, history: JournalStore) -> int:
        """Return the bytes of all rows that a day adds to: those of others are written over."""
        (events,) = next(iter(history.query("SELECT sum(length(kind) + length(body) + 28) FROM event")))
        (rest,) = next(iter(history.query("SELECT sum(length(actions) + 18) FROM decision")))
        return int(events or 0) + int(rest or 0)

    async def _ledgers(
        self, runtime: Runtime, journal: GroupCommit, history: JournalStore
    ) -> None:
        await Housekeeping(runtime, journal, Retention(7, 90)).roll_up_ledgers()
        (size,) = next(
            iter(history.query("SELECT sum(2 * length(job) + length(totals) + 30) FROM ledger"))
        )
        self.ledger_bytes = int(size)


def trained(nodes: int, jobs: int) -> tuple[State, list[Job]]:
    """Return the state of a fleet whose jobs train, and these jobs."""
    rng, bench = random.Random(1), Bench([f"n{at}" for at in range(nodes)], [])
    planned_scale.fill(bench, 0)
    free = list(bench.nodes)
    for number in range(jobs):
        count = min(rng.randrange(_SMALLEST, _LARGEST + 1), len(free) - (jobs - number) * _SMALLEST)
        name = f"{rng.choice(('llama-70b', 'gpt', 'vit-sft', 'rl'))}-{rng.randrange(10**4)}"
        planned_scale.start(bench, f"{name}-{number}", [free.pop() for _ in range(count)])
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


def rows(nodes: int, jobs: int, seconds: int) -> list[Row]:
    """Return the rows of the table."""
    raise NotImplementedError


if __name__ == "__main__":
    raise SystemExit(0)
