"""History in the journal: one row of each thing and time, whatever becomes of the journal."""

import asyncio
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from everstep_controller.api.admin.errors import UnknownNameError, UnusableRequestError
from everstep_controller.api.admin.fleet_ledger import Hour, LedgerQuestion, Periods
from everstep_controller.api.admin.history_queries import (
    CurrentHistory,
    history_range,
    history_rows,
    ledger_from,
)
from everstep_controller.journal.history_rows import (
    FleetDayTold,
    IncidentPartTold,
    IncidentTold,
    JobHour,
    NodeDayTold,
    UnreadableHistoryError,
    content_of,
    history_row,
)
from everstep_controller.journal.port import DAY_NS, HistoryKind, HistoryRange, HistoryRow
from everstep_controller.journal.sqlite.journal import SqliteJournal
from everstep_controller.journal.sqlite.schema import MIGRATIONS, add_functions
from everstep_proto.generated import admin_pb2

HOUR = 3_600_000_000_000
DAY = 1_769_817_600_000_000_000
NOTHING_NOW = CurrentHistory([], [])


@pytest.fixture(name="store")
def _store(tmp_path: Path) -> Iterator[SqliteJournal]:
    with closing(SqliteJournal(tmp_path / "journal.sqlite")) as store:
        yield store


def hour(job: str, at_ns: int, productive: int, **more: int | str) -> HistoryRow:
    told = JobHour({"productive": productive}, **more)  # type: ignore[arg-type]
    return history_row(job, at_ns, at_ns + HOUR, told)


def keep(store: SqliteJournal, *rows: HistoryRow) -> None:
    with store.transaction():
        store.save_history(rows)


def days(store: SqliteJournal, count: int, now_ns: int, job: str = "") -> list[int]:
    question = LedgerQuestion("day", Periods("day", count, now_ns), job)
    return [one.node_ns for one in ledger_from(store, question, NOTHING_NOW).periods]


ALL = (0, 2**62)


def test_a_row_that_is_written_again_is_there_once(store: SqliteJournal) -> None:
    keep(store, hour("a", DAY, 1), hour("a", DAY + HOUR, 2))
    keep(store, hour("a", DAY + HOUR, 3))
    rows = list(store.history(HistoryRange(HistoryKind.JOB_HOUR, *ALL)))
    assert rows == [hour("a", DAY, 1), hour("a", DAY + HOUR, 3)]
    assert days(store, 1, DAY + 3 * HOUR) == [3]


def test_an_incident_has_one_row_whenever_it_is_found_to_have_begun(store: SqliteJournal) -> None:
    told = IncidentTold("a", "node", "node-1 was lost", failure=True)
    keep(store, history_row("a.1", DAY + 5, DAY + 9, told))
    keep(store, history_row("a.1", DAY + 3, DAY + 10, told), history_row("a.2", DAY, DAY, told))
    rows = list(store.history(HistoryRange(HistoryKind.INCIDENT, *ALL)))
    assert [(row.key, row.begin_ns) for row in rows] == [("a.1", DAY + 3), ("a.2", DAY)]


@pytest.mark.parametrize(
    "content",
    [
        JobHour({"productive": 7}, 4, {"productive": 20}, 8, 4, 2, "llama", "big", "nlp"),
        IncidentTold(
            "a-1", "node", "m", True, 5, node="n1", members="n[1-2048]", costs={"inc.detect": 3},
            parts=(IncidentPartTold(1, "node", "n1", "gone"),), deaths=("rank 3 died",),
            evidence=("Xid 79 on gpu/3",), step_before=9,
        ),
        NodeDayTold({"repairing": 5}, 5, {"xid": 2}, 1, 9, 90),
        FleetDayTold(3, {"healthy": 9}, 1, 24),
    ],
)  # fmt: skip
def test_what_a_row_tells_is_read_as_it_was_written(
    content: JobHour | IncidentTold | NodeDayTold | FleetDayTold,
) -> None:
    assert content_of(history_row("k", DAY, DAY, content), type(content)) == content


def test_a_row_that_cannot_be_read_says_which_it_is() -> None:
    for body in (b"", b"\x78\x9c", b'{"totals": 3}', b"\xff"):
        row = HistoryRow(HistoryKind.JOB_HOUR, "a", DAY, DAY, body)
        with pytest.raises(UnreadableHistoryError, match=f"the job-hour of a at {DAY} cannot"):
            content_of(row, JobHour)


def test_of_each_day_the_last_row_is_read_and_the_one_before_all(store: SqliteJournal) -> None:
    keep(store, *(hour("a", DAY + at * HOUR, at + 1) for at in range(72)), hour("over", DAY, 5))
    asked = HistoryRange(HistoryKind.JOB_HOUR, DAY + DAY_NS, 2**62, last_of_days=True)
    assert list(store.history(asked)) == [
        hour("a", DAY + 47 * HOUR, 48),
        hour("a", DAY + 71 * HOUR, 72),
    ]
    assert store.history_before(asked) == {"a": hour("a", DAY + 23 * HOUR, 24)}
    assert days(store, 3, DAY + 72 * HOUR - 1) == [24 + 5, 24, 24]


def test_a_row_whose_bits_have_changed_is_left_out_and_no_time_is_lost(
    store: SqliteJournal, caplog: pytest.LogCaptureFixture
) -> None:
    keep(store, hour("a", DAY, 1), hour("a", DAY + DAY_NS, 2), hour("a", DAY + 2 * DAY_NS, 3))
    store.execute("UPDATE history SET at_ns = at_ns + 1 WHERE begin_ns = ?", (DAY + DAY_NS,))
    assert days(store, 3, DAY + 3 * DAY_NS - 1) == [1, 2]
    assert f"job-hour of a at {DAY + DAY_NS} is left out" in caplog.text


def test_rows_of_times_to_come_are_told_and_change_no_sum(store: SqliteJournal) -> None:
    keep(store, hour("a", DAY, 5), hour("a", DAY + 900 * DAY_NS, 4), hour("a", DAY + HOUR, 8))
    question = LedgerQuestion("day", Periods("day", 1, DAY + 2 * HOUR))
    told = ledger_from(store, question, NOTHING_NOW)
    assert told.whole.node_ns == 8
    assert list(told.notes) == [
        "The history has rows of times to come, up to 2028-07-19: a clock was wrong when they were "
        "written. They are left out, and no job's time is lost by it."
    ]


def test_what_the_state_tells_goes_before_what_is_written(store: SqliteJournal) -> None:
    keep(store, hour("a", DAY, 5), hour("a", DAY + DAY_NS, 8))
    now = [Hour("a", DAY, JobHour({"productive": 6})), Hour("b", DAY + DAY_NS, JobHour({"gap": 2}))]
    question = LedgerQuestion("day", Periods("day", 2, DAY + DAY_NS + HOUR))
    told = ledger_from(store, question, CurrentHistory(now, []))
    assert [one.node_ns for one in told.periods] == [6, 4]


def test_a_job_that_nobody_knows_is_refused_with_those_there_are(store: SqliteJournal) -> None:
    keep(store, hour("llama-1", DAY, 5, name="llama"), hour("old", DAY - 99 * DAY_NS, 5))
    with pytest.raises(UnknownNameError, match="no job named 'lama' is in the history; there is"):
        days(store, 3, DAY + HOUR, "lama")
    assert days(store, 3, DAY + HOUR, "llama") == [5]
    assert days(store, 3, DAY + HOUR, "old") == []


def test_the_first_day_is_told_where_the_history_does_not_reach(store: SqliteJournal) -> None:
    question = LedgerQuestion("day", Periods("day", 30, DAY + HOUR))
    assert list(ledger_from(store, question, NOTHING_NOW).notes) == ["The history is empty."]
    keep(store, hour("a", DAY, 5))
    told = ledger_from(store, question, NOTHING_NOW)
    assert list(told.notes) == ["The history begins on 2026-01-31."]


def test_what_the_journal_forgets_stays_in_the_history(store: SqliteJournal) -> None:
    keep(store, hour("a", DAY, 5))
    with store.transaction():
        store.compact(DAY + 99 * DAY_NS, DAY + 99 * DAY_NS)
    assert days(store, 1, DAY + HOUR) == [5]


def test_of_a_job_that_goes_on_the_last_hour_before_is_kept(store: SqliteJournal) -> None:
    keep(
        store,
        *(hour("a", DAY + at * DAY_NS, 10 * (at + 1)) for at in range(6)),
        *(hour("over", DAY + at * DAY_NS, at + 1) for at in range(2)),
        history_row("n1", DAY, DAY, NodeDayTold({"lost": 1})),
        history_row("n1", DAY + 4 * DAY_NS, DAY, NodeDayTold({"lost": 1})),
    )
    with store.transaction():
        store.forget_history(DAY + 3 * DAY_NS)
    kept = [
        (row.key, (row.begin_ns - DAY) // DAY_NS)
        for kind in HistoryKind
        for row in store.history(HistoryRange(kind, *ALL))
    ]
    assert kept == [("a", 2), ("a", 3), ("a", 4), ("a", 5), ("n1", 4)]
    assert days(store, 3, DAY + 6 * DAY_NS - 1) == [10, 10, 10]


def test_the_ledgers_of_the_version_before_are_carried_over(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    with closing(sqlite3.connect(path)) as db:
        add_functions(db)
        db.executescript("".join(MIGRATIONS[:4]) + "PRAGMA user_version = 5;")
        for job, at_ns, content in (
            ("a", DAY + 60, b'{"productive": 3, "nodes": 8, "failures": 1}'),
            ("a", DAY + 600, b'{"productive": 7, "nodes": 8, "failures": 2}'),
            ("a", DAY + DAY_NS, b'{"productive": 9, "inc.init": 4, "nodes": 4, "failures": 2}'),
            ("older", DAY, b'{"productive": 7}'),
        ):
            db.execute(
                "INSERT INTO ledger VALUES (?1, ?2, ?3, checksum(?1, ?2, ?3))",
                (job, at_ns, content),
            )
        row = ("damaged", DAY, b'{"productive": 99}', b"12345678")
        db.execute("INSERT INTO ledger VALUES (?, ?, ?, ?)", row)
        db.commit()
    with closing(SqliteJournal(path, read_only=True)) as store:
        assert store.history_span(HistoryKind.JOB_HOUR) == (0, 0)
    with closing(SqliteJournal(path)) as store:
        store.verify(whole=True)
        rows = {
            (row.key, row.begin_ns): content_of(row, JobHour)
            for row in store.history(HistoryRange(HistoryKind.JOB_HOUR, *ALL))
        }
        assert days(store, 2, DAY + DAY_NS + HOUR) == [7 * 8 + 7, 6 * 4]
    assert rows == {
        ("a", DAY): JobHour({"productive": 7}, 8, failures=2),
        ("a", DAY + DAY_NS): JobHour({"productive": 9, "inc.init": 4}, 4, failures=2),
        ("older", DAY): JobHour({"productive": 7}),
    }


def _asked(store: SqliteJournal, now_ns: int, **asked: str | int) -> list[admin_pb2.HistoryRow]:
    request = admin_pb2.GetHistoryRequest(**asked)  # type: ignore[arg-type]

    async def rows() -> list[admin_pb2.HistoryRow]:
        return [row async for row in history_rows(store, history_range(request, now_ns))]

    return asyncio.run(rows())


def test_rows_are_told_day_by_day_and_none_of_times_to_come(store: SqliteJournal) -> None:
    keep(store, *(hour(job, DAY + at * 20 * HOUR, at + 1) for at in range(4) for job in "ba"))
    keep(store, hour("a", DAY + 900 * DAY_NS, 9))
    told = _asked(store, DAY + 60 * HOUR, kind="job-hour", since_ns=DAY + HOUR)
    assert [(row.key, (row.begin_ns - DAY) // HOUR) for row in told] == [
        ("a", 20), ("b", 20), ("a", 40), ("b", 40), ("a", 60), ("b", 60),
    ]  # fmt: skip
    assert json.loads(told[0].told) == {"totals": {"productive": 2}}
    assert len(_asked(store, DAY + 60 * HOUR, kind="job-hour", key="b")) == 4
    assert _asked(store, DAY, kind="node-day") == []
    with pytest.raises(UnknownNameError, match="has nothing of 'c'; it has rows of a, b"):
        _asked(store, DAY + 60 * HOUR, kind="job-hour", key="c")


def test_what_the_history_does_not_have_is_refused_with_what_it_has(store: SqliteJournal) -> None:
    with pytest.raises(UnusableRequestError, match="has fleet-day, incident, job-hour, node-day"):
        _asked(store, DAY, kind="rack-day")
    with pytest.raises(UnusableRequestError, match="ends before it begins, or begins after now"):
        _asked(store, DAY, kind="incident", since_ns=DAY + HOUR)


def test_a_ledger_of_days_that_are_over_has_nothing_of_later_ones(store: SqliteJournal) -> None:
    keep(store, *(hour("a-1", DAY + n * DAY_NS, (n + 1) * 10) for n in range(4)))
    now_ns = DAY + 3 * DAY_NS + HOUR
    question = LedgerQuestion("day", Periods("day", 2, now_ns, DAY + 3 * DAY_NS))
    now = [Hour("a-1", DAY + 3 * DAY_NS, JobHour({"productive": 45}))]
    told = ledger_from(store, question, CurrentHistory(now[:0], []))
    assert [one.begin_ns for one in told.periods] == [DAY + DAY_NS, DAY + 2 * DAY_NS]
    assert told.whole.node_ns == 20
    assert told.periods[-1].end_ns == told.whole.end_ns == DAY + 3 * DAY_NS
