"""A job that loses a rank every hour, and the history of it in a journal: a process to be killed.

It begins with the hours that another one has been through, as a controller that replays does, and
goes on, one hour after the other, each of which it prints once it is written down.
"""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from everstep_common.judging.findings import Finding, Severity
from everstep_controller.journal.group_commit import GroupCommit, JournalEntry, JournalFull
from everstep_controller.journal.sqlite.journal import SqliteJournal
from everstep_controller.runtime.history_writer import HistoryWriter
from unit.core.jobs.test_incident_retention import Months
from unit.core.test_decisions import S

SLOW_FAN = Finding(component="fan/0", condition="Slow", severity=Severity.DEGRADED, message="slow")
# Where the job's first hour begins: no hour is the first one of time.
_BEGAN_NS = 20_000 * 86_400 * S


class NoEvents:
    """Nothing but history goes through this journal."""

    def journaled(self, entries: Sequence[JournalEntry]) -> None:
        raise AssertionError(entries)

    def not_journaled(self, entries: Sequence[JournalEntry], error: JournalFull) -> None:
        raise AssertionError(error)

    def journal_writable(self) -> None:
        """Nobody waits for it."""


def begun() -> Months:
    """Return the job as it is before its first hour."""
    story = Months()
    story.now_ns = _BEGAN_NS
    story.run()
    return story


def pass_hour(story: Months, hour: int) -> None:
    """Let an hour pass; each day begins with a finding."""
    story.hour(10 * (hour + 1))
    if hour % 24 == 0:
        story.find("n1", SLOW_FAN)


async def _main(path: Path, passed: int, hours: int) -> None:
    story = begun()
    for hour in range(passed):
        pass_hour(story, hour)
    journal = GroupCommit(lambda: SqliteJournal(path), NoEvents())
    journal.start(0)
    writer = HistoryWriter(journal)
    for hour in range(passed, hours):
        pass_hour(story, hour)
        await writer.write(story.core.state, story.now_ns)
        print(hour, flush=True)
    await writer.write(story.core.state, story.now_ns, all_now=True)
    await journal.stop()


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
