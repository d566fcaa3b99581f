"""The ledger against the truth, and the history of 54 days: its bytes, and how long questions take.

Jobs that are scripted at random tell where each nanosecond went: no category may be off by more
than 2 %, or 100 ms. Five real scripts without the library, each killed twice, write down
themselves what each of their steps was. Four scenarios are those in which Google's goodput library
is wrong. The history is of one job of 54 days with 466 incidents and 500,000 steps (the numbers of
Llama 3), written by the controller's own writer while the core folds it; each question is asked as
'everstep ettr' does, and 'everstep report' writes its pages.
"""

import argparse
import asyncio
import contextlib
import io
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from harness.session import Benchmark, Part
from harness.table import Row, row
from journal.local_admin import LocalAdmin
from journal.scripted import SCENARIOS, ScriptedJob, random_job

from everstep_cli.commands.session import AdminSession
from everstep_cli.main import run_command, screen
from everstep_controller.api.admin.fleet_ledger import DIMENSIONS, LedgerQuestion, Periods
from everstep_controller.api.admin.history_queries import current_history, ledger_from
from everstep_controller.core import events
from everstep_controller.core.accounting.categories import Category
from everstep_controller.core.accounting.ledger import ettr_work
from everstep_controller.journal.group_commit import GroupCommit, JournalEntry, JournalFull
from everstep_controller.journal.sqlite.journal import SqliteJournal
from everstep_controller.runtime.history_writer import HistoryWriter
from integration.real_fleet import running_fleet
from integration.script_diaries import run_scripts
from unit.core.jobs.test_incident_retention import Months

_S = 1_000_000_000
_BEGAN_NS = 20_000 * 86_400 * _S
_DAYS, _INCIDENTS, _STEPS = 54, 466, 500_000
_LONGEST_MS, _MOST_MB = 300.0, 100.0
_LONGEST_REPORT_S, _LARGEST_MB = 10.0, 2.0
_SCRIPTS = 5
# Standard deviation of the steps of jobs that are not even.
_NOISE = 0.01
# Steps of one row of progress.
_ROW = 50


# --- the truth -----------------------------------------------------------------------------------


def truth(jobs: int, hours: float) -> Iterator[Row]:
    """Yield how many categories of scripted jobs are off, and of how many."""
    wrong, categories, worst = 0, 0, 0.0
    for seed in range(jobs):
        job = random_job(seed, hours)
        wrong += len(job.wrong())
        categories += len(+job.truth)
        worst = max(worst, _worst(job))
    what = f"{jobs} random jobs of {hours:g} h"
    yield row(f"{what}: categories off by 2 % and 100 ms, of {categories}", [wrong], "", target=0.0)
    yield row(f"{what}: worst category", [100 * worst], "%", target=2.0)
    yield from _noisy(jobs, hours)


def _noisy(jobs: int, hours: float) -> Iterator[Row]:
    """Yield the same of jobs whose steps differ by chance, so that the reference is an estimate.

    What a step is longer by chance goes to slow.unattributed; that is told beside the wall clock.
    """
    wrong, off_ns, wall_ns = 0, 0, 0
    for seed in range(max(1, jobs // 4)):
        job = random_job(seed, hours, _NOISE)
        wrong += len(job.wrong().keys() - {Category.SLOW})
        told = job.ledger.totals(job.now_ns).get(Category.SLOW, 0)
        off_ns, wall_ns = off_ns + abs(told - job.truth[Category.SLOW]), wall_ns + job.now_ns
    what = f"steps that differ by {_NOISE:.0%}"
    yield row(f"{what}: other categories off", [wrong], "", target=0.0)
    yield row(
        f"{what}: slow.unattributed off, of the wall", [100 * off_ns / wall_ns], "%", None, 0.1
    )


def _worst(job: ScriptedJob) -> float:
    """Return by what share the worst category is off that is off by more than 100 ms."""
    told = job.ledger.totals(job.now_ns)
    off = {one: abs(told.get(one, 0) - job.truth[one]) for one in told.keys() | job.truth.keys()}
    return max((ns / max(job.truth[one], 1) for one, ns in off.items() if ns > _S // 10), default=0)


def scenarios() -> Iterator[Row]:
    """Yield by how many percent points the ratio is off where Google's library is wrong."""
    for name, scripted in SCENARIOS.items():
        job = scripted()
        told = ettr_work(job.ledger.totals(job.now_ns), job.now_ns)
        true = job.truth[Category.PRODUCTIVE] / job.now_ns
        off = 100 * abs(told - true)
        yield row(f"{name}: {told:.2%}, off by", [off], "points", target=0.1)


def scripts() -> Iterator[Row]:
    """Yield how many categories are off of what real scripts have written down of themselves."""
    with running_fleet("node-1") as fleet:
        compared = run_scripts(fleet, _SCRIPTS)
    wrong = sum(len(one.wrong) for one in compared)
    categories = sum(len(one.true) for one in compared)
    late_ms = max(one.late_ns for one in compared) / 1e6
    what = f"{_SCRIPTS} unchanged scripts: categories off by 2 % and 100 ms, of {categories}"
    yield row(what, [wrong], "", target=0.0)
    yield row("by how much the machine itself was late in a script, at most", [late_ms], "ms")


# --- 54 days -------------------------------------------------------------------------------------


class _NoEvents:
    """Nothing but history goes through this journal."""

    def journaled(self, entries: Sequence[JournalEntry]) -> None:
        raise AssertionError(entries)

    def not_journaled(self, entries: Sequence[JournalEntry], error: JournalFull) -> None:
        raise error

    def journal_writable(self) -> None:
        """Nobody waits for it."""


@dataclass(slots=True)
class _LongRun:
    """A job of some days that fails again and again, and whose history is written down."""

    story: Months
    step: int = 0

    @classmethod
    def begun(cls) -> "_LongRun":
        story = Months()
        story.now_ns = _BEGAN_NS
        story.run()
        return cls(story, 1)

    def train(self, seconds: float, steps: int) -> None:
        each_ns = round(seconds * _S / max(steps, 1))
        while steps > 0:
            count = min(_ROW, steps)
            ends = tuple(self.story.now_ns + each_ns * (at + 1) for at in range(count))
            self.story.now_ns = ends[-1]
            number = self.story.job.generation.number
            told = events.JobProgressed(
                job="j",
                generation=number,
                first_step=self.step,
                end_ns=ends,
                stall_ns=(0,) * count,
            )
            self.story.tell(told, after_s=0)
            self.step, steps = self.step + count, steps - count

    def fail(self, chance: random.Random) -> None:
        self.story.exit_rank(chance.choice(("n0", "n1")))
        self.story.now_ns += round(chance.uniform(1, 60) * _S)
        self.story.stop_all()
        self.story.now_ns += round(chance.uniform(10, 300) * _S)
        self.story.choose(self.story.job.lineage.last_step)
        self.story.now_ns += round(chance.uniform(10, 300) * _S)


def history(days: int, incidents: int, steps: int) -> Iterator[Row]:
    """Yield the size of the history of a long job, and the longest that a question takes."""
    with tempfile.TemporaryDirectory(prefix="everstep-bench-") as folder:
        path = Path(folder) / "journal.sqlite"
        run, write_s = asyncio.run(_written(path, days, incidents, steps))
        what = f"{days} days, {incidents} incidents, {steps:,} steps"
        yield row(f"history of {what}", [path.stat().st_size / 1e6], "MB", target=_MOST_MB)
        yield row("writing it, of each minute", [1e3 * write_s / (days * 1440)], "ms")
        asked = {by: _asked(path, run, by) for by in DIMENSIONS}
        slowest = max(asked, key=lambda by: asked[by])
        name = f"the slowest of {len(asked)} questions (by {slowest})"
        yield row(name, [1e3 * asked[slowest]], "ms", target=_LONGEST_MS)
        for what, line in {
            "the job": ["j"],
            "all jobs, 60 days": ["--fleet", "--last", "60"],
        }.items():
            page = Path(folder) / "report.html"
            began_s = time.process_time()
            took_s = _reported(path, run, line, page)
            worked_s = time.process_time() - began_s
            yield row(f"report of {what}", [took_s], "s", target=_LONGEST_REPORT_S)
            yield row("its processor time", [worked_s], "s")
            size_mb, listed = page.stat().st_size / 1e6, page.read_text().count("<tr id=")
            yield row(f"its size, with {listed} incidents", [size_mb], "MB", target=_LARGEST_MB)


async def _written(path: Path, days: int, incidents: int, steps: int) -> tuple[_LongRun, float]:
    journal = GroupCommit(lambda: SqliteJournal(path), _NoEvents())
    journal.start(0)
    writer, run, chance = HistoryWriter(journal), _LongRun.begun(), random.Random(1)
    apart_s, spent_s = days * 86_400 / incidents, 0.0
    for _ in range(incidents):
        hours = max(1, round(apart_s / 3600))
        for _ in range(hours):
            run.train(apart_s / hours - 300 / hours, round(steps / incidents / hours))
            began_s = time.perf_counter()
            await writer.write(run.story.core.state, run.story.now_ns)
            spent_s += time.perf_counter() - began_s
        run.fail(chance)
    await writer.write(run.story.core.state, run.story.now_ns, all_now=True)
    await journal.stop()
    with closing(SqliteJournal(path)) as store:
        store.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return run, spent_s


def _asked(path: Path, run: _LongRun, by: str) -> float:
    """Return how long a question about all of it takes, as the controller answers it."""
    kind = by if by in ("day", "week", "month") else "day"
    asked = LedgerQuestion(by, Periods(kind, 400 if kind == "day" else 60, run.story.now_ns))
    began_s = time.perf_counter()
    current = current_history(run.story.core.state, asked)
    with closing(SqliteJournal(path, read_only=True)) as store:
        told = ledger_from(store, asked, current)
    took_s = time.perf_counter() - began_s
    assert told.whole.node_ns > 0, by
    return took_s


def _reported(path: Path, run: _LongRun, line: Sequence[str], page: Path) -> float:
    """Return how long the command takes that writes a report, without its start and gRPC."""
    now_ns = run.story.now_ns
    admin = LocalAdmin(run.story.core.state, run.story.job, path, now_ns)
    session = AdminSession(admin.connect, screen(io.StringIO(), 80), lambda: now_ns)
    began_s = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        status = run_command(session, ("report", *line, "-o", str(page)))
    assert status == 0, line
    return time.perf_counter() - began_s


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, default=100, metavar="N", help="that are scripted")
    parser.add_argument("--hours", type=float, default=8, metavar="H", help="of each of them")
    parser.add_argument("--days", type=int, default=_DAYS, metavar="N", help="of the long job")
    parser.add_argument("--incidents", type=int, default=_INCIDENTS, metavar="N", help="of it")
    parser.add_argument("--steps", type=int, default=_STEPS, metavar="N", help="of it")


BENCHMARK = Benchmark(
    about=__doc__ or "",
    parts=[
        Part("truth", 120.0, lambda given: truth(given.jobs, given.hours)),
        Part("scenarios", 1.0, lambda given: scenarios()),
        Part("scripts", 90.0, lambda given: scripts()),
        Part("history", 60.0, lambda given: history(given.days, given.incidents, given.steps)),
    ],
    add_options=_add_options,
    quick={"jobs": 20, "hours": 4.0, "days": 5, "incidents": 43, "steps": 46_000},
)
