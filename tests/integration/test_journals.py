"""One suite for both journals: what the port promises, of a file and of a real PostgreSQL."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from everstep_controller.core.actions import About, Topic
from everstep_controller.core.model.state import State
from everstep_controller.journal import codec
from everstep_controller.journal.copy import copy_journal
from everstep_controller.journal.port import (
    DAY_NS,
    Announcement,
    DamagedJournalError,
    HistoryKind,
    HistoryRange,
    HistoryRow,
    JournalLockedError,
    JournalRefusedError,
    JournalWriter,
    Mark,
    StoredSnapshot,
)
from everstep_controller.journal.sqlite.journal import SqliteBackend
from fakes.postgres_server import PostgresServer, postgres_server
from integration.journals import (
    JournalPlace,
    event,
    long_event,
    postgres_place,
    sqlite_place,
)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> JournalPlace:
    if request.param == "sqlite":
        return sqlite_place(tmp_path)
    return postgres_place(request.getfixturevalue("server"))


def fill(store: JournalWriter, count: int, node: str = "n") -> None:
    with store.transaction():
        store.append([event(seq) for seq in range(1, count + 1)], [Mark(node, "box", count)])


def test_what_was_committed_is_there_after_opening_again(place: JournalPlace) -> None:
    told = [event(1), long_event(2), event(3)]
    with place.writer() as store, store.transaction():
        store.append(told[:1], [])
        store.append(told[1:], [Mark("node-1", "box", 3)])
    with closing(place.backend.open_reader()) as reader:
        assert list(reader.events(0)) == told
        assert list(reader.events(1, 2)) == told[1:2]
        assert (reader.last(), reader.marks(), reader.outboxes()) == (
            (3, 3),
            {"box": 3},
            {"box": "node-1"},
        )
    with place.writer() as store:
        with store.transaction():
            store.append([event(4)], [])
        store.verify()
        assert [one.seq for one in store.events(0)] == [1, 2, 3, 4]


def test_a_transaction_that_fails_leaves_nothing(place: JournalPlace) -> None:
    with place.writer() as store:

        def write_half() -> None:
            with store.transaction():
                store.append([event(1)], [Mark("n", "box", 1)])
                store.set_fact("kept", b"never")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            write_half()
        fill(store, 2)
        assert store.fact("kept") is None
        assert [one.seq for one in store.events(0)] == [1, 2]


def test_marks_go_on_and_back_only_where_that_is_said(place: JournalPlace) -> None:
    with place.writer() as store:
        with store.transaction():
            store.append([], [Mark("a", "box-a", 5), Mark("b", "box-b", 7), Mark("a", "box-a", 3)])
        assert store.marks() == {"box-a": 5, "box-b": 7}
        with store.transaction():
            store.unmark(Mark("a", "box-a", 2))
            store.unmark(Mark("c", "box-c", 1))
            store.append([], [Mark("b", "box-b", 6)])
        assert store.marks() == {"box-a": 2, "box-b": 7}
        with store.transaction():
            store.append([], [Mark("a", "box-a", 9)])
            store.unmark(Mark("a", "box-a", 4))
            store.forget_outboxes(["box-b"])
        assert store.marks() == {"box-a": 4}
        with store.transaction():
            store.append([], [Mark("b", "box-b", 1)])
        assert store.marks() == {"box-a": 4, "box-b": 1}
    with place.writer() as store:
        with store.transaction():
            store.append([], [Mark("a", "box-a", 3)])
        assert store.marks()["box-a"] == 4


def test_decisions_and_rejections_are_read_by_event(place: JournalPlace) -> None:
    with place.writer() as store:
        fill(store, 4)
        with store.transaction():
            store.record(1, b"[]")
            store.record(2, b"[" + b" " * 400 + b"]")
            store.reject(3, "it raised", None)
            store.reject(4, "some of it", [0, 2])
        with store.transaction():
            store.record(1, b"[1]")
        assert store.last_decision() == 2
        assert store.decisions(0) == {1: b"[1]", 2: b"[" + b" " * 400 + b"]"}
        assert store.decisions(1).keys() == {2}
        assert store.rejections() == {3: None, 4: (0, 2)}


def test_retention_keeps_what_snapshots_do_not_stand_for(place: JournalPlace) -> None:
    with place.writer() as store:
        fill(store, 10)
        with store.transaction():
            for seq in (3, 6, 8):
                store.save_snapshot(StoredSnapshot(seq, seq, "0", codec.encode(State(term=seq))))
            store.announce([Announcement(n, n, n, "s", "r", "m", b"{}") for n in range(1, 11)])
            for seq in range(1, 11):
                store.record(seq, b"[]")
            store.reject(2, "gone")
        with store.transaction():
            deleted = store.compact(events_before_ns=9, announcements_before_ns=5)
        assert deleted == 6
        assert [e.seq for e in store.events(0)] == [7, 8, 9, 10]
        assert store.removed_through() == 6
        oldest = store.oldest_snapshot()
        assert oldest is not None
        assert (oldest.seq, codec.decode_state(oldest.state).term) == (6, 6)
        assert [line.id for line in store.announcements("", 100)] == [5, 6, 7, 8, 9, 10]
        assert store.first_announcement() == 5
        assert sorted(store.decisions(0)) == [7, 8, 9, 10]
        assert store.rejections() == {}
        fill_from = [event(11)]
        with store.transaction():
            store.append(fill_from, [])
        assert [e.seq for e in store.events(9)] == [10, 11]


def test_of_all_snapshots_those_are_kept_that_are_needed(place: JournalPlace) -> None:
    hour_ns, week = 3600 * 10**9, 24 * 7
    with place.writer() as store:
        fill(store, 1)
        for hour in range(12, 4 * week, 12):
            with store.transaction():
                store.save_snapshot(StoredSnapshot(hour, hour * hour_ns, "0", b"{}"))
                store.prune_snapshots(events_before_ns=(hour - week) * hour_ns)
        kept = []
        one = store.snapshot()
        while one is not None:
            kept.append(one.seq)
            one = store.snapshot(one.seq - 1)
        assert kept[:2] == [4 * week - 12, 4 * week - 24]
        assert len(kept) <= 5


def test_lines_are_read_back_and_on_with_what_programs_are_told(place: JournalPlace) -> None:
    about = codec.encode_about(About(topic=Topic.FINDING_RAISED, condition="XidFatal"))
    lines = [
        Announcement(n, n, n * 10, "job" if n % 3 else "node", "r", "m", about if n % 2 else b"")
        for n in range(1, 8)
    ]
    with place.writer() as store:
        assert (store.first_announcement(), store.last_announcement()) == (0, 0)
        with store.transaction():
            store.announce(lines)
        assert store.last_announcement() == 7
        assert store.announcements_after(2, 3) == lines[2:5]
        plain = [replace(line, about=b"") for line in lines]
        assert store.announcements("", 3) == plain[4:]
        assert store.announcements("node", 3) == [plain[2], plain[5]]
        assert store.announcements("", 100, since_ns=60) == plain[5:]


def test_a_text_with_any_character_is_kept(place: JournalPlace) -> None:
    said = "it said \0 and \u2028, 100 % of 'it'; \\x00 {} \U0001f4a5"
    with place.writer() as store:
        with store.transaction():
            store.announce([Announcement(1, 1, 1, "node\0", "r", said)])
            store.append([], [Mark("node\0", "box\0", 3)])
        with store.transaction():
            store.append([], [Mark("node\0", "box\0", 2)])
        kept = store.announcements("", 1)[0]
        assert kept.message.replace("\ufffd", "\0") == said
        assert list(store.marks().values()) == [3]


def test_history_is_one_row_of_each_thing_and_time(place: JournalPlace) -> None:
    hour, incident, day = HistoryKind.JOB_HOUR, HistoryKind.INCIDENT, HistoryKind.NODE_DAY
    h_ns = DAY_NS // 24

    def row(kind: HistoryKind, key: str, begin_ns: int, text: bytes = b"{}") -> HistoryRow:
        return HistoryRow(kind, key, begin_ns, begin_ns + 1, text)

    with place.writer() as store:
        with store.transaction():
            store.save_history([row(hour, "B", h_ns * n) for n in range(1, 50)])
            store.save_history([row(hour, "a", h_ns * n) for n in (1, 30)])
            store.save_history([row(incident, "i-1", 5), row(incident, "i-1", 7, b"[]")])
            store.save_history([row(day, "n-1", 0)])
        with store.transaction():
            store.save_history([row(incident, "i-1", 9, b"{1}"), row(hour, "B", h_ns, b"{2}")])
        whole = HistoryRange(hour, 0, 2**63 - 1)
        assert [(one.key, one.begin_ns) for one in store.history(whole)][:2] == [
            ("B", h_ns),
            ("B", 2 * h_ns),
        ]
        assert list(store.history(HistoryRange(incident, 0, 100))) == [
            row(incident, "i-1", 9, b"{1}")
        ]
        assert [one.begin_ns // h_ns for one in store.history(replace(whole, key="a"))] == [1, 30]
        ends = store.history(replace(whole, last_of_days=True))
        assert [(one.key, one.begin_ns // h_ns) for one in ends] == [
            ("B", 23), ("B", 47), ("B", 49), ("a", 1), ("a", 30),
        ]  # fmt: skip
        later = HistoryRange(hour, 30 * h_ns, 40 * h_ns)
        assert {k: one.begin_ns // h_ns for k, one in store.history_before(later).items()} == {
            "B": 29,
            "a": 1,
        }
        assert store.history_keys(whole, 1) == ["B"]
        assert store.history_span(hour) == (h_ns, 49 * h_ns)
        assert store.history_span(HistoryKind.FLEET_DAY) == (0, 0)
        with store.transaction():
            store.forget_history(40 * h_ns)
        assert [one.begin_ns // h_ns for one in store.history(replace(whole, key="B"))] == [
            *range(39, 50)
        ]
        assert list(store.history(replace(whole, key="a"))) == []
        assert list(store.history(HistoryRange(day, 0, 1))) == []


def test_facts_are_kept_and_replaced(place: JournalPlace) -> None:
    with place.writer() as store:
        with store.transaction():
            store.set_fact("one", bytes(range(256)))
            store.set_fact("two", b"")
        with store.transaction():
            store.set_fact("two", b"2")
        store.probe()
        assert (store.fact("one"), store.fact("two"), store.fact("three")) == (
            bytes(range(256)),
            b"2",
            None,
        )


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE {event} SET now_ns = 77 WHERE seq = 2",
        "UPDATE {event} SET body = {bytes} WHERE seq = 2",
        "DELETE FROM {event} WHERE seq = 2",
        "DELETE FROM {event} WHERE seq = 3",
    ],
)
def test_an_event_that_was_changed_or_lost_is_noticed(place: JournalPlace, statement: str) -> None:
    with place.writer() as store:
        fill(store, 3)
    place.execute(statement.format(event=place.table("event"), bytes=place.bytes_of("7b7d")))
    with closing(place.backend.open_reader()) as reader, pytest.raises(DamagedJournalError):
        list(reader.events(0))


@pytest.mark.parametrize(
    ("table", "column"), [("fact", "value"), ("mark", "sequence"), ("decision", "actions")]
)
def test_a_row_that_was_changed_is_noticed(place: JournalPlace, table: str, column: str) -> None:
    with place.writer() as store:
        fill(store, 1)
        with store.transaction():
            store.set_fact("one", b"1")
            store.record(1, b"[]")
    changed = "99" if column == "sequence" else place.bytes_of("0102")
    place.execute(f"UPDATE {place.table(table)} SET {column} = {changed}")
    with closing(place.backend.open_reader()) as reader:
        asks = {"fact": lambda: reader.fact("one"), "mark": reader.marks}
        with pytest.raises(DamagedJournalError, match=f"'{table}' is not as it was written"):
            asks.get(table, lambda: reader.decisions(0))()


def test_a_snapshot_that_was_changed_is_one_that_cannot_be_read(place: JournalPlace) -> None:
    with place.writer() as store:
        fill(store, 1)
        with store.transaction():
            store.save_snapshot(StoredSnapshot(1, 1, "0", codec.encode(State(term=7))))
    place.execute(f"UPDATE {place.table('snapshot')} SET state = {place.bytes_of('0102')}")
    with closing(place.backend.open_reader()) as reader:
        damaged = reader.snapshot()
        assert damaged is not None
        assert damaged.state == b""


def test_a_second_controller_is_refused_with_a_sentence(place: JournalPlace) -> None:
    with (
        place.backend.lock(),
        pytest.raises(JournalLockedError, match=r"another controller.*stop it first"),
        place.backend.lock(),
    ):
        pass
    with place.backend.lock():
        pass


def test_a_journal_of_a_newer_version_is_refused(place: JournalPlace) -> None:
    with place.writer():
        pass
    if place.table("x") == "x":
        place.execute("PRAGMA user_version = 99")
    else:
        place.execute("UPDATE everstep.lease SET schema_version = 99")
    with pytest.raises(JournalRefusedError, match="newer controller"), place.writer():
        pass


def test_a_copy_in_the_other_kind_of_journal_has_all_of_it(
    server: PostgresServer, tmp_path: Path
) -> None:
    places = [sqlite_place(tmp_path), postgres_place(server)]
    with places[0].writer() as store:
        fill(store, 30)
        with store.transaction():
            store.record(3, b"[]")
            store.reject(4, "it raised")
            store.reject(5, "some of it", [1])
            store.announce([Announcement(n, n, n, "s", "r", "m", b"{}") for n in range(1, 5)])
            store.save_snapshot(StoredSnapshot(10, 10, "0", codec.encode(State(term=10))))
            store.save_snapshot(StoredSnapshot(20, 20, "0", codec.encode(State(term=20))))
            store.save_history(
                HistoryRow(HistoryKind.NODE_DAY, "n", DAY_NS * n, 1, b"{}") for n in range(5)
            )
            store.set_fact("secret", b"\0\1")
        with store.transaction():
            store.compact(events_before_ns=15, announcements_before_ns=2)
    said = everything(places[0])
    with places[1].writer() as store, closing(places[0].backend.open_reader()) as reader:
        assert copy_journal(reader, store) == 30
        with store.transaction():
            store.append([event(31)], [])
    assert everything(places[1]) == said | {
        "events": [*said["events"], event(31)],
        "last": (31, 31),
    }
    file = tmp_path / "copied"
    assert places[1].backend.copy_to(file) == 31
    copied = JournalPlace(SqliteBackend(file), print, str, str)
    assert everything(copied) == everything(places[1])
    with (
        places[1].writer() as store,
        closing(places[0].backend.open_reader()) as reader,
        pytest.raises(JournalRefusedError, match="needs an empty place"),
    ):
        copy_journal(reader, store)


def everything(place: JournalPlace) -> dict[str, Any]:
    with closing(place.backend.open_reader()) as reader:
        facts = reader.facts()
        return {
            "events": list(reader.events(0)),
            "last": reader.last(),
            "removed": reader.removed_through(),
            "decisions": dict(reader.decisions(0)),
            "rejections": dict(reader.rejections()),
            "errors": dict(reader.rejection_errors()),
            "snapshots": [reader.snapshot(), reader.oldest_snapshot()],
            "lines": reader.announcements_after(0, 100),
            "marks": reader.marks(),
            "nodes": dict(reader.outboxes()),
            "history": list(reader.history(HistoryRange(HistoryKind.NODE_DAY, 0, 2**62))),
            "facts": {name: value for name, value in facts.items() if value and name != "probe"},
        }
