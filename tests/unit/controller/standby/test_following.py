"""A standby's state is that of the journal, whatever comes to it in which pieces: with seeds."""

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.events import ControllerStarted, JournaledEvent, TimerDue
from everstep_controller.journal import codec
from everstep_controller.journal.lease import GONE_AFTER_OUTAGE_NS
from everstep_controller.journal.port import JournalWentBackError, StoredEvent, WriterSeen
from everstep_controller.runtime.clock import ControllerClock
from everstep_controller.runtime.fold import Fold
from everstep_controller.standby.following import (
    EVENTS_MAX,
    FollowedJournal,
    JournalNews,
    read_at_look,
    read_events,
)
from unit.controller.test_fold import POISON, FragileCore, journal

S = 1_000_000_000


def writer(head: int) -> WriterSeen:
    return WriterSeen(
        term=1, writer="process 7 on ctl-1", told="", head=head, still_s=0.0, is_gone=False
    )


def followed(fold: Fold, boot_ns: int = 0) -> FollowedJournal:
    clock = ControllerClock(0, 0, wall_ns=lambda: 0, boot_ns=lambda: boot_ns)
    return FollowedJournal(fold, clock, 0)


def stored(events: Sequence[JournaledEvent]) -> list[StoredEvent]:
    return [
        StoredEvent(seq, seq, codec.kind_of(event), codec.encode(event))
        for seq, event in enumerate(events, start=1)
    ]


@pytest.mark.parametrize("seed", range(20))
def test_in_whatever_pieces_it_comes_the_state_is_that_of_a_replay(
    tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    names = ["a", "b", POISON]
    events: list[JournaledEvent] = [
        ControllerStarted(str(i)) if rng.random() < 0.5 else TimerDue(rng.choice(names))
        for i in range(60)
    ]
    store = journal(tmp_path / "j", *events)
    fold = Fold(FragileCore, store)
    following = followed(fold)
    while following.read_through < len(events):
        through = min(len(events), following.read_through + rng.randint(1, 9))
        some = [one for one in store.events(following.read_through, through)]
        following.take(JournalNews(some, writer(len(events)) if rng.random() < 0.5 else None))
    replayed = Fold(FragileCore, store)
    list(replayed.replay())
    assert fold.state == replayed.state
    assert following.behind_events == 0
    store.close()


def test_what_the_writer_has_left_out_is_left_out_here_though_this_core_takes_it(
    tmp_path: Path,
) -> None:
    store = journal(tmp_path / "j", ControllerStarted("1"), ControllerStarted("2"))
    following = followed(Fold(Core, store))
    following.take(read_events(store, 0))
    assert following.fold.state.term == 2
    store.begin()
    store.reject(2, "the writer could not take it")
    store.commit()
    following.take(read_at_look(store, writer(2), following.read_through, 0))
    assert following.fold.state.term == 1
    # Told again, it changes nothing.
    following.take(read_at_look(store, writer(2), following.read_through, 0))
    assert following.fold.state.term == 1
    store.close()


def test_what_nobody_is_known_to_have_recorded_is_kept_for_the_takeover(tmp_path: Path) -> None:
    store = journal(tmp_path / "j", ControllerStarted("1"), ControllerStarted("2"))
    following = followed(Fold(Core, store))
    following.take(read_at_look(store, writer(2), 0, 0))
    assert [one.seq for one in following.unrecorded()] == [1, 2]
    store.begin()
    store.record(1, codec.encode_actions(following.unrecorded()[0].actions))
    store.commit()
    following.take(read_at_look(store, writer(2), 2, 0))
    assert [one.seq for one in following.unrecorded()] == [2]
    store.close()


def test_its_time_is_that_of_the_writer(tmp_path: Path) -> None:
    store = journal(tmp_path / "j", ControllerStarted("1"))
    following = followed(Fold(Core, store), boot_ns=5 * S)
    event = stored([ControllerStarted("1")])[0]
    following.take(JournalNews([StoredEvent(1, 100 * S, event.kind, event.body)]))
    assert following.clock.now_ns() == 100 * S
    # What comes late, as after a pause, turns nothing back.
    following.take(JournalNews(writer=writer(1), alive_ns=90 * S))
    assert following.clock.now_ns() == 100 * S
    store.close()


def test_a_long_backlog_is_read_in_parts_and_told_as_a_lag(tmp_path: Path) -> None:
    events = [ControllerStarted(str(i)) for i in range(EVENTS_MAX + 3)]
    store = journal(tmp_path / "j", *events)
    following = followed(Fold(Core, store))
    following.take(read_at_look(store, writer(len(events)), 0, 0))
    assert (following.is_behind, following.behind_events) == (True, 3)
    following.take(read_events(store, following.read_through))
    assert (following.is_behind, following.behind_events) == (False, 0)
    store.close()


def gone_back(path: Path, clock: list[int]) -> FollowedJournal:
    """Return what has followed three events, and then sees two; time is in ``clock``."""
    store = journal(path, *[ControllerStarted(str(i)) for i in range(3)])
    time = ControllerClock(0, 0, wall_ns=lambda: 0, boot_ns=lambda: clock[0])
    following = FollowedJournal(Fold(Core, store), time, 0)
    following.take(read_at_look(store, writer(3), 0, 0))
    store.close()
    following.take(JournalNews(writer=replace(writer(2), is_gone=True)))
    return following


def test_a_journal_that_has_gone_back_is_taken_over_by_nobody_and_given_up_later(
    tmp_path: Path,
) -> None:
    clock = [0]
    following = gone_back(tmp_path / "j", clock)
    clock[0] = GONE_AFTER_OUTAGE_NS - 1
    following.take(JournalNews(writer=replace(writer(2), is_gone=True)))
    assert following.writer is not None
    assert not following.writer.is_gone
    clock[0] += 1
    with pytest.raises(JournalWentBackError, match=r"back to event 2 of term 1.*up to event 3"):
        following.take(JournalNews(writer=writer(2)))


def test_a_writer_that_lives_gives_a_new_leader_what_it_lacked(tmp_path: Path) -> None:
    clock = [0]
    following = gone_back(tmp_path / "j", clock)
    following.take(JournalNews(writer=writer(3)))
    clock[0] = 2 * GONE_AFTER_OUTAGE_NS
    following.take(JournalNews(writer=replace(writer(2), term=2)))
    clock[0] += GONE_AFTER_OUTAGE_NS - 1
    following.take(JournalNews(writer=writer(3)))


def test_a_term_that_goes_back_is_as_bad(tmp_path: Path) -> None:
    clock = [0]
    following = gone_back(tmp_path / "j", clock)
    following.take(JournalNews(writer=replace(writer(4), term=0)))
    clock[0] = GONE_AFTER_OUTAGE_NS
    with pytest.raises(JournalWentBackError, match="of term 0"):
        following.take(JournalNews(writer=replace(writer(4), term=0)))
