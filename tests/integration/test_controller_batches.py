"""Events that come together on a real journal: one row, one decision, and one that is poisoned."""

import asyncio
from pathlib import Path

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
from everstep_controller.journal.group_commit import GroupCommit
from everstep_controller.journal.store import JournalStore
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
        JournalStore(path).close()
        self._history = JournalStore(path, read_only=True)
        self.fold = Fold(core, self._history)
        self.runtime = Runtime(self.fold, ControllerClock(1))
        self.journal = GroupCommit(lambda: JournalStore(path), self.runtime)
        self.journal.start(0)
        self.runtime.begin(Journaling(self.journal.append, self.journal.write), lambda _: None, 0)

    async def connect(self) -> None:
        await self.runtime.submit(ControllerStarted("1"))
        for name in _NODES:
            hello = NodeConnected(
                node=name, boot_id="b", agent_version="1", outbox=name, highest_term=0, host="h"
            )
            await self.runtime.submit(hello)

    async def lose(self) -> None:
        told = [PeerReported("n0", name, silent=True) for name in _NODES[5:]]
        await asyncio.gather(*(self.runtime.submit(event) for event in told))

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
        store = JournalStore(tmp_path / "j", read_only=True)
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
        assert {node.name for node in daemon.runtime.state.nodes.values() if node.silent_to} == {
            *_NODES[5:]
        } - {"n7"}
        kinds = await daemon.stop()
        assert kinds.count("EventBatch") == 1
        assert kinds.count("PeerReported") == 15

    asyncio.run(scenario())
