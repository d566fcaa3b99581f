"""Events that come together on a real journal: one row, one decision, and one that is poisoned."""

import asyncio
from pathlib import Path

import pytest

from everstep_controller.core.actions import Action
from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.events import (
    ControllerStarted,
    JournaledEvent,
    NodeConnected,
    PeerReported,
    each_event,
)
from everstep_controller.journal.codec import encode
from everstep_controller.journal.group_commit import GroupCommit, Write
from everstep_controller.journal.sqlite.journal import SqliteJournal
from everstep_controller.runtime.clock import ControllerClock
from everstep_controller.runtime.fold import CoreFactory, Fold
from everstep_controller.runtime.runtime import Journaling, Runtime

_NODES = [f"n{number}" for number in range(20)]


class Poisoned(Core):
    """A core that cannot take what is told of one node."""

    def handle(self, event: JournaledEvent, now_ns: int) -> list[Action]:
        for one in each_event(event):
            if isinstance(one, PeerReported) and one.peer == "n7":
                raise ValueError("a mistake in the core")
        return super().handle(event, now_ns)


class Daemon:
    """A runtime on a journal in a folder."""

    def __init__(self, path: Path, core: CoreFactory = Core) -> None:
        self.path = path
        SqliteJournal(path).close()
        self._history = SqliteJournal(path, read_only=True)
        self.fold = Fold(core, self._history)
        recorded = self._history.last_decision()
        self.unrecorded = [taken for taken in self.fold.replay() if taken.seq > recorded]
        self.runtime = Runtime(self.fold, ControllerClock(1))
        self.journal = GroupCommit(lambda: SqliteJournal(path), self.runtime)
        self.journal.start(self._history.last()[0])
        # So many writes of decisions reach the journal before it is killed.
        self.writes_left = 10**9
        self.runtime.begin(Journaling(self.journal.append, self._write), lambda _: None, 0)

    def _write(self, operation: Write) -> None:
        if self.writes_left:
            self.writes_left -= 1
            self.journal.write(operation)

    async def connect(self) -> None:
        await self.runtime.submit(ControllerStarted("1"))
        for name in _NODES:
            hello = NodeConnected(
                node=name, boot_id="b", agent_version="1", outbox=name, highest_term=0, host="h"
            )
            await self.runtime.submit(hello)

    async def lose(self) -> int:
        """Have nodes fall silent; return the number of the row that says so."""
        told = [PeerReported("n0", name, silent=True) for name in _NODES[5:]]
        taken = await asyncio.gather(*(self.runtime.submit(event) for event in told))
        return taken[0].seq

    async def stop(self) -> list[str]:
        await self.journal.stop()
        kinds = [stored.kind for stored in self._history.events(0)]
        self._history.close()
        return kinds


def test_what_comes_in_one_pass_of_the_loop_is_one_row_and_is_folded_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        daemon = Daemon(tmp_path / "j")
        await daemon.connect()
        await daemon.lose()
        state = encode(daemon.runtime.state)
        kinds = await daemon.stop()
        assert kinds[-1] == "EventBatch"
        assert len(kinds) == 1 + len(_NODES) + 1
        store = SqliteJournal(tmp_path / "j", read_only=True)
        fold = Fold(Core, store)
        assert [len(each_event(taken.event)) for taken in fold.replay()][-1] == 15
        assert encode(fold.state) == state
        store.close()

    asyncio.run(scenario())


def test_of_a_batch_only_the_event_is_left_out_that_the_core_cannot_take(tmp_path: Path) -> None:
    async def scenario() -> None:
        daemon = Daemon(tmp_path / "j", Poisoned)
        await daemon.connect()
        await daemon.lose()
        await asyncio.sleep(0)
        assert daemon.runtime.events_rejected == 1
        assert _silent(daemon.fold) == {*_NODES[5:]} - {"n7"}
        kinds = await daemon.stop()
        assert kinds.count("EventBatch") == 1
        assert kinds.count("EventRejected") == 1
        assert not kinds.count("PeerReported")

    asyncio.run(scenario())


@pytest.mark.parametrize("writes", range(4))
def test_a_controller_that_is_killed_anywhere_in_a_rejected_batch_loses_no_other_event(
    tmp_path: Path, writes: int
) -> None:
    """Its first write says which events are left out; before it the journal has the batch alone."""

    async def scenario() -> None:
        killed = Daemon(tmp_path / "j", Poisoned)
        await killed.connect()
        killed.writes_left = writes
        through = await killed.lose()
        await killed.stop()
        # Whatever it would have journaled after the batch is lost with it.
        _cut(killed.path, through)
        again = Daemon(tmp_path / "j", Poisoned)
        assert _silent(again.fold) == {*_NODES[5:]} - {"n7"}
        again.runtime.adopt(again.unrecorded)
        again.runtime.report_rejections(again.unrecorded)
        await again.stop()
        assert _rejections(again.path) == {through: (2,)}
        third = Daemon(tmp_path / "j", Poisoned)
        assert _silent(third.fold) == {*_NODES[5:]} - {"n7"}
        await third.stop()

    asyncio.run(scenario())


def test_what_a_mended_core_could_take_stays_left_out(tmp_path: Path) -> None:
    async def scenario() -> None:
        daemon = Daemon(tmp_path / "j", Poisoned)
        await daemon.connect()
        await daemon.lose()
        await daemon.stop()
        mended = Daemon(tmp_path / "j")
        assert _silent(mended.fold) == {*_NODES[5:]} - {"n7"}
        await mended.stop()

    asyncio.run(scenario())


def _silent(fold: Fold) -> set[str]:
    return {node.name for node in fold.state.nodes.values() if node.liveness.silent_to}


def _cut(path: Path, through: int) -> None:
    """Take the newest events out of a journal, and its chain back to the one before them."""
    store = SqliteJournal(path)
    ((link,),) = store.query("SELECT link FROM event WHERE seq = ?", (through,))
    store.execute("DELETE FROM event WHERE seq > ?", (through,))
    store.execute(
        "UPDATE head SET seq = ?1, link = ?2, checksum = checksum(?1, ?2, base_seq, base_link)",
        (through, link),
    )
    store.close()


def _rejections(path: Path) -> dict[int, tuple[int, ...] | None]:
    store = SqliteJournal(path, read_only=True)
    found = store.rejections()
    store.close()
    return found
