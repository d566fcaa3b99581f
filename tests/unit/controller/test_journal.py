import asyncio
import os
import shutil
import sqlite3
import stat
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from everstep_controller.core.actions import About, Action, Announce, SetTimer, Topic
from everstep_controller.core.events import ControllerStarted, SettingsApplied, TimerDue
from everstep_controller.core.model.node import NodeRecord
from everstep_controller.core.model.settings import Settings
from everstep_controller.core.model.state import State
from everstep_controller.journal import codec
from everstep_controller.journal.group_commit import GroupCommit, JournalEntry, JournalFull
from everstep_controller.journal.port import (
    Announcement,
    JournalLockedError,
    JournalWriteError,
    Mark,
    StoredEvent,
    StoredSnapshot,
)
from everstep_controller.journal.sqlite.compaction import compact, prune_snapshots
from everstep_controller.journal.sqlite.journal import JournalLock, SqliteJournal
from everstep_controller.journal.sqlite.schema import SchemaError


def event(seq: int, now_ns: int = 0) -> StoredEvent:
    started = ControllerStarted(str(seq))
    return StoredEvent(seq, now_ns, codec.kind_of(started), codec.encode(started))


def filled(path: Path, count: int) -> SqliteJournal:
    store = SqliteJournal(path)
    store.begin()
    store.append([event(seq, seq) for seq in range(1, count + 1)], [Mark("n", "box", count)])
    store.commit()
    return store


def test_the_journal_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    SqliteJournal(tmp_path / "j").close()
    assert stat.S_IMODE((tmp_path / "j").stat().st_mode) == 0o600


def test_what_was_committed_is_there_after_opening_again(tmp_path: Path) -> None:
    filled(tmp_path / "j", 3).close()
    store = SqliteJournal(tmp_path / "j", read_only=True)
    assert [codec.decode_event(e.kind, e.body) for e in store.events(1)] == [
        ControllerStarted("2"),
        ControllerStarted("3"),
    ]
    assert store.last() == (3, 3)
    assert store.marks() == {"box": 3}
    store.close()


def test_a_journal_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    SqliteJournal(tmp_path / "j").close()
    with sqlite3.connect(tmp_path / "j") as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(SchemaError, match="newer controller"):
        SqliteJournal(tmp_path / "j")


def test_a_journal_of_a_version_before_the_first_format_is_refused(tmp_path: Path) -> None:
    SqliteJournal(tmp_path / "j").close()
    with sqlite3.connect(tmp_path / "j") as db:
        db.execute("PRAGMA user_version = 1")
    db.close()
    with pytest.raises(SchemaError, match="everstep-controller recover"):
        SqliteJournal(tmp_path / "j")


def test_a_second_controller_is_refused_with_a_sentence(tmp_path: Path) -> None:
    refused = pytest.raises(JournalLockedError, match=f"process {os.getpid()}")
    with JournalLock(tmp_path / "j"), refused, JournalLock(tmp_path / "j"):
        pass
    with JournalLock(tmp_path / "j"):
        pass


def test_a_lock_that_leaves_none_keeps_others_out_and_takes_its_file_away(tmp_path: Path) -> None:
    file = tmp_path / "j.lock"
    with JournalLock(tmp_path / "j", leaves_none=True):
        assert file.exists()
        refused = pytest.raises(JournalLockedError, match="another controller")
        with refused, JournalLock(tmp_path / "j"):
            pass
    assert not file.exists()
    with JournalLock(tmp_path / "j"):
        pass
    assert file.exists()


def test_events_actions_and_state_come_back_as_they_were() -> None:
    applied = SettingsApplied(Settings(advise=("XidFatal",)), ("slurm",))
    assert codec.decode_event("SettingsApplied", codec.encode(applied)) == applied
    decided: list[Action] = [
        SetTimer(id="t", timer="x", at_ns=5),
        Announce(id="a", subject="s", reason="r", message="m"),
    ]
    assert codec.decode_actions(codec.encode_actions(decided)) == decided
    state = State(term=3, nodes={"n": NodeRecord("n")})
    assert codec.decode_state(codec.encode(state)) == state


@pytest.mark.parametrize(("kind", "body"), [("Nonsense", b"{}"), ("TimerDue", b"[1]")])
def test_what_cannot_be_read_is_one_kind_of_error(kind: str, body: bytes) -> None:
    with pytest.raises(codec.UnreadableError):
        codec.decode_event(kind, body)


def test_retention_keeps_what_snapshots_do_not_stand_for(tmp_path: Path) -> None:
    store = filled(tmp_path / "j", 10)
    store.begin()
    for seq in (3, 6, 8):
        store.save_snapshot(StoredSnapshot(seq, seq, "0", codec.encode(State(term=seq))))
    store.announce([Announcement(n, n, n, "s", "r", "m") for n in range(1, 11)])
    compact(store, events_before_ns=9, announcements_before_ns=5)
    store.commit()
    assert [e.seq for e in store.events(0)] == [7, 8, 9, 10]
    oldest = store.oldest_snapshot()
    assert oldest is not None
    assert oldest.seq == 6
    assert [line.id for line in store.announcements("", 100)] == [5, 6, 7, 8, 9, 10]
    store.close()


def test_lines_are_read_on_from_a_number_with_what_programs_are_told(tmp_path: Path) -> None:
    store = filled(tmp_path / "j", 1)
    assert (store.first_announcement(), store.announcements_after(0, 10)) == (0, [])
    told = codec.encode_about(About(topic=Topic.FINDING_RAISED, condition="XidFatal"))
    store.begin()
    lines = [Announcement(n, n, n, "s", "r", "m", told if n % 2 else b"") for n in range(1, 8)]
    store.announce(lines)
    store.commit()
    assert store.announcements_after(2, 3) == lines[2:5]
    assert store.announcements_after(7, 3) == []
    assert codec.decode_about(store.announcements_after(0, 1)[0].about) == About(
        topic=Topic.FINDING_RAISED, condition="XidFatal"
    )
    store.begin()
    store.execute("UPDATE about SET about = x'7b7d' WHERE id = 3")
    compact(store, events_before_ns=0, announcements_before_ns=3)
    store.commit()
    assert store.first_announcement() == 3
    assert store.announcements_after(0, 1) == [replace(lines[2], about=b"")], "it is damaged"
    assert [row[0] for row in store.query("SELECT id FROM about ORDER BY id")] == [3, 5, 7]
    store.close()


def test_of_all_snapshots_two_are_kept_for_a_start_and_three_for_a_replay(tmp_path: Path) -> None:
    hour_ns, store = 3600 * 10**9, filled(tmp_path / "j", 1)
    week = 24 * 7
    store.begin()
    for hour in range(1, 6 * week):
        store.save_snapshot(StoredSnapshot(hour, hour * hour_ns, "0", b"state"))
        prune_snapshots(store, events_before_ns=(hour - week) * hour_ns)
        kept = [one.seq for one in iter_snapshots(store)]
        assert kept[:2] == [hour, hour - 1][: len(kept)]
        assert len(kept) <= 2 + 3
        # Of the last week all can be replayed, and events that are half a week older go.
        assert max(1, hour - week * 3 // 2) <= kept[-1] <= max(1, hour - week)
    store.commit()
    store.close()


def iter_snapshots(store: SqliteJournal) -> Iterator[StoredSnapshot]:
    """Yield all snapshots that are kept, newest first."""
    one = store.snapshot()
    while one is not None:
        yield one
        one = store.snapshot(one.seq - 1)


def test_a_snapshot_whose_bytes_are_damaged_is_one_that_cannot_be_read(tmp_path: Path) -> None:
    store = filled(tmp_path / "j", 1)
    store.begin()
    store.save_snapshot(StoredSnapshot(1, 1, "0", codec.encode(State(term=7))))
    store.execute("UPDATE snapshot SET state = x'0102'")
    store.commit()
    damaged = store.snapshot()
    assert damaged is not None
    with pytest.raises(codec.UnreadableError):
        codec.decode_state(damaged.state)
    store.close()


@dataclass
class User:
    """Notes what the journal's thread answers."""

    done: list[int] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    writable: asyncio.Event = field(default_factory=asyncio.Event)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def journaled(self, entries: Sequence[JournalEntry]) -> None:
        self.done += [entry.seq for entry in entries]
        self.changed.set()

    def not_journaled(self, entries: Sequence[JournalEntry], error: JournalFull) -> None:
        self.refused += [entry.kind for entry in entries]
        self.changed.set()

    def journal_writable(self) -> None:
        self.writable.set()


def entry(size: int = 10) -> JournalEntry:
    timer = TimerDue("x" * size)
    return JournalEntry(1, codec.kind_of(timer), codec.encode(timer))


def test_a_thousand_entries_are_journaled_in_order(tmp_path: Path) -> None:
    async def scenario() -> list[int]:
        user = User()
        journal = GroupCommit(lambda: SqliteJournal(tmp_path / "j"), user)
        journal.start(0)
        for _ in range(1000):
            journal.append(entry())
        await journal.stop()
        await asyncio.sleep(0)
        return user.done

    assert asyncio.run(scenario()) == list(range(1, 1001))


class HastyLoop(asyncio.SelectorEventLoop):
    """A loop on whose clock a second passes with each look."""

    now_s = 0.0

    def time(self) -> float:
        self.now_s += 1.0
        return self.now_s


def test_others_have_their_turn_while_many_entries_are_handed_over(tmp_path: Path) -> None:
    seen: list[int] = []

    class Sharing(User):
        def journaled(self, entries: Sequence[JournalEntry]) -> None:
            super().journaled(entries)
            if not seen:
                asyncio.get_running_loop().call_soon(lambda: seen.append(len(self.done)))

    async def scenario() -> list[int]:
        user = Sharing()
        journal = GroupCommit(lambda: SqliteJournal(tmp_path / "j"), user)
        for _ in range(1000):
            journal.append(entry())
        journal.start(0)
        while not seen:  # noqa: ASYNC110  turns of the loop are what it waits for
            await asyncio.sleep(0)
        await journal.stop()
        return user.done

    with asyncio.Runner(loop_factory=HastyLoop) as runner:
        assert runner.run(scenario()) == list(range(1, 1001))
    assert 0 < seen[0] < 100


def test_a_thread_that_dies_of_an_entry_says_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        journal = GroupCommit(lambda: SqliteJournal(tmp_path / "j"), User())
        journal.start(0)
        poisoned = entry()
        poisoned.marks = (Mark("node-1", "outbox", 2**63),)
        journal.append(poisoned)
        await asyncio.wait_for(journal.failure, 20)

    with pytest.raises(OverflowError):
        asyncio.run(scenario())


def test_entries_that_could_not_be_carried_out_are_no_secret(tmp_path: Path) -> None:
    class Clumsy(User):
        def journaled(self, entries: Sequence[JournalEntry]) -> None:
            raise ZeroDivisionError("on purpose")

    async def scenario() -> None:
        journal = GroupCommit(lambda: SqliteJournal(tmp_path / "j"), Clumsy())
        journal.start(0)
        journal.append(entry())
        try:
            await asyncio.wait_for(journal.failure, 20)
        finally:
            await journal.stop()

    with pytest.raises(ZeroDivisionError):
        asyncio.run(scenario())


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("mounting a small tmpfs needs root")
    folder = tmp_path / "tiny"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], check=False
    )
    if mounted.returncode:
        pytest.skip("the sandbox denies: mounting a small tmpfs")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_refuses_new_entries_and_loses_none_that_were_taken(tiny_disk: Path) -> None:
    async def scenario() -> tuple[User, list[StoredEvent]]:
        user, path = User(), tiny_disk / "j"
        journal = GroupCommit(lambda: SqliteJournal(path), user)
        SqliteJournal(path).close()
        journal.start(0)
        ballast = tiny_disk / "ballast"
        ballast.write_bytes(b"x" * 400_000)
        while not user.refused:
            user.changed.clear()
            journal.append(entry(20_000))
            await user.changed.wait()
        with pytest.raises(JournalFull):
            journal.append(entry())
        assert journal.full is not None
        ballast.unlink()
        await asyncio.wait_for(user.writable.wait(), 20)
        journal.append(entry())
        await journal.stop()
        await asyncio.sleep(0)
        store = SqliteJournal(path)
        events = list(store.events(0))
        store.close()
        return user, events

    user, events = asyncio.run(scenario())
    assert [e.seq for e in events] == user.done == list(range(1, len(user.done) + 1))
    assert len(user.done) > 3


def test_what_a_transaction_wrote_that_failed_is_forgotten_and_told_by_the_port(
    tmp_path: Path,
) -> None:
    with closing(SqliteJournal(tmp_path / "journal")) as store:

        def write(error: Exception) -> None:
            with store.transaction():
                store.set_fact("kept", b"never")
                raise error

        with pytest.raises(JournalWriteError, match="database or disk is full"):
            write(sqlite3.OperationalError("database or disk is full"))
        with pytest.raises(ZeroDivisionError):
            write(ZeroDivisionError())
        with store.transaction():
            store.set_fact("another", b"kept")
        assert (store.fact("kept"), store.fact("another")) == (None, b"kept")
