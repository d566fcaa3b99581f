"""The slot table: every pair of state and event, and random lives of a rank."""

import itertools
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everstep_agent.vault.snapshots.copies import CopyKey, Recoverable
from everstep_agent.vault.snapshots.manifest import entries_problem, extent_bytes
from everstep_agent.vault.snapshots.slots import (
    TRANSITIONS,
    Grant,
    SlotEvent,
    SlotState,
    SlotTable,
    SnapshotSlot,
    told_as_passed,
)
from everstep_common.rank_messages import Commit, Entry

_ENTRIES = (Entry("w", 0, 10),)


def _table(slots: int = 3, generation: int = 1) -> SlotTable:
    return SlotTable(
        generation,
        0,
        100,
        [SnapshotSlot(index) for index in range(slots)],
        itertools.count(1).__next__,
    )


def _save(table: SlotTable, step: int, recoverable: Recoverable) -> SnapshotSlot | None:
    grant = table.begin_step(step, recoverable)
    if grant is None:
        return None
    slot = table.commit(Commit(step, grant.slot, grant.epoch, _ENTRIES))
    assert isinstance(slot, SnapshotSlot)
    table.mark_verified(slot, slot.epoch, b"h")
    return slot


@pytest.mark.parametrize("state", SlotState)
@pytest.mark.parametrize("event", SlotEvent)
def test_a_pair_that_is_not_in_the_table_changes_nothing(
    state: SlotState, event: SlotEvent
) -> None:
    slot = SnapshotSlot(0, state)
    applied = slot.apply(event)
    assert applied == ((state, event) in TRANSITIONS)
    assert slot.state is TRANSITIONS.get((state, event), state)


def test_no_event_leads_from_writing_to_verified_without_a_commit() -> None:
    assert {to for (state, _), to in TRANSITIONS.items() if state is SlotState.WRITING} == {
        SlotState.EMPTY,
        SlotState.COMMITTED,
    }


def test_a_slot_is_free_again_only_when_a_newer_step_is_recoverable() -> None:
    table = _table()
    for step in range(3):
        assert _save(table, step, Recoverable(1))
    assert table.begin_step(3, Recoverable(1)) is None
    assert table.begin_step(3, Recoverable(1, 0)) is None
    assert table.begin_step(3, Recoverable(1, 1)) is not None
    assert sorted(slot.step for slot in table.slots) == [1, 2, 3]


def test_a_pinned_slot_is_not_given_out() -> None:
    table = _table()
    for step in range(3):
        _save(table, step, Recoverable(1))
    table.slots[0].pins = 1
    assert table.begin_step(3, Recoverable(1, 1)) is None
    table.slots[0].pins = 0
    assert table.begin_step(3, Recoverable(1, 1)) is not None


def test_beginning_again_takes_the_first_begin_back() -> None:
    table = _table()
    first = table.begin_step(0, Recoverable())
    second = table.begin_step(1, Recoverable())
    assert first is not None
    assert second is not None
    assert isinstance(table.commit(Commit(0, first.slot, first.epoch, _ENTRIES)), str)
    assert isinstance(table.commit(Commit(1, second.slot, second.epoch, _ENTRIES)), SnapshotSlot)


def test_a_late_hash_of_an_earlier_epoch_verifies_nothing() -> None:
    table = _table()
    grant = table.begin_step(0, Recoverable())
    assert grant is not None
    slot = table.commit(Commit(0, grant.slot, grant.epoch, _ENTRIES))
    assert isinstance(slot, SnapshotSlot)
    assert not table.mark_verified(slot, grant.epoch - 1, b"old")
    assert slot.state is SlotState.COMMITTED


def test_an_older_generation_is_needed_until_the_new_one_has_a_recoverable_step() -> None:
    old = CopyKey(1, 0, 99)
    assert not Recoverable(1, 5).frees(old)
    assert not Recoverable(2, None, frozenset({99})).frees(old)
    assert Recoverable(2, 0).frees(old)
    assert not Recoverable(1, 5).frees(CopyKey(2, 0, 1))


def test_a_dead_step_is_freed_and_the_recoverable_one_is_not() -> None:
    recoverable = Recoverable(1, 5, frozenset({7}))
    assert [step for step in range(9) if recoverable.frees(CopyKey(1, 0, step))] == [
        *range(5),
        7,
    ]


def test_a_step_that_was_left_out_is_told_until_there_is_a_newer_copy() -> None:
    table, recoverable = _table(2), Recoverable(1, 5)
    assert _save(table, 5, recoverable)
    assert _save(table, 6, recoverable)
    assert told_as_passed(table.left_out, table.slots) is None
    assert table.begin_step(7, recoverable) is None
    assert table.leave_out(7)
    assert not table.leave_out(7)
    assert told_as_passed(table.left_out, table.slots) == 7
    assert _save(table, 8, Recoverable(1, 5, frozenset({6})))
    assert told_as_passed(table.left_out, table.slots) is None


def test_what_is_told_as_passed_stays_below_a_copy_that_nobody_has_heard_of_yet() -> None:
    table, recoverable = _table(2), Recoverable(1)
    assert _save(table, 5, recoverable)
    grant = table.begin_step(6, recoverable)
    assert grant is not None
    slot = table.commit(Commit(6, grant.slot, grant.epoch, _ENTRIES))
    assert isinstance(slot, SnapshotSlot)
    table.leave_out(7)
    assert told_as_passed(table.left_out, table.slots) is None
    table.mark_verified(slot, slot.epoch, b"h")
    assert told_as_passed(table.left_out, table.slots) == 7


def test_a_step_that_is_begun_twice_is_not_left_out_and_may_come_again_if_its_copy_was_bad() -> (
    None
):
    table, recoverable = _table(2), Recoverable(1)
    slot = _save(table, 5, recoverable)
    assert slot is not None
    assert not table.leave_out(5)
    assert (table.left_out, table.is_too_late(5)) == (-1, False)
    slot.apply(SlotEvent.FOUND_BAD)
    assert not table.is_too_late(5)
    assert _save(table, 5, recoverable)


def test_slots_that_an_agent_finds_say_what_was_committed_before_it() -> None:
    found = [SnapshotSlot(0, SlotState.VERIFIED, step=4), SnapshotSlot(1, SlotState.EMPTY, step=9)]
    assert SlotTable(1, 0, 100, found, itertools.count(1).__next__).passed == 4


@dataclass
class _Life:
    """What a random life of one rank has seen, beside the table's own word."""

    table: SlotTable = field(default_factory=_table)
    recoverable: Recoverable = field(default_factory=lambda: Recoverable(1))
    open: Grant | None = None
    step: int = -1
    needed: set[int] = field(default_factory=set)

    def act(self, action: str) -> None:
        if action == "begin":
            self.step += 1
            self.open = self.table.begin_step(self.step, self.recoverable)
        elif action == "commit" and self.open is not None:
            commit = Commit(self.step, self.open.slot, self.open.epoch, _ENTRIES)
            assert isinstance(self.table.commit(commit), SnapshotSlot)
            self.needed.add(self.step)
            self.open = None
        elif action == "lose connection":
            self.table.abandon()
            self.open = None
        elif action == "hash":
            for slot in self.table.slots:
                self.table.mark_verified(slot, slot.epoch, b"h")
        elif action == "recover" and self.needed:
            step = max(self.needed)
            self.recoverable = Recoverable(1, step)
            self.needed = {kept for kept in self.needed if kept >= step}
        elif action == "pin":
            self.table.slots[self.step % 3].pins ^= 1


_ACTIONS = ("begin", "commit", "lose connection", "hash", "recover", "pin")


@settings(deadline=None)
@given(st.lists(st.sampled_from(_ACTIONS), max_size=80))
def test_no_committed_step_that_the_job_needs_is_ever_overwritten(actions: list[str]) -> None:
    life = _Life()
    epochs: set[int] = set()
    for action in actions:
        pinned = {slot.index: slot.epoch for slot in life.table.slots if slot.pins}
        life.act(action)
        held = {
            slot.step
            for slot in life.table.slots
            if slot.state in (SlotState.COMMITTED, SlotState.VERIFIED)
        }
        assert life.needed <= held
        assert sum(slot.state is SlotState.WRITING for slot in life.table.slots) <= 1
        for index, epoch in pinned.items():
            assert life.table.slots[index].epoch == epoch
        if action == "begin" and life.open is not None:
            assert life.open.epoch not in epochs
            epochs.add(life.open.epoch)


@given(
    st.lists(
        st.builds(
            Entry,
            st.sampled_from("abcd"),
            st.integers(-5, 50),
            st.integers(-5, 50),
        ),
        max_size=4,
    )
)
def test_an_accepted_manifest_lies_inside_its_memory_without_overlap(entries: list[Entry]) -> None:
    manifest = tuple(entries)
    if entries_problem(manifest, 60) is not None:
        return
    covered: list[int] = []
    for entry in manifest:
        covered += range(entry.offset_bytes, entry.offset_bytes + entry.size_bytes)
    assert len(set(covered)) == len(covered)
    assert all(0 <= at < 60 for at in covered)
    assert extent_bytes(manifest) <= 60
