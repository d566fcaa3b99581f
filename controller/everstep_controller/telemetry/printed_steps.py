"""Printed steps: which ranks of a job print their steps now, and which do not, in a sentence.

The steps of a script that only prints them are those of whichever rank prints first: where its
ranks do not wait for one another, one of them may stand still and the job makes steps all the same.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from everstep_common.hangs.judging.explanation import plural
from everstep_common.reports.rank_columns import RankRow
from everstep_controller.core.jobs.lifecycle import STEPPING
from everstep_controller.core.model.job import JobRecord
from everstep_controller.telemetry.rank_progress import RankProgressTable, ToldProgress

# A launcher tells every five seconds how far its ranks are, and so does its agent.
_LATE_MS = 20_000
# Evaluations and checkpoints take many times a step.
_LATE_TIMES = 10


class PrintedSteps:
    """Steps that the ranks of each job print, by the newest word of their nodes."""

    def __init__(self, ranks: RankProgressTable, now_ns: Callable[[], int]) -> None:
        self._ranks = ranks
        self._now_ns = now_ns

    def of_job(self, job: JobRecord) -> str:
        """Return the sentence; "": the job makes no steps, or tells them otherwise."""
        if job.state not in STEPPING:
            return ""
        told = self._ranks.of_job(job.id, job.generation.members)
        current = [one for one in told if one.generation == job.generation.number]
        return printed_steps(current, self._now_ns(), job.lineage.last_step)


@dataclass(frozen=True, slots=True)
class _Printed:
    rank: int
    step: int | None
    age_ms: int
    late_ms: int

    @property
    def is_late(self) -> bool:
        return self.step is not None and self.age_ms > self.late_ms


def printed_steps(told: Iterable[ToldProgress], now_ns: int, job_step: int | None = None) -> str:
    """Return which ranks print steps and which do not; "": steps are not read off the output.

    ``job_step`` is the job's newest one, which is told beside it: what ranks told is older.
    """
    rows = [_printed(row, (now_ns - one.told_ns) // 10**6) for one in told for row in one.rows()]
    late = [row for row in rows if row.is_late]
    going = [row for row in rows if row.step is not None and not row.is_late]
    if not going:
        return ""
    if not late:
        # How far the others are is not asked: the steps of one rank are those of the job.
        enough = "" if len(going) == len(rows) else ", which is enough"
        return f"{_ranks(going)} print{_s(going)} steps{enough}"
    newest = max(_newest(going), -1 if job_step is None else job_step)
    least_s = min(row.age_ms for row in late) // 1000
    has = "has" if len(late) == 1 else "have"
    return (
        f"{_ranks(going)} print{_s(going)} steps, the newest is {newest};"
        f" {_ranks(late)} {has} printed none for {least_s} s, the newest is {_newest(late)}"
    )


def _printed(row: RankRow, since_told_ms: int) -> _Printed:
    late_ms = max(_LATE_MS, _LATE_TIMES * row.median_ms)
    return _Printed(row.rank, row.printed, row.printed_ms + max(0, since_told_ms), late_ms)


def _ranks(rows: Sequence[_Printed]) -> str:
    return plural({row.rank for row in rows})


def _s(rows: Sequence[_Printed]) -> str:
    return "s" if len(rows) == 1 else ""


def _newest(rows: Sequence[_Printed]) -> int:
    return max(row.step for row in rows if row.step is not None)
