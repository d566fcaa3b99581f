"""Journals of which bits or rows are not as they were written."""

import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from everstep_controller.journal.port import (
    Announcement,
    DamagedJournalError,
    Mark,
    StoredEvent,
    StoredSnapshot,
)
from everstep_controller.journal.sqlite.compaction import compact
from everstep_controller.journal.sqlite.damage import ForeignLogError, verify_log
from everstep_controller.journal.sqlite.journal import SqliteJournal
from everstep_controller.journal.sqlite.schema import MIGRATIONS

_EVENTS = [StoredEvent(seq, 10 * seq, "TimerDue", b'{"timer": "t"}') for seq in range(1, 41)]


def _written(path: Path) -> None:
    with closing(SqliteJournal(path)) as store:
        for begin in range(0, 40, 5):
            events = _EVENTS[begin : begin + 5]
            store.begin()
            store.append(events, [Mark("n1", "box", one.seq) for one in events])
            store.announce(Announcement(one.seq, 1, 0, "n1", "Told", "a line") for one in events)
            store.commit()
        store.set_fact("secret", b"of transfers")
        store.reject(7, "it cannot be taken")


def _change(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as db:
        assert db.execute(statement).rowcount == 1
        db.commit()


def _read(path: Path) -> None:
    with closing(SqliteJournal(path)) as store:
        store.verify()
        assert list(store.events(0)) == _EVENTS
        assert store.marks() == {"box": 40}
        assert store.fact("secret") == b"of transfers"
        assert store.rejections() == {7: None}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("UPDATE event SET body = x'78' WHERE seq = 20", "event 20"),
        ("UPDATE event SET now_ns = 201 WHERE seq = 20", "event 20"),
        ("UPDATE event SET kind = 'TimerDuf' WHERE seq = 20", "event 20"),
        ("UPDATE event SET link = NULL WHERE seq = 20", "event 20"),
        ("UPDATE event SET seq = 99 WHERE seq = 20", "event 21"),
        ("DELETE FROM event WHERE seq = 20", "event 21"),
        ("DELETE FROM event WHERE seq = 1", "event 2"),
        ("DELETE FROM event WHERE seq = 40", "events 40 to 40 are missing"),
        ("INSERT INTO event VALUES (41, 410, 'TimerDue', x'00', x'00')", "event 41"),
        ("UPDATE head SET seq = 39", "where its events end"),
        ("DELETE FROM head", "where its events end"),
        ("UPDATE mark SET sequence = 41", "mark"),
        ("UPDATE fact SET value = x'00' WHERE name = 'secret'", "fact"),
        ("UPDATE rejection SET alone = '1'", "rejection"),
    ],
)
def test_a_row_that_is_not_as_it_was_written_is_named(
    tmp_path: Path, change: str, named: str
) -> None:
    path = tmp_path / "j"
    _written(path)
    _read(path)
    _change(path, change)
    with pytest.raises(DamagedJournalError, match=named):
        _read(path)


@pytest.mark.parametrize("change", ["message = 'b line'", "at_ns = -1"])
def test_a_line_of_the_event_list_that_is_damaged_says_so(tmp_path: Path, change: str) -> None:
    path = tmp_path / "j"
    _written(path)
    _change(path, f"UPDATE announcement SET {change} WHERE id = 20")
    with closing(SqliteJournal(path)) as store:
        told = {line.id: line.reason for line in store.announcements("", 100)}
        assert told == {seq: "LineDamaged" if seq == 20 else "Told" for seq in range(1, 41)}
        with pytest.raises(DamagedJournalError, match="announcement"):
            store.verify(whole=True)


def test_a_snapshot_that_is_damaged_has_no_state(tmp_path: Path) -> None:
    path = tmp_path / "j"
    _written(path)
    with closing(SqliteJournal(path)) as store:
        store.save_snapshot(StoredSnapshot(40, 400, "0", b"state"))
    _change(path, "UPDATE snapshot SET seq = 39")
    with closing(SqliteJournal(path)) as store:
        snapshot = store.snapshot()
        assert snapshot is not None
        assert snapshot.state == b""


def test_what_is_left_after_old_events_were_deleted_is_verified(tmp_path: Path) -> None:
    path = tmp_path / "j"
    _written(path)
    with closing(SqliteJournal(path)) as store:
        store.save_snapshot(StoredSnapshot(30, 300, "0", b"state"))
        assert compact(store, events_before_ns=205, announcements_before_ns=0) == 20
        assert list(store.events(0)) == _EVENTS[20:]
        assert list(store.events(30)) == _EVENTS[30:]
        assert list(store.events(30, 35)) == _EVENTS[30:35]
        store.verify(whole=True)
    _change(path, "DELETE FROM event WHERE seq = 21")
    with (
        closing(SqliteJournal(path)) as store,
        pytest.raises(DamagedJournalError, match="event 22"),
    ):
        list(store.events(0))


# --- a file of the version before -----------------------------------------------------------------


def _of_before(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.executescript("".join(MIGRATIONS[:2]) + "PRAGMA user_version = 3;")
        rows = [(one.seq, one.now_ns, one.kind, one.body) for one in _EVENTS]
        db.executemany("INSERT INTO event VALUES (?, ?, ?, ?)", rows)
        db.execute("INSERT INTO mark VALUES ('box', 'n1', 40)")
        db.execute("INSERT INTO fact VALUES ('secret', CAST('of transfers' AS BLOB))")
        db.execute("INSERT INTO rejection VALUES (7, 'it cannot be taken', NULL)")
        db.commit()


def test_a_journal_without_checksums_is_read_and_goes_on_with_them(tmp_path: Path) -> None:
    path = tmp_path / "j"
    _of_before(path)
    _read(path)
    more = [StoredEvent(seq, 10 * seq, "TimerDue", b"{}") for seq in range(41, 61)]
    with closing(SqliteJournal(path)) as store:
        store.append(more, ())
        assert list(store.events(0)) == [*_EVENTS, *more]
        store.verify(whole=True)
    _change(path, "UPDATE event SET body = x'00' WHERE seq = 50")
    with (
        closing(SqliteJournal(path)) as store,
        pytest.raises(DamagedJournalError, match="event 50"),
    ):
        list(store.events(0))


def test_a_journal_without_checksums_is_replayed_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "j"
    _of_before(path)
    before = path.read_bytes()
    with closing(SqliteJournal(path, read_only=True)) as store:
        assert list(store.events(0)) == _EVENTS
        assert store.rejections() == {7: None}
        assert store.decisions(0) == {}
        assert store.snapshot() is None
    assert path.read_bytes() == before


# --- the write-ahead log --------------------------------------------------------------------------


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """Return the journal of a controller that was killed: its file, and its log."""
    path = tmp_path / "lives"
    with closing(SqliteJournal(path)):  # the log is removed by who closes the journal last
        _written(path)
        for end in ("", "-wal"):
            shutil.copy(f"{path}{end}", tmp_path / f"killed{end}")
    return tmp_path / "killed"


def _flip(path: Path, bit: int) -> None:
    changed = bytearray(path.read_bytes())
    changed[bit // 8] ^= 1 << bit % 8
    path.write_bytes(changed)


def test_a_log_that_was_left_whole_is_taken(killed: Path) -> None:
    verify_log(killed)
    _read(killed)


def test_a_bit_in_the_middle_of_the_log_does_not_cost_what_was_committed_behind_it(
    killed: Path,
) -> None:
    log = killed.with_name("killed-wal")
    whole, rng = log.read_bytes(), random.Random(1)
    for _ in range(100):
        log.write_bytes(whole)
        _flip(log, rng.randrange(8 * len(whole) // 2))
        with pytest.raises(DamagedJournalError, match="write-ahead log"):
            verify_log(killed)


@pytest.mark.parametrize("lost", [1, 100, 4120, 5000])
def test_a_log_whose_last_transaction_a_crash_has_torn_is_taken(killed: Path, lost: int) -> None:
    log = killed.with_name("killed-wal")
    log.write_bytes(log.read_bytes()[:-lost])
    verify_log(killed)
    with closing(SqliteJournal(killed)) as store:
        store.verify()
        list(store.events(0))


def test_a_log_without_a_header_was_never_begun(killed: Path) -> None:
    log = killed.with_name("killed-wal")
    log.write_bytes(bytes(4096))
    verify_log(killed)


def test_a_backup_that_is_put_beside_the_log_of_an_older_journal_is_not_opened(
    killed: Path, tmp_path: Path
) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    with closing(SqliteJournal(source)):
        _written(source)
        with closing(sqlite3.connect(source)) as told, closing(sqlite3.connect(copy)) as backup:
            told.backup(backup)
            backup.execute("PRAGMA journal_mode = DELETE")
    verify_log(copy)
    shutil.copy(f"{killed}-wal", f"{copy}-wal")
    before = copy.read_bytes()
    with pytest.raises(ForeignLogError, match=f"Remove the log: rm {copy}-wal"):
        verify_log(copy)
    assert copy.read_bytes() == before
    Path(f"{copy}-wal").unlink()
    # A controller that begins on a copy is killed: its own log is no other database's.
    with closing(SqliteJournal(copy)) as store:
        store.verify(whole=True)
        store.set_fact("name", b"value")
        verify_log(copy)


def test_a_copy_that_is_put_beside_the_log_of_a_newer_journal_is_noticed(tmp_path: Path) -> None:
    path, copy = tmp_path / "j", tmp_path / "copy"
    more = [StoredEvent(seq, 10 * seq, "TimerDue", bytes(2000)) for seq in range(41, 91)]
    _written(path)
    shutil.copy(path, copy)
    with closing(SqliteJournal(path)) as store:
        store.append(more[:40], ())
        list(store.query("PRAGMA wal_checkpoint(TRUNCATE)"))
        store.append(more[40:], ())
        shutil.copy(f"{path}-wal", tmp_path / "copy-wal")
    verify_log(copy)
    with closing(SqliteJournal(copy)) as store, pytest.raises((DamagedJournalError, sqlite3.Error)):
        store.verify(whole=True)
