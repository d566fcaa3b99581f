"""Records that come while the controller halts: one that came to nothing is never acknowledged."""

import asyncio
from pathlib import Path

import pytest

from everstep_common.reports import CheckFinished, RankExited
from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.events import (
    ControllerStarted,
    EqualExits,
    Event,
    NodeConnected,
    RanksExited,
    Reported,
)
from everstep_controller.core.jobs.progress_rows import ProgressRows, Reporters
from everstep_controller.core.model.node import Origin
from everstep_controller.journal import codec
from everstep_controller.journal.group_commit import GroupCommit
from everstep_controller.journal.port import Mark, StoredEvent
from everstep_controller.journal.sqlite.journal import SqliteJournal
from everstep_controller.records.intake import Intake
from everstep_controller.runtime.clock import ControllerClock
from everstep_controller.runtime.fold import Fold
from everstep_controller.runtime.runtime import Journaling, Runtime
from fakes.agent_stream import agent_stream
from fakes.controllers import controller


def _hello(node: str, term: int = 0) -> NodeConnected:
    return NodeConnected(
        node=node,
        boot_id="boot",
        agent_version="1",
        outbox=f"outbox-{node}",
        highest_term=term,
        host="127.0.0.1",
    )


def _record(sequence: int) -> Event:
    origin = Origin("node-1", "outbox-node-1", sequence)
    return Reported(origin, 0, CheckFinished("order", True, "fine"))


class _Acks:
    """Acknowledging that keeps what it is told."""

    def __init__(self) -> None:
        self.acknowledgements: list[int] = []

    def acknowledged(self, node: str, outbox: str, sequence: int) -> None:
        self.acknowledgements.append(sequence)

    def refused(self, node: str, outbox: str, sentence: str) -> None:
        raise AssertionError(sentence)


async def _halt_before_a_record(path: Path) -> list[int]:
    """Have a record journaled right behind the Hello that halts; return what is acknowledged."""
    SqliteJournal(path).close()
    history = SqliteJournal(path, read_only=True)
    runtime = Runtime(Fold(Core, history), ControllerClock(1))
    journal = GroupCommit(lambda: SqliteJournal(path), runtime)
    journal.start(0)
    runtime.begin(Journaling(journal.append, journal.write), lambda _: None, 0)
    acks = _Acks()
    progress = ProgressRows(lambda _: Reporters(1, ("node-1",), running=True))
    intake = Intake(runtime, progress, acks, {})
    await runtime.submit(ControllerStarted("1"))
    await runtime.submit(_hello("node-1"))
    await runtime.submit(_hello("node-3", term=9))
    assert intake.is_new(Origin("node-1", "outbox-node-1", 1))
    intake.take_event(Origin("node-1", "outbox-node-1", 1), _record(1), 1)
    # Handed in together: when they come back from the journal, the first of them halts.
    halting = runtime.submit(_hello("node-2", term=9))
    for sequence in (2, 3):
        assert intake.is_new(Origin("node-1", "outbox-node-1", sequence))
        intake.take_event(Origin("node-1", "outbox-node-1", sequence), _record(sequence), 1)
    await halting
    assert runtime.state.halted
    # Whatever followed from them has been handed in when this comes back.
    await runtime.submit_marks(())
    await journal.stop()
    history.close()
    return acks.acknowledgements


def test_a_record_behind_the_hello_that_halts_is_kept_by_its_agent(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    assert asyncio.run(_halt_before_a_record(path)) == [1]
    store = SqliteJournal(path, read_only=True)
    assert store.marks() == {"outbox-node-1": 1}
    assert len(list(store.events(0))) == 7
    store.close()


def _exits() -> RanksExited:
    """Return the row of two ranks' ends, which came as the records 2 and 3."""
    died = EqualExits(
        RankExited(generation=1, rank=0, exit_code=0, signal=9, last_line=""), (0, 1), (1, 1)
    )
    origin = Origin("node-1", "outbox-node-1", 3)
    return RanksExited(origin=origin, first_sequence=2, job="train", exits=(died,))


@pytest.mark.parametrize(
    "records", [(_record(2), _record(3)), (_exits(),)], ids=["two records", "a row of both"]
)
def test_one_that_was_killed_before_it_wrote_that_down_knows_it_after_the_start(
    tmp_path: Path, records: tuple[Event, ...]
) -> None:
    store = SqliteJournal(tmp_path / "journal.sqlite")
    strangers = _hello("node-3", term=9), _hello("node-2", term=9)
    events = (ControllerStarted("1"), _hello("node-1"), _record(1), strangers[0])
    behind = (strangers[1], *records)
    store.begin()
    store.append(
        [
            StoredEvent(seq, seq, codec.kind_of(event), codec.encode(event))
            for seq, event in enumerate((*events, *behind), start=1)
        ],
        [Mark("node-1", "outbox-node-1", 3)],
    )
    store.commit()
    store.close()

    async def scenario() -> int:
        async with (
            controller(tmp_path, recover_by="ann") as running,
            agent_stream(running.port, "node-1") as agent,
        ):
            return (await agent.hello()).acknowledged

    assert asyncio.run(scenario()) == 1
