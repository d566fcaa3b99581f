"""Ledger of the fleet: each nanosecond of each job's nodes once, in the period it is of."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep_controller.api.admin.errors import UnusableRequestError
from everstep_controller.api.admin.fleet_ledger import Periods, fleet_ledger, periods_of
from everstep_controller.journal.port import DAY_NS, LedgerRow
from everstep_controller.journal.sqlite.journal import SqliteJournal
from everstep_controller.journal.sqlite.ledger_history import ledger_rows, save_ledger, thin_ledgers
from everstep_proto.generated import admin_pb2

HOUR = 3_600_000_000_000
# 2026-01-31, a Saturday.
DAY = 1_769_817_600_000_000_000


def row(job: str, at_ns: int, productive: int, lost: int = 0, **more: int) -> LedgerRow:
    totals = {"productive": productive, "lost.recompute": lost}
    return LedgerRow(job, at_ns, {name: ns for name, ns in totals.items() if ns}, **more)


def test_time_is_of_the_period_in_which_it_was_written_down_and_weighs_with_its_nodes() -> None:
    rows = [
        row("a", DAY + HOUR, 40, nodes=8, failures=1),
        row("a", DAY + DAY_NS + HOUR, 100, 20, nodes=4, failures=3),
        row("b", DAY + 2 * HOUR, 10, nodes=2),
    ]
    told = fleet_ledger(Periods("day", 3, DAY + DAY_NS + 2 * HOUR), rows, ())
    first, second = told.periods
    assert (first.begin_ns, first.jobs, first.node_ns, first.failures) == (DAY, 2, 340, 1)
    assert (second.begin_ns, second.jobs, second.node_ns) == (DAY + DAY_NS, 1, 60 * 4 + 20 * 4)
    assert second.failures == 2
    assert (first.end_ns, second.end_ns) == (DAY + DAY_NS, DAY + DAY_NS + 2 * HOUR)
    assert second.ettr_time == pytest.approx(60 / 80)
    assert [(one.name, one.time_ns) for one in second.categories] == [
        ("productive", 240),
        ("lost.recompute", 80),
    ]
    assert (told.whole.node_ns, told.whole.failures, told.whole.jobs) == (660, 3, 2)


def test_what_was_before_the_first_period_counts_for_none() -> None:
    rows = [row("a", DAY - DAY_NS, 1000), row("a", DAY + HOUR, 1040)]
    told = fleet_ledger(Periods("day", 1, DAY + 2 * HOUR), rows, ())
    assert [one.node_ns for one in told.periods] == [40]


def test_what_has_not_been_written_down_yet_counts_as_well() -> None:
    told = fleet_ledger(
        Periods("day", 1, DAY + 2 * HOUR),
        [row("a", DAY + HOUR, 40)],
        [row("a", DAY + 2 * HOUR, 70)],
    )
    assert told.whole.node_ns == 70


def test_a_step_that_is_taken_back_counts_against_the_day_on_which_it_is() -> None:
    rows = [row("a", DAY + HOUR, 100), row("a", DAY + DAY_NS, 90, 30)]
    told = fleet_ledger(Periods("day", 2, DAY + DAY_NS + HOUR), rows, ())
    assert [one.node_ns for one in told.periods] == [100, 20]
    assert told.periods[1].categories[-1].time_ns == -10


@pytest.mark.parametrize(
    ("kind", "begin"),
    [("day", DAY), ("week", DAY - 5 * DAY_NS), ("month", DAY - 30 * DAY_NS)],
)
def test_periods_begin_as_the_calendar_has_them(kind: str, begin: int) -> None:
    periods = Periods(kind, 1, DAY + 5 * HOUR)
    assert periods.first_ns == periods.begin(DAY + HOUR) == begin
    assert periods.begin(begin - 1) < begin


def test_what_is_no_period_is_refused_with_those_there_are() -> None:
    with pytest.raises(UnusableRequestError, match="no period 'hour'; there is day, week, month"):
        periods_of(admin_pb2.GetFleetLedgerRequest(period="hour"), DAY)


_GAINS = st.lists(st.tuples(st.integers(1, 30), st.integers(0, 10**12)), max_size=12)


@given(st.dictionaries(st.sampled_from("abc"), _GAINS), st.sampled_from(["day", "week", "month"]))
def test_all_periods_together_are_all_the_time_there_is(
    gains: dict[str, list[tuple[int, int]]], kind: str
) -> None:
    rows = []
    for job, told in gains.items():
        at_ns, sum_ns = DAY, 0
        for hours, gained in told:
            at_ns, sum_ns = at_ns + hours * HOUR, sum_ns + gained
            rows.append(row(job, at_ns, sum_ns))
    told_now = fleet_ledger(Periods(kind, 400, DAY + 400 * HOUR), rows, ())
    whole = sum(gained for told in gains.values() for _, gained in told)
    assert told_now.whole.node_ns == whole
    assert sum(one.node_ns for one in told_now.periods) == whole


def _store(folder: Path) -> SqliteJournal:
    return SqliteJournal(folder / "journal.sqlite")


def test_rows_come_back_with_the_one_before_of_each_job(tmp_path: Path) -> None:
    store = _store(tmp_path)
    rows = [row("a", DAY, 1), row("a", DAY + HOUR, 2), row("a", DAY + 2 * HOUR, 3, nodes=4)]
    for one in (*rows, row("over", DAY, 9)):
        save_ledger(store, one)
    assert list(ledger_rows(store, DAY + 2 * HOUR)) == rows[1:]


_CHANGES = st.lists(
    st.tuples(st.integers(1, 10 * HOUR), st.integers(0, 10**12), st.sampled_from((1, 2, 8))),
    max_size=20,
)


@given(st.dictionaries(st.sampled_from("abc"), _CHANGES), st.integers(-1, 3))
def test_the_rows_that_are_read_tell_what_all_rows_would(
    changes: dict[str, list[tuple[int, int, int]]], days_before: int
) -> None:
    rows = []
    for job, told in changes.items():
        at_ns, sum_ns = DAY, 0
        for later_ns, gained, nodes in told:
            at_ns, sum_ns = at_ns + later_ns, sum_ns + gained
            rows.append(row(job, at_ns, sum_ns, nodes=nodes, failures=sum_ns // 10**11))
    with TemporaryDirectory() as folder:
        store = _store(Path(folder))
        for one in rows:
            save_ledger(store, one)
        read = list(ledger_rows(store, DAY + days_before * DAY_NS))
    periods = Periods("day", 20 - days_before, DAY + 19 * DAY_NS)
    assert fleet_ledger(periods, read, ()) == fleet_ledger(periods, rows, ())


def test_of_a_row_every_ten_minutes_one_a_day_is_read(tmp_path: Path) -> None:
    store = _store(tmp_path)
    store.begin()
    for count in range(3 * 144):
        save_ledger(store, row("a", DAY + count * HOUR // 6, count, nodes=8))
    store.commit()
    assert len(list(ledger_rows(store, 0))) == 3


def test_rows_of_before_nodes_were_written_down_count_as_one_node(tmp_path: Path) -> None:
    store = _store(tmp_path)
    row = ("a", DAY, b'{"productive": 7}')
    store.execute("INSERT INTO ledger VALUES (?1, ?2, ?3, checksum(?1, ?2, ?3))", row)
    assert list(ledger_rows(store, 0)) == [LedgerRow("a", DAY, {"productive": 7})]


def test_of_days_that_are_over_the_last_row_of_each_job_is_kept(tmp_path: Path) -> None:
    store = _store(tmp_path)
    for hour in range(24 * 6):
        save_ledger(store, row("a", DAY + hour * HOUR, hour))
        save_ledger(store, row("b", DAY + hour * HOUR + 1, hour))
    before = fleet_ledger(Periods("day", 6, DAY + 6 * DAY_NS - 1), ledger_rows(store, 0), ())
    thin_ledgers(store, DAY + DAY_NS)
    kept = [at for (at,) in store.query("SELECT at_ns FROM ledger WHERE job = 'a' ORDER BY at_ns")]
    assert kept[:2] == [DAY + 47 * HOUR, DAY + 48 * HOUR]
    assert len(kept) == 1 + 4 * 24
    after = fleet_ledger(
        Periods("day", 4, DAY + 6 * DAY_NS - 1), ledger_rows(store, DAY + 2 * DAY_NS), ()
    )
    assert [one.node_ns for one in after.periods] == [one.node_ns for one in before.periods[2:]]
