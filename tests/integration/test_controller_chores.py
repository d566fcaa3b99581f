"""The controller's chores on a real journal, run by hand."""

import asyncio
from pathlib import Path

from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.events import ControllerStarted, NodeConnected, NodeDisconnected
from everstep_controller.journal.group_commit import GroupCommit
from everstep_controller.journal.port import Mark
from everstep_controller.journal.sqlite.journal import SqliteJournal
from everstep_controller.runtime.clock import ControllerClock
from everstep_controller.runtime.fold import Fold
from everstep_controller.runtime.housekeeping import Housekeeping, Retention
from everstep_controller.runtime.runtime import Journaling, Runtime


class Kept:
    """A runtime on a journal in a folder."""

    def __init__(self, path: Path, now_ns: int) -> None:
        self.path = path
        SqliteJournal(path).close()
        history = SqliteJournal(path, read_only=True)
        self.runtime = Runtime(Fold(Core, history), ControllerClock(now_ns))
        self.journal = GroupCommit(lambda: SqliteJournal(path), self.runtime)
        self.journal.start(history.last()[0])
        self.runtime.begin(Journaling(self.journal.append, self.journal.write), lambda _: None, 0)
        self.upkeep = Housekeeping(self.runtime, self.journal, Retention(7.0, 90.0, 400.0))
        self._history = history

    async def stop(self) -> SqliteJournal:
        await self.journal.stop()
        self._history.close()
        return SqliteJournal(self.path, read_only=True)


def hello(outbox: str) -> NodeConnected:
    return NodeConnected(
        node="n", boot_id="b", agent_version="1", outbox=outbox, highest_term=0, host="h"
    )


def test_retention_forgets_the_marks_of_replaced_outboxes(tmp_path: Path) -> None:
    async def scenario() -> None:
        kept = Kept(tmp_path / "j", 1)
        await kept.runtime.submit(ControllerStarted("1"))
        await kept.runtime.submit(hello("old"), (Mark("n", "old", 7), Mark("away", "other", 3)))
        await kept.runtime.submit(NodeDisconnected("n"))
        await kept.runtime.submit(hello("new"), (Mark("n", "new", 1),))
        await kept.upkeep.retention()
        store = await kept.stop()
        assert store.marks() == {"new": 1, "other": 3}
        store.close()

    asyncio.run(scenario())


def test_a_snapshot_is_written_when_something_happened(tmp_path: Path) -> None:
    async def scenario() -> None:
        kept = Kept(tmp_path / "j", 1)
        await kept.runtime.submit(ControllerStarted("1"))
        await kept.upkeep.snapshot()
        await kept.upkeep.snapshot()
        store = await kept.stop()
        snapshot, oldest = store.snapshot(), store.oldest_snapshot()
        assert snapshot is not None
        assert oldest is not None
        assert snapshot.seq == oldest.seq == 1
        store.close()

    asyncio.run(scenario())
