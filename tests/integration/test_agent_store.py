"""The store: real SQLite, a disk that is full or dead, a file that is no database."""

import contextlib
import sqlite3
from pathlib import Path

import pytest

from everstep_agent.persistence.agent_database import (
    RESERVATION,
    PendingChanges,
    load,
    open_or_replace,
    write,
)
from everstep_agent.persistence.data_folder import FolderInUseError, only_agent_of, open_store
from everstep_agent.persistence.disk_store import DiskStore, StoreError
from everstep_common.clock import boot_ns
from fakes.waits import wait_until

# Generous: on a busy machine a commit may take seconds.
_PATIENCE_S = 30.0


def _store(path: Path, deadline_ns: int = 10**9) -> DiskStore:
    return DiskStore(path, boot_ns, deadline_ns)


def test_what_was_put_is_there_after_a_restart_and_what_was_acknowledged_is_not(
    tmp_path: Path,
) -> None:
    path = tmp_path / "agent.sqlite"
    store = _store(path)
    first = store.load(_PATIENCE_S)
    for sequence in (1, 2, 3):
        store.put_record(sequence, b"record %d" % sequence)
    store.acknowledge(1, 1)
    store.note("findings", "[]")
    store.close(_PATIENCE_S)
    again = _store(path)
    remembered = again.load(_PATIENCE_S)
    again.close(_PATIENCE_S)
    assert remembered.records == (b"record 2", b"record 3")
    assert remembered.notes["findings"] == "[]"
    assert remembered.acknowledged == 1
    assert remembered.outbox == first.outbox
    assert remembered.reserved_through == first.reserved_through + RESERVATION


def test_a_record_is_on_disk_without_anybody_waiting_for_it(tmp_path: Path) -> None:
    path = tmp_path / "agent.sqlite"
    store = _store(path)
    store.load(_PATIENCE_S)
    store.put_record(1, b"x")

    def written() -> bool:
        connection = sqlite3.connect(path)
        try:
            return bool(connection.execute("SELECT count(*) FROM record").fetchone()[0])
        finally:
            connection.close()

    wait_until(written)
    store.close(_PATIENCE_S)


def test_a_locked_disk_is_said_and_written_to_when_it_is_free_again(tmp_path: Path) -> None:
    path = tmp_path / "agent.sqlite"
    store = _store(path)
    store.load(_PATIENCE_S)
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    store.put_record(1, b"x")
    wait_until(store.trouble)
    store.put_record(2, b"y")
    blocker.execute("ROLLBACK")
    blocker.close()
    wait_until(lambda: not store.trouble())
    store.close(_PATIENCE_S)
    again = _store(path)
    assert again.load(_PATIENCE_S).records == (b"x", b"y")
    again.close(_PATIENCE_S)


def test_a_full_disk_keeps_what_was_written_and_takes_all_of_a_write_or_nothing(
    tmp_path: Path,
) -> None:
    connection = open_or_replace(tmp_path / "agent.sqlite")
    write(connection, PendingChanges(records={1: b"before"}))
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(sqlite3.OperationalError, match="full"):
        write(connection, PendingChanges(records={2: b"y" * 100_000}, notes={"key": "value"}))
    remembered = load(connection)
    assert remembered.records == (b"before",)
    assert "key" not in remembered.notes
    connection.close()


def test_a_file_that_is_no_database_is_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "agent.sqlite"
    path.write_bytes(b"not a database, but long enough to be looked at as one" * 100)
    store = _store(path)
    assert store.load(_PATIENCE_S).records == ()
    store.close(_PATIENCE_S)
    assert path.with_suffix(".damaged").exists()


def test_nobody_else_may_read_what_was_remembered(tmp_path: Path) -> None:
    path = tmp_path / "agent.sqlite"
    path.touch(mode=0o644)  # as an older agent made it
    for _ in range(2):
        with contextlib.closing(open_or_replace(path)) as connection:
            load(connection)
            modes = {one.name: one.stat().st_mode & 0o777 for one in tmp_path.iterdir()}
        assert modes == dict.fromkeys(
            ("agent.sqlite", "agent.sqlite-wal", "agent.sqlite-shm"), 0o600
        )
        path.unlink()  # and as it is made now


def test_an_agent_without_a_usable_folder_runs_from_memory_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError):
        _store(tmp_path / "file" / "agent.sqlite").load(_PATIENCE_S)
    store, remembered = open_store(tmp_path / "file", 1.0)
    assert remembered.records == ()
    store.put_record(1, b"x")
    assert "restart the agent" in store.trouble()


def test_two_agents_never_share_a_folder(tmp_path: Path) -> None:
    with (
        only_agent_of(tmp_path),
        pytest.raises(FolderInUseError, match="another agent"),
        only_agent_of(tmp_path),
    ):
        pass
    with only_agent_of(tmp_path):
        pass
