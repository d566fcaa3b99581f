from pathlib import Path

import pytest

from everstep_controller.core.actions import Action
from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.events import (
    ControllerStarted,
    EventBatch,
    JournaledEvent,
    SettingsApplied,
    TimerDue,
    each_event,
)
from everstep_controller.core.model.settings import Settings
from everstep_controller.core.model.state import State
from everstep_controller.journal import codec
from everstep_controller.journal.port import DamagedJournalError, StoredEvent, StoredSnapshot
from everstep_controller.journal.sqlite.journal import SqliteJournal
from everstep_controller.replay import compare
from everstep_controller.runtime.fold import Fold, TakenApart

POISON = "poison"


class FragileCore(Core):
    """Falls over one timer, after it has already changed something."""

    def __init__(self, state: State | None = None) -> None:
        super().__init__(state)

    def handle(self, event: JournaledEvent, now_ns: int) -> list[Action]:
        if TimerDue(POISON) in each_event(event):
            self.state.term = -1
            raise ZeroDivisionError("on purpose")
        return super().handle(event, now_ns)


def journal(path: Path, *events: JournaledEvent) -> SqliteJournal:
    store = SqliteJournal(path)
    store.begin()
    store.append(
        [
            StoredEvent(seq, seq, codec.kind_of(event), codec.encode(event))
            for seq, event in enumerate(events, start=1)
        ],
        [],
    )
    store.commit()
    return store


def test_an_event_that_makes_the_core_raise_leaves_the_state_before_it(tmp_path: Path) -> None:
    store = journal(
        tmp_path / "j", ControllerStarted("1"), TimerDue(POISON), ControllerStarted("2")
    )
    fold = Fold(FragileCore, store)
    turns = list(fold.replay())
    assert [turn.rejected for turn in turns] == ["", "ZeroDivisionError: on purpose", ""]
    assert fold.state.term == 2
    assert fold.seq == 3
    store.close()


def test_a_rejected_event_is_not_tried_again(tmp_path: Path) -> None:
    store = journal(tmp_path / "j", ControllerStarted("1"), TimerDue(POISON))
    store.begin()
    store.reject(2, "ZeroDivisionError")
    store.commit()
    assert [turn.seq for turn in Fold(FragileCore, store).replay()] == [1]
    store.close()


def _poisoned_batch(path: Path) -> SqliteJournal:
    batch = EventBatch((TimerDue("a"), TimerDue(POISON), TimerDue("b"), TimerDue(POISON)))
    return journal(path, ControllerStarted("1"), batch, ControllerStarted("2"))


def test_of_a_batch_that_makes_the_core_raise_each_event_is_taken_alone(tmp_path: Path) -> None:
    store = _poisoned_batch(tmp_path / "j")
    fold = Fold(FragileCore, store)
    _, taken, _ = fold.replay()
    assert taken.event == EventBatch((TimerDue("a"), TimerDue("b")))
    assert taken.apart is not None
    assert [one.place for one in taken.apart.left_out] == [1, 3]
    assert not taken.rejected
    assert (fold.state.term, fold.seq, fold.state.event_count) == (2, 3, 4)
    store.close()


def test_what_is_known_to_be_left_out_of_a_batch_is_not_tried_again(tmp_path: Path) -> None:
    store = _poisoned_batch(tmp_path / "j")
    store.begin()
    store.reject(2, "ZeroDivisionError", [0, 1, 3])
    store.commit()
    fold = Fold(FragileCore, store)
    _, taken, _ = fold.replay()
    assert taken.event == EventBatch((TimerDue("b"),))
    assert taken.apart is not None
    assert not any(one.error for one in taken.apart.left_out)
    store.close()


class CrowdedCore(Core):
    """Falls over any batch, and over none of its events."""

    def handle(self, event: JournaledEvent, now_ns: int) -> list[Action]:
        if isinstance(event, EventBatch):
            raise ZeroDivisionError("on purpose")
        return super().handle(event, now_ns)


def test_events_that_only_together_make_the_core_raise_are_all_taken(tmp_path: Path) -> None:
    store = _poisoned_batch(tmp_path / "j")
    _, taken, _ = Fold(CrowdedCore, store).replay()
    assert taken.apart == TakenApart("ZeroDivisionError: on purpose", ())
    assert len(each_event(taken.event)) == 4
    store.close()


def test_a_batch_that_was_left_out_as_a_whole_stays_so(tmp_path: Path) -> None:
    """Journals of before have its events again, after it."""
    store = _poisoned_batch(tmp_path / "j")
    store.begin()
    store.reject(2, "ZeroDivisionError")
    store.commit()
    assert [taken.seq for taken in Fold(FragileCore, store).replay()] == [1, 3]
    store.close()


def test_folding_starts_from_the_newest_snapshot_that_can_be_read(tmp_path: Path) -> None:
    store = journal(tmp_path / "j", *[ControllerStarted(str(n)) for n in range(4)])
    store.begin()
    store.save_snapshot(StoredSnapshot(2, 2, "0", codec.encode(State(term=20))))
    store.save_snapshot(StoredSnapshot(3, 3, "0", b"{broken"))
    store.commit()
    fold = Fold(Core, store)
    assert [turn.seq for turn in fold.replay()] == [3, 4]
    assert fold.state.term == 22
    store.close()


@pytest.mark.parametrize("kept", [0, 2])
def test_without_the_snapshot_that_stands_for_deleted_events_nothing_is_folded(
    tmp_path: Path, kept: int
) -> None:
    """A changed bit in the page of a snapshot hides it: the rest alone is another state."""
    store = journal(tmp_path / "j", *[ControllerStarted(str(n)) for n in range(4)])
    store.begin()
    store.save_snapshot(StoredSnapshot(4 - kept, 4, "0", codec.encode(State(term=20))))
    store.delete_events(4 - kept, 5)
    store.commit()
    fold = Fold(Core, store)
    assert len(list(fold.replay())) == kept
    store.execute("DELETE FROM snapshot")
    with pytest.raises(DamagedJournalError, match=f"events 1 to {4 - kept} are not kept"):
        list(Fold(Core, store).replay())
    store.close()


def test_replay_names_the_events_that_are_decided_differently(tmp_path: Path) -> None:
    events: list[JournaledEvent] = [
        ControllerStarted("1"),
        SettingsApplied(Settings()),
        ControllerStarted("2"),
    ]
    store = journal(tmp_path / "j", *events)
    core = Core()
    store.begin()
    for seq, event in enumerate(events[:2], start=1):
        store.record(seq, codec.encode_actions(core.handle(event, seq)))
    store.commit()
    comparison = compare(store, Core)
    assert comparison.events == 3
    assert [difference.seq for difference in comparison.differences] == [3]
    store.close()


def test_a_replay_names_the_event_that_this_version_cannot_take(tmp_path: Path) -> None:
    store = journal(tmp_path / "j", ControllerStarted("1"), TimerDue(POISON))
    with pytest.raises(codec.UnreadableError, match=r"event 2 \(TimerDue\).*on purpose"):
        compare(store, FragileCore)
    store.close()


def test_a_rejection_of_more_events_than_a_batch_has_leaves_out_those_that_it_has(
    tmp_path: Path,
) -> None:
    batch = EventBatch((TimerDue("a"), TimerDue("b")))
    store = journal(tmp_path / "j", ControllerStarted("1"), batch)
    store.begin()
    store.reject(2, "ZeroDivisionError", [0, 2])
    store.commit()
    _, taken = Fold(FragileCore, store).replay()
    assert taken.event == EventBatch((TimerDue("b"),))
    store.close()
